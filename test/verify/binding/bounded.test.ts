// What is parsed is counted first: files of every kind, links, events of a stream.
import { expect, test } from 'vitest';
import { proofIn } from '../../../page/proof/link.ts';
import { attestationIn, readStored } from '../../../page/proof/subject.ts';
import { sameTokens } from '../../../verify/binding/json-equality.ts';
import { heldUntilProven } from '../../../verify/clients/held-stream.ts';
import { toBase64Url } from '../../../verify/common/bytes.ts';
import { unquoted } from '../../../verify/common/limited.ts';
import { appraiseAttestation, kindOf } from '../../../verify/index.ts';

const MI = 2 ** 20;
const through = async (text: string, stream: CompressionStream) =>
  new Uint8Array(await new Response(new Blob([text]).stream().pipeThrough(stream)).arrayBuffer());
const link = async (text: string) => `#proof=${toBase64Url(await through(text, new CompressionStream('deflate-raw')))}`;

test.each([
  ['[{}]', 'evidence'],
  ['{"raw":"","gpu":[],"statement":""}', 'attestation'],
  ['{"gpu":[],"statement":""}', 'session'],
  ['{"type":"TDX","report":""}', 'cpu'],
  ['{}', 'attestation'],
  ['"', 'attestation'],
])('the kind of %s is %s, also in a JSON string and after a byte order mark', (text, kind) => {
  for (const written of [text, JSON.stringify(text), `\ufeff${text}`, `\ufeff${JSON.stringify(text)}`])
    expect([kindOf(written), kindOf(written, { maxValues: 20 })]).toEqual([kind, kind]);
});

test('a text over the limits is not parsed to find its kind, and its reader says too_large', async () => {
  const many = `[${'{},'.repeat(50)}{}]`;
  expect(kindOf(many)).toBe('evidence');
  for (const limits of [{ maxValues: 50 }, { maxCharacters: 50 }])
    for (const text of [many, JSON.stringify(many)]) {
      expect(kindOf(text, limits)).toBe('attestation');
      const { checks } = await appraiseAttestation(text, { limits });
      expect(checks[0]).toMatchObject({ name: 'form', status: 'fail', code: 'too_large' });
    }
});

test('the page keeps a file of millions of values as a text, and reads nothing in it', async () => {
  const text = `[${'{},'.repeat(9 * MI)}{}]`;
  const subject = readStored(Buffer.from(text), 'kept');
  expect([subject.kind, attestationIn(subject)]).toEqual(['attestation', null]);
  expect((await appraiseAttestation(subject.text)).checks[0]).toMatchObject({ code: 'too_large' });
});

test('a link unpacks to 4 MiB at most', async () => {
  expect(await proofIn(await link('[{},{}]'))).toEqual(new Uint8Array(Buffer.from('[{},{}]')));
  expect(await proofIn(await link(' '.repeat(4 * MI)))).toHaveLength(4 * MI);
  expect(await proofIn(await link(' '.repeat(4 * MI + 1)))).toBe('too_large');
  expect(await proofIn(await link('{},'.repeat(16 * MI)))).toBe('too_large');
  expect(await proofIn((await link('[{},{}]')).slice(0, -4))).toBe('damaged');
  expect(await proofIn('#proof=%%%')).toBe('damaged');
});

test('a session in a JSON string is unquoted, and a text over the limits stays as it is', () => {
  const text = '{"statement":"","gpu":[]}';
  for (const written of [text, JSON.stringify(text), `\ufeff${JSON.stringify(text)}`])
    expect(unquoted(written)).toBe(text);
  const long = JSON.stringify('x'.repeat(100));
  for (const written of ['"', '"a"b', long]) expect(unquoted(written, { maxCharacters: 50 })).toBe(written);
});

test('an event of more values than a response has is refused before it is parsed', () => {
  const held = heldUntilProven('completion', async () => {}, 64 * MI);
  const passed: Uint8Array[] = [];
  const controller = { enqueue: (part: Uint8Array) => passed.push(part) } as never;
  const event = (text: string) => Buffer.from(`data: {"choices":[],"x":[${text}0]}\n\n`);
  held.transform(event('{},'), controller);
  expect(passed).toHaveLength(1);
  expect(() => held.transform(event('{},'.repeat(9 * MI)), controller)).toThrow(
    expect.objectContaining({ code: 'stream_too_large' }),
  );
});

test('a text is compared with a signed one before it is parsed', () => {
  expect(sameTokens(' { "a" : [ 1 ] } ', '{"a":[1]}')).toBe(true);
  expect(sameTokens('{"a":[1 1]}', '{"a":[11]}')).toBe(false);
  expect(sameTokens(`[${'{},'.repeat(MI)}{}]`, '{"a":[1]}')).toBe(false);
});
