import { afterEach, describe, expect, it, vi } from 'vitest';
import { membersIn } from '../../../gateway/attestation/sidecar-link.ts';
import { attestedMembersSchema } from '../../../proto/attestation/frames.ts';

const DEVICE = { arch: 'HOPPER', report: 'AAAA+/==', certificate_chain: 'QUJD'.repeat(50) };
const MEMBERS = { token: '[["JWT","a.b.c"],{"GPU-0":"\\\\x\n"}]', evidence: [DEVICE] };
const TEXT = JSON.stringify(MEMBERS);

/** What the members are: an object in JSON, in UTF-8, that the schema accepts. */
function isRight(bytes: Buffer): boolean {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return attestedMembersSchema.safeParse(JSON.parse(text)).success && bytes[0] === 0x7b;
  } catch {
    return false;
  }
}

afterEach(() => vi.restoreAllMocks());

describe('the members of an attestation', () => {
  it.each([1, 2, 64])('of %i devices are seen to be right without a parse', (devices) => {
    const bytes = Buffer.from(JSON.stringify({ ...MEMBERS, evidence: Array(devices).fill(DEVICE) }));
    const parse = vi.spyOn(JSON, 'parse');
    // Wherever they lie: behind a head of any length.
    for (let before = 0; before < 8; before++)
      expect(membersIn(Buffer.concat([Buffer.alloc(before), bytes]).subarray(before))).toEqual(bytes);
    expect(parse).not.toHaveBeenCalled();
  });

  it.each([
    ['a member more in a device', JSON.stringify({ ...MEMBERS, evidence: [{ ...DEVICE, serial: 1 }] })],
    ['another order', JSON.stringify({ evidence: [DEVICE], token: 'JWT' })],
    ['spaces', JSON.stringify(MEMBERS, null, 1)],
    ['letters beyond ASCII', JSON.stringify({ ...MEMBERS, token: 'tökén' })],
    ['any escape', TEXT.replace('JWT', 'J\\u0057T\\/\\b\\f\\r\\t')],
    ['a member said twice', TEXT.replace('{"token"', '{"token":"another","token"')],
  ])('are right with %s too, and go on as JSON on one line', (_, text) =>
    expect(String(membersIn(Buffer.from(text)))).toBe(JSON.stringify(JSON.parse(text))),
  );

  it.each([
    ['no JSON', 'hello'],
    ['nothing', ''],
    ['behind a space', ` ${TEXT}`],
    ['followed by something', `${TEXT}]`],
    ['an array', '[]'],
    ['a member more', TEXT.replace('{"token"', '{"more":1,"token"')],
    ['a line feed in a text', TEXT.replace('JWT', 'J\nT')],
    ['an escape that JSON does not have', TEXT.replace('JWT', 'J\\xT')],
    ['without an end to the token', '{"token":"abc'],
    ['an escape at the very end', '{"token":"abc\\'],
    ['a short token', JSON.stringify({ ...MEMBERS, token: '\n' })],
    ['no device', JSON.stringify({ ...MEMBERS, evidence: [] })],
    ['65 devices', JSON.stringify({ ...MEMBERS, evidence: Array(65).fill(DEVICE) })],
    ['an empty architecture', JSON.stringify({ ...MEMBERS, evidence: [{ ...DEVICE, arch: '' }] })],
    ['a short report', JSON.stringify({ ...MEMBERS, evidence: [{ ...DEVICE, report: 'AA=' }] })],
    ['a short chain', JSON.stringify({ ...MEMBERS, evidence: [{ ...DEVICE, certificate_chain: 'AA=' }] })],
  ])('are refused when they are %s', (_, text) => expect(membersIn(Buffer.from(text))).toBeNull());

  it('are refused when they are not UTF-8', () => {
    expect(membersIn(Buffer.from(TEXT.replace('JWT', 'J\xff'), 'latin1'))).toBeNull();
  });

  it('are taken and refused as a parse would, whatever byte is another, missing or one too many', () => {
    const odd = Buffer.from('"\\{}[],:\u0000\u001f \nnu/é\u007fz0', 'utf8');
    const good = Buffer.from(TEXT);
    for (let at = 0; at < good.length; at++)
      for (const byte of odd) {
        const other = Buffer.from(good);
        other[at] = byte;
        const more = Buffer.concat([good.subarray(0, at), Buffer.of(byte), good.subarray(at)]);
        const less = Buffer.concat([good.subarray(0, at), good.subarray(at + 1)]);
        for (const bytes of [other, more, less, good.subarray(0, at)])
          if ((membersIn(bytes) !== null) !== isRight(bytes))
            expect.fail(`judged wrongly: ${JSON.stringify(String(bytes))}`);
      }
  });
});
