// Exports: the bytes in them are the evidence's own, in the form that others' texts ask for; a second implementation of both forms' rules.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { CMW_TYPES, type CmwCollection, type CvmClaims, exportCmw, exportCvm1 } from '../../../verify/forms/export.ts';
import type { FailureCode } from '../../../verify/index.ts';
import { LAUNCH, LAUNCH_SHA256 } from '../../support/launch-file.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { bytesOf, caseOf, type Member, memberOf, ofKind } from '../cpu/cases.ts';
import { a, b, RESPONSE, streamed, transcript } from '../maker.ts';
import {
  type Answer,
  answerIn,
  digestOf,
  type MadeSession,
  makeSession,
  signAnswer,
  statementDigest,
  tdx,
} from '../session-maker.ts';

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

const D = ({ statement, gpu }: MadeSession) => sha256('countersign/session/v1\0', sha256(statement), digestOf(gpu));
const alone = ({ cpu, gpu }: MadeSession) => ({ ...cpu, gpu });

const refusals = async (input: unknown): Promise<(FailureCode | undefined)[]> =>
  Promise.all(
    [exportCmw, exportCvm1].map((run) =>
      run(input).then(
        () => undefined,
        (error: { code?: FailureCode }) => {
          if (error.code === undefined) throw error;
          return error.code;
        },
      ),
    ),
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
    expect(collection.__cmwc_t).toBe(CMW_TYPES.answer);
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
    expect(collection.__cmwc_t).toBe(CMW_TYPES.session);
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

// The CVM profile's text, §4, as far as its `cpu` and `vtpm` go.

const CPU_CLAIMS = ['cvm_platform', 'cvm_report', 'cvm_binding', 'cvm_endorsements', 'cvm_registers', 'cvm_log'];
const LABELS: Readonly<Record<string, readonly string[]>> = {
  'sev-snp': ['snp.vek', 'snp.crl'],
  tdx: ['tdx.tcb_info', 'tdx.qe_identity', 'tdx.pck_crl', 'tdx.root_crl'],
};
const TYPES: Readonly<Record<string, string>> = {
  'snp.vek': 'application/pkix-cert',
  'snp.crl': 'application/pkix-crl',
  'tdx.tcb_info': 'application/vnd.confidential-ai.pcs-signed+json',
  'tdx.qe_identity': 'application/vnd.confidential-ai.pcs-signed+json',
  'tdx.pck_crl': 'application/pkix-crl',
  'tdx.root_crl': 'application/pkix-crl',
};

interface Register {
  index: number;
  alg: string;
  value: string;
  source: string;
  backing: string;
}

function registersOf(value: unknown, of: Omit<Register, 'index' | 'value'>, bytes: number): Buffer[] {
  return (value as Register[]).map(({ index, value: text, ...rest }, i) => {
    expect([index, rest]).toEqual([i, of]);
    const register = bytesIn(text);
    expect(register.length).toBe(bytes);
    return register;
  });
}

function conforming(claims: CvmClaims, hosting: 'bare' | 'azure') {
  expect(Object.keys(claims)).toEqual(['eat_profile', 'eat_nonce', 'cvm_version', 'submods']);
  expect([claims.eat_profile, claims.cvm_version]).toEqual(['tag:confidential.ai,2026:cvm#1', 1]);
  expect(bytesIn(claims.eat_nonce).length).toBe(32);
  expect(Object.keys(claims.submods)).toEqual(hosting === 'azure' ? ['cpu', 'vtpm'] : ['cpu']);
  const { cpu, vtpm } = claims.submods;
  expect(CPU_CLAIMS).toEqual(expect.arrayContaining(Object.keys(cpu)));
  const { tee, vendor, ...platform } = cpu.cvm_platform as unknown as Record<string, string>;
  expect(platform).toEqual({ hosting });
  expect(vendor).toBe(tee === 'tdx' ? 'intel' : 'amd');
  const type = tee === 'tdx' ? 'tdx-quote' : 'sev-snp-report';
  const [reportType, report, indicator] = cpu.cvm_report as unknown as [string, string, number];
  expect([reportType, indicator]).toEqual([`application/vnd.confidential-ai.${type}`, 4]);
  expect(cpu.cvm_binding).toEqual({
    pattern: 'challenge',
    mode: hosting === 'azure' ? 'vtpm-extradata' : 'report-data',
  });
  const endorsements: Record<string, Buffer> = {};
  if (cpu.cvm_endorsements !== undefined) {
    const { __cmwc_t, ...entries } = cpu.cvm_endorsements as CmwCollection;
    expect(__cmwc_t).toBe('tag:confidential.ai,2026:cvm-endorsements#1');
    for (const [label, { type: of, bytes, ind }] of Object.entries(recordsOf({ __cmwc_t, ...entries }))) {
      expect(LABELS[tee ?? '']).toContain(label);
      expect([of, ind]).toEqual([TYPES[label], 2]);
      endorsements[label] = bytes;
    }
  }
  const rtmr = { alg: 'sha384', source: 'tdx-rtmr', backing: 'hardware' };
  const registers = cpu.cvm_registers === undefined ? null : registersOf(cpu.cvm_registers, rtmr, 48);
  if (tee === 'sev-snp') expect([registers, cpu.cvm_log]).toEqual([null, undefined]);
  return { report: bytesIn(report), endorsements, registers, log: cpu.cvm_log, vtpm, nonce: claims.eat_nonce };
}

describe('claims of the CVM profile', () => {
  test.each([
    ['SEV-SNP', session, good],
    ['TDX', tdxSession, tdxAnswer],
  ] as [string, MadeSession, Answer][])(
    '%s: the nonce is the digest that the report holds, then zeros',
    async (_, made, answer) => {
      for (const input of [answer, alone(made), JSON.stringify(alone(made))]) {
        const { report, nonce, endorsements } = conforming(await exportCvm1(input), 'bare');
        expect(nonce).toBe(D(made).toString('base64url'));
        expect(report).toEqual(fromBase64(made.cpu.report));
        // A quote of version 5, whose body comes behind its type and size.
        const at = made.cpu.type === 'TDX' ? 54 + 520 : 0x50;
        expect(report.subarray(at, at + 64)).toEqual(Buffer.concat([D(made), Buffer.alloc(32)]));
        expect(Object.keys(endorsements)).toEqual(LABELS[made.cpu.type === 'TDX' ? 'tdx' : 'sev-snp']);
      }
    },
  );

  test('hold no GPU, no prompt and no session key', async () => {
    const text = JSON.stringify(await exportCvm1(good));
    for (const [report] of good.evidence.map(({ report }) => [fromBase64(report).toString('base64url')]))
      expect(text).not.toContain(report);
    expect(text).not.toContain('statement');
  });

  test("hold Intel's documents as its service returns them", async () => {
    const { collateral } = tdxSession.cpu as unknown as Member;
    const { endorsements } = conforming(await exportCvm1(tdxAnswer), 'bare');
    for (const [label, of, member] of [
      ['tdx.tcb_info', 'tcb_info', 'tcbInfo'],
      ['tdx.qe_identity', 'qe_identity', 'enclaveIdentity'],
    ] as const) {
      const { body, issuer_chain, ...more } = JSON.parse(String(endorsements[label]));
      expect(more).toEqual({});
      const text = bytesIn(body).toString();
      const { signature, ...document } = JSON.parse(text);
      expect(Object.keys(document)).toEqual([member]);
      expect(signature).toBe(collateral?.[`${of}_signature`]);
      // The signed text itself, at its place.
      expect(text).toBe(`{"${member}":${collateral?.[of]},"signature":"${signature}"}`);
      expect(bytesIn(issuer_chain).toString()).toBe(collateral?.[`${of}_issuer_chain`]);
    }
    expect(endorsements['tdx.pck_crl']?.toString('hex')).toBe(collateral?.pck_crl);
    expect(endorsements['tdx.root_crl']?.toString('hex')).toBe(collateral?.root_ca_crl);
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
      const codes = await refusals(input);
      if (codes[1] !== undefined) {
        expect([one.id, codes]).toEqual([one.id, [one.expect.code, one.expect.code]]);
        continue;
      }
      exported++;
      const isAzure = one.kind.startsWith('az');
      const { report, endorsements, registers, vtpm } = conforming(await exportCvm1(input), isAzure ? 'azure' : 'bare');
      const records = recordsOf(await exportCmw(input));
      expect(records.cpu0?.bytes).toEqual(fromBase64(member.report));
      if (one.kind === 'snp') expect(report).toEqual(bytesOf(one, 'report'));
      if (one.kind === 'tdx') expect(report).toEqual(bytesOf(one, 'quote'));
      if (one.kind === 'az-snp') expect(report).toEqual(fromBase64(member.report).subarray(32, 32 + 1184));
      if (one.kind === 'az-tdx') expect(report).toEqual(fromBase64(member.quote));
      if (one.kind.endsWith('snp')) {
        // The leaf alone: what is above it is pinned there.
        const [first = ''] = fromBase64(member.certificates).toString().split('-----END');
        expect(endorsements['snp.vek']).toEqual(fromBase64(first.split('-----')[2]?.replace(/\s/g, '')));
        expect(records['cpu0.certificates']?.bytes).toEqual(fromBase64(member.certificates));
      } else {
        const body = report.indexOf(Buffer.concat(registers ?? []));
        expect(body).toBeGreaterThan(0);
      }
      if (isAzure) {
        const quote = vtpm?.cvm_tpm_quote as unknown as Record<string, string> & { pcrs: string[] };
        expect(bytesIn(quote.message)).toEqual(fromBase64(member.tpm?.message));
        expect(bytesIn(quote.signature)).toEqual(fromBase64(member.tpm?.signature));
        expect(quote.pcrs.map((pcr) => bytesIn(pcr).toString('hex'))).toEqual(member.tpm?.pcrs);
        expect(quote.bank).toBe('sha256');
        const pcr = { alg: 'sha256', source: 'vtpm-pcr', backing: 'privileged-service' };
        const pcrs = registersOf(vtpm?.cvm_registers, pcr, 32);
        expect(pcrs.map((one) => one.toString('hex'))).toEqual(member.tpm?.pcrs);
        const ak = vtpm?.cvm_tpm_ak as { method: string; data: string } | undefined;
        expect([ak?.method, bytesIn(ak?.data)]).toEqual(['hcl-report', fromBase64(member.report)]);
        expect(JSON.parse(String(records['cpu0.tpm']?.bytes))).toEqual(member.tpm);
        expect(records.cpu0?.type).toBe('application/octet-stream');
      }
    }
    expect(exported).toBeGreaterThan(30);
  });

  test("an event log goes with its registers, by its format's name", async () => {
    const quote = memberOf(caseOf('v4-gcp-cos113'));
    for (const [log, format, type] of [
      [Buffer.from('[]'), 'dstack-json', 'application/json'],
      [Buffer.alloc(70, 1), 'tdx-ccel', 'application/octet-stream'],
    ] as const) {
      const input = stripped({ ...quote, event_log: log.toString('base64') });
      const { log: cvm_log, registers } = conforming(await exportCvm1(input), 'bare');
      expect(cvm_log).toEqual({ format, data: log.toString('base64url') });
      expect(registers?.length).toBe(4);
      expect(recordsOf(await exportCmw(input))['cpu0.event_log']).toEqual({ type, bytes: log, ind: 4 });
    }
  });
});

describe('is refused with a code', () => {
  const row = (what: string, input: unknown, ...codes: (FailureCode | undefined)[]) => ({ what, input, codes });
  const cpu = (change: object) => ({ ...good, cpu: { ...good.cpu, ...change } });
  const list = (hex: string) => ({
    ...alone(tdxSession),
    collateral: { ...(tdxSession.cpu.collateral as object), pck_crl: hex },
  });
  const { evidence: _, cpu: _cpu, ...token } = good;
  const bare = { ...token, evidence: good.evidence };

  test.each([
    row('what is no JSON', '{', 'not_json', 'not_json'),
    row('what is no attestation', '{"a":1}', 'not_an_attestation', 'not_an_attestation'),
    row('a number', 17, 'not_an_attestation', 'not_an_attestation'),
    row(
      'a member that stands twice',
      JSON.stringify(good).replace('{', '{"nonce":"x",'),
      'not_an_attestation',
      'not_an_attestation',
    ),
    row(
      'a member of a session that stands twice',
      JSON.stringify(alone(session)).replace('{', '{"report":"AAAA",'),
      'cpu_malformed',
      'cpu_malformed',
    ),
    row('a stream without one', new TextEncoder().encode('data: {}\n\n'), 'not_an_attestation', 'not_an_attestation'),
    row('a token alone', token, 'evidence_missing', 'cpu_missing'),
    row('an answer without a processor', bare, undefined, 'cpu_missing'),
    row(
      'the short form',
      { ...bare, cpu: { statement_sha256: statementDigest(session), signature: good.cpu.signature } },
      'cpu_missing',
      'cpu_missing',
    ),
    row('a type that is not known', cpu({ type: 'SEV_ES' }), 'cpu_unsupported', 'cpu_unsupported'),
    row('a report that is cut off', cpu({ report: 'AAAA' }), 'cpu_malformed', 'cpu_malformed'),
    row(
      'a statement that is not exact',
      cpu({ statement: `${good.cpu.statement} ` }),
      'cpu_malformed',
      'cpu_malformed',
    ),
    row('a session without devices', { ...alone(session), gpu: [] }, 'not_an_attestation', 'not_an_attestation'),
    row(
      'a session with an answer’s signature',
      { ...alone(session), signature: signAnswer(session, good) },
      'cpu_malformed',
      'cpu_malformed',
    ),
    row(
      'evidence that is no base64',
      { ...bare, evidence: [{ ...good.evidence[0], report: 'A===' }] },
      'evidence_malformed',
      'cpu_missing',
    ),
    row('a revocation list that is no hex', list('xy'), undefined, 'collateral_invalid'),
    row('a part over our own limit', list('00'.repeat(1024 * 1024 + 1)), 'cpu_malformed', 'cpu_malformed'),
  ])('$what', async ({ input, codes }) => {
    expect(await refusals(input)).toEqual(codes);
  });

  test('a part that is within our limits and over the profile’s', async () => {
    const input = list('00'.repeat(1024 * 1024));
    expect(await refusals(input)).toEqual([undefined, undefined]);
    const crl = Buffer.alloc(1024 * 1024 + 1).toString('base64');
    expect(await refusals({ ...alone(session), collateral: { crl } })).toEqual([undefined, 'too_large']);
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
        // `refusals` throws what has none.
        for (const code of await refusals(changed)) expect([at, code ?? '']).toEqual([at, expect.any(String)]);
      }
  });

  test('nothing else: what is exported is not verified', async () => {
    const forged = cpu({ signature: Buffer.alloc(64).toString('base64') });
    expect(await refusals(forged)).toEqual([undefined, undefined]);
  });
});
