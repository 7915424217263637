// CMW collections: the bytes in them are the evidence's own, in the form that RFC 9999 asks for.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { exportCmw } from '../../verify/cmw.ts';
import type { FailureCode } from '../../verify/index.ts';
import { LAUNCH, LAUNCH_SHA256 } from '../support/launch-file.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { bytesOf, caseOf, memberOf, ofKind } from './cpu/cases.ts';
import { a, b, RESPONSE, streamed, transcript } from './maker.ts';
import { answerIn, type MadeSession, makeSession, signAnswer, statementDigest, tdx } from './session-maker.ts';

type CmwCollection = Awaited<ReturnType<typeof exportCmw>>;

const sha256 = (...parts: (string | Uint8Array)[]) =>
  parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();

/** RFC 9741's strict form: no padding, no other alphabet, no bits left over. */
function bytesIn(text: unknown): Buffer {
  const bytes = Buffer.from(String(text), 'base64url');
  expect(text).toBe(bytes.toString('base64url'));
  return bytes;
}
const fromBase64 = (text: unknown) => Buffer.from(String(text), 'base64');

/** RFC 9999 §3: records of three members, and a type of the whole that is a URI. @returns each record's bytes. */
function recordsOf({
  __cmwc_t,
  ...entries
}: CmwCollection): Record<string, { type: string; bytes: Buffer; ind: number }> {
  expect(__cmwc_t).toMatch(/^(urn:uuid:[0-9a-f-]{36}|tag:[^:]+:.+)$/);
  expect(Object.keys(entries).length).toBeGreaterThan(0);
  return Object.fromEntries(
    Object.entries(entries).map(([label, entry]) => {
      expect([label, Array.isArray(entry) && entry.length]).toEqual([label, 3]);
      const [type, value, ind] = entry as unknown as [string, string, number];
      expect(type).toMatch(/^application\/[\w.+-]+$/);
      expect([2, 4]).toContain(ind);
      return [label, { type, bytes: bytesIn(value), ind }];
    }),
  );
}

const alone = ({ cpu, gpu }: MadeSession) => ({ ...cpu, gpu });

const refusal = async (input: unknown): Promise<FailureCode | undefined> =>
  exportCmw(input).then(
    () => undefined,
    (error: { code?: FailureCode }) => {
      if (error.code === undefined) throw error;
      return error.code;
    },
  );

const session = await makeSession();
const good = await answerIn(session);
const tdxSession = await makeSession({ processor: tdx, devices: [a, b] });
const tdxAnswer = await answerIn(tdxSession, undefined, [a, b]);

describe('a CMW collection', () => {
  test.each([
    ['SEV-SNP', good, 'application/vnd.confidential-ai.sev-snp-report'],
    ['TDX, two devices', tdxAnswer, 'application/vnd.confidential-ai.tdx-quote'],
  ])('%s: of an answer holds what was signed, as it is in the file', async (_, answer, type) => {
    const collection = await exportCmw(JSON.stringify(answer));
    expect(collection.__cmwc_t).toBe('urn:uuid:56f534b3-cf3e-4a1d-8902-1eeb8f75859e');
    const records = recordsOf(collection);
    const { cpu, evidence, nonce } = answer;
    expect(records.statement?.bytes.toString()).toBe(cpu.statement);
    expect(records.cpu0).toEqual({ type, bytes: fromBase64(cpu.report), ind: 4 });
    const { gpu_sha256, signature } = cpu;
    expect(JSON.parse(String(records.answer?.bytes))).toEqual({ nonce, gpu_sha256, signature });
    for (const [i, { report, certificate_chain }] of evidence.entries()) {
      expect(records[`gpu${i}`]).toEqual({
        type: 'application/vnd.nvidia.spdm-measurement-transcript',
        bytes: fromBase64(report),
        ind: 4,
      });
      expect(records[`gpu${i}.certificates`]).toEqual({
        type: 'application/pem-certificate-chain',
        bytes: fromBase64(certificate_chain),
        ind: 2,
      });
    }
    if (cpu.certificates !== undefined)
      expect(records['cpu0.certificates']?.bytes).toEqual(fromBase64(cpu.certificates));
    expect(JSON.parse(String(records['cpu0.collateral']?.bytes))).toEqual(cpu.collateral);
  });

  test('holds no prompt, no completion and no token', async () => {
    const text = Object.values(recordsOf(await exportCmw(good)))
      .map(({ bytes }) => bytes.toString('latin1'))
      .join();
    for (const secret of ['messages', 'Hello', good.token.slice(0, 40)]) expect(text).not.toContain(secret);
  });

  test('of a session by itself holds the evidence over its statement, and no answer', async () => {
    const collection = await exportCmw(JSON.stringify(alone(tdxSession)));
    expect(collection.__cmwc_t).toBe('urn:uuid:e136eff3-6308-4265-b7f2-bca288e421ec');
    const records = recordsOf(collection);
    expect(records).not.toHaveProperty('answer');
    expect(records.gpu1?.bytes).toEqual(fromBase64(tdxSession.gpu[1]?.report));
    // What is in it is enough to recompute the digest that the processor signed.
    const parts = [0, 1].flatMap((i) =>
      [records[`gpu${i}`], records[`gpu${i}.certificates`]].flatMap((one) => {
        const length = Buffer.alloc(4);
        length.writeUInt32BE(one?.bytes.length ?? 0);
        return [length, one?.bytes ?? ''];
      }),
    );
    const evidence = sha256('countersign/evidence/v1\0', Buffer.from([0, 0, 0, 2]), ...parts);
    const digest = sha256('countersign/session/v1\0', sha256(records.statement?.bytes ?? ''), evidence);
    expect(records.cpu0?.bytes.includes(digest)).toBe(true);
  });

  test('of an answer without a processor holds the devices alone', async () => {
    const { cpu: _, ...bare } = good;
    expect(Object.keys(recordsOf(await exportCmw(bare)))).toEqual(['gpu0', 'gpu0.certificates']);
  });

  test('takes what the verifier takes: parsed, in a response, in a stream', async () => {
    const expected = await exportCmw(good);
    expect(await exportCmw(JSON.parse(JSON.stringify(good)))).toEqual(expected);
    expect(await exportCmw(RESPONSE.replace(/\}$/, `,"attestation":${JSON.stringify(good)}}`))).toEqual(expected);
    const stream = await answerIn(session, await streamed());
    expect(await exportCmw(transcript(stream))).toEqual(await exportCmw(stream));
  });

  test('names the launch file where it came along', async () => {
    const made = await makeSession({ statement: { launch: LAUNCH_SHA256 } });
    const records = recordsOf(await exportCmw({ ...alone(made), launch: LAUNCH }));
    expect(records.launch).toEqual({ type: 'application/json', bytes: Buffer.from(LAUNCH), ind: 4 });
  });
});

/** A session whose processor half is a genuine one, which signed something else: form alone is exported. */
const around = (member: object): object => ({ ...alone(session), ...blank, ...member });
const blank = { report: undefined, certificates: undefined, collateral: undefined };
const stripped = (member: object) => JSON.parse(JSON.stringify(around(member)));

describe.runIf(vectorsPresent)('genuine evidence', () => {
  test('every processor of the vectors that can be read: its bytes are those of the files', async () => {
    let exported = 0;
    for (const one of ofKind('snp', 'tdx', 'az-snp', 'az-tdx')) {
      const member = memberOf(one);
      const input = stripped(member);
      const code = await refusal(input);
      if (code !== undefined) {
        expect([one.id, code]).toEqual([one.id, one.expect.code]);
        continue;
      }
      exported++;
      const records = recordsOf(await exportCmw(input));
      expect(records.cpu0?.bytes).toEqual(fromBase64(member.report));
      if (one.kind === 'snp') expect(records.cpu0?.bytes).toEqual(bytesOf(one, 'report'));
      if (one.kind === 'tdx') expect(records.cpu0?.bytes).toEqual(bytesOf(one, 'quote'));
      if (one.kind === 'az-tdx') expect(records['cpu0.quote']?.bytes).toEqual(fromBase64(member.quote));
      if (one.kind.endsWith('snp'))
        expect(records['cpu0.certificates']?.bytes).toEqual(fromBase64(member.certificates));
      if (!one.kind.startsWith('az')) continue;
      expect(JSON.parse(String(records['cpu0.tpm']?.bytes))).toEqual(member.tpm);
      expect(records.cpu0?.type).toBe('application/octet-stream');
    }
    expect(exported).toBeGreaterThan(30);
  });

  test('an event log has the type of its format', async () => {
    const quote = memberOf(caseOf('v4-gcp-cos113'));
    for (const [log, type] of [
      [Buffer.from('[]'), 'application/json'],
      [Buffer.alloc(70, 1), 'application/octet-stream'],
    ] as const) {
      const input = stripped({ ...quote, event_log: log.toString('base64') });
      expect(recordsOf(await exportCmw(input))['cpu0.event_log']).toEqual({ type, bytes: log, ind: 4 });
    }
  });
});

describe('is refused with a code', () => {
  const row = (what: string, input: unknown, code: FailureCode | undefined) => ({ what, input, code });
  const cpu = (change: object) => ({ ...good, cpu: { ...good.cpu, ...change } });
  const list = (hex: string) => ({
    ...alone(tdxSession),
    collateral: { ...(tdxSession.cpu.collateral as object), pck_crl: hex },
  });
  const { evidence: _, cpu: _cpu, ...token } = good;
  const bare = { ...token, evidence: good.evidence };

  test.each([
    row('what is no JSON', '{', 'not_json'),
    row('what is no attestation', '{"a":1}', 'not_an_attestation'),
    row('a number', 17, 'not_an_attestation'),
    row('a member that stands twice', JSON.stringify(good).replace('{', '{"nonce":"x",'), 'not_an_attestation'),
    row(
      'a member of a session that stands twice',
      JSON.stringify(alone(session)).replace('{', '{"report":"AAAA",'),
      'cpu_malformed',
    ),
    row('a stream without one', new TextEncoder().encode('data: {}\n\n'), 'not_an_attestation'),
    row('a token alone', token, 'evidence_missing'),
    row('an answer without a processor', bare, undefined),
    row(
      'the short form',
      { ...bare, cpu: { statement_sha256: statementDigest(session), signature: good.cpu.signature } },
      'cpu_missing',
    ),
    row('a type that is not known', cpu({ type: 'SEV_ES' }), 'cpu_unsupported'),
    row('a report that is cut off', cpu({ report: 'AAAA' }), 'cpu_malformed'),
    row('a statement that is not exact', cpu({ statement: `${good.cpu.statement} ` }), 'cpu_malformed'),
    row('a session without devices', { ...alone(session), gpu: [] }, 'not_an_attestation'),
    row(
      'a session with an answer’s signature',
      { ...alone(session), signature: signAnswer(session, good) },
      'cpu_malformed',
    ),
    row(
      'evidence that is no base64',
      { ...bare, evidence: [{ ...good.evidence[0], report: 'A===' }] },
      'evidence_malformed',
    ),
    row('a revocation list that is no hex', list('xy'), undefined),
    row('a part over our own limit', list('00'.repeat(1024 * 1024 + 1)), 'cpu_malformed'),
  ])('$what', async ({ input, code }) => {
    expect(await refusal(input)).toBe(code);
  });

  test('more than the caller’s limits', async () => {
    const code = (limits: object) => exportCmw(JSON.stringify(good), limits).then(String, ({ code: of }) => of);
    expect(await code({ maxCharacters: 100 })).toBe('too_large');
    expect(await code({ maxValues: 3 })).toBe('too_large');
  });

  test('whatever byte is another: there is a code, or the whole of it', async () => {
    const texts = [JSON.stringify(good), JSON.stringify(alone(tdxSession))];
    for (const text of texts)
      for (let at = 0; at < text.length; at += Math.ceil(text.length / 120)) {
        const changed = `${text.slice(0, at)}${String.fromCharCode(text.charCodeAt(at) ^ 1)}${text.slice(at + 1)}`;
        // `refusal` throws what has none.
        expect([at, (await refusal(changed)) ?? '']).toEqual([at, expect.any(String)]);
      }
  });

  test('nothing else: what is exported is not verified', async () => {
    const forged = cpu({ signature: Buffer.alloc(64).toString('base64') });
    expect(await refusal(forged)).toBeUndefined();
  });
});
