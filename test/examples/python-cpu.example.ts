// cpu_verify.py, written from docs/attestation.md alone, beside our own verifier: the same verdicts on genuine CPU evidence and on sessions.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeSnpReport, snpMember } from '../../sidecar/cpu/simulated/snp.ts';
import { makeQuote } from '../../sidecar/cpu/simulated/tdx.ts';
import {
  appraiseCpu,
  appraiseSession,
  type CpuPolicy,
  type CpuReference,
  type CpuVerifyOptions,
  type VerifiedSession,
  verifySession,
} from '../../verify/cpu/index.ts';
import { appraiseAttestation, type Check } from '../../verify/index.ts';
import { vectorsPresent } from '../vectors.ts';
import { bytesOf, type Case, caseOf, cases, memberOf, optionsOf } from '../verify/cpu/cases.ts';
import { AT, a, attestInBatch, b, EXCHANGE, SECONDS, simulatedRoot } from '../verify/maker.ts';
import {
  amd,
  answerIn,
  intel,
  type MadeSession,
  makeSession,
  processorRoots,
  signAnswer,
  snpLeaf,
  statementDigest,
  tdx,
} from '../verify/session-maker.ts';
import { base64, CONFIG, collateral, dstackEvent, HOST, listOf, ownOf, pck, sha256, tdxOf } from './cpu-guests.ts';
import {
  DIGEST,
  FILE,
  GENUINE,
  LABEL,
  LISTED,
  MADE,
  OTHER,
  OTHER_GUEST,
  OTHER_LAUNCH,
  RIGHT,
  UNLISTED,
  UNUSABLE,
  USABLE,
} from './cpu-references.ts';
import { python, SKIPPED } from './python.ts';

const DRIVER = fileURLToPath(new URL('cpu_verify.py', import.meta.url));
/** Files that hold the pinned roots. */
const ROOTS = ['ask_ark_milan', 'ask_ark_genoa', 'ask_ark_turin_vcek', 'intel_sgx_root'].map((name) =>
  fileURLToPath(new URL(`../../../shared/vectors/cpu/roots/${name}.pem`, import.meta.url)),
);

/** A check as both say it. */
type Verdict = readonly [name: string, status: string, code: string | null];
interface Heard {
  readonly checks: readonly Verdict[];
  readonly tcb_status?: string | null;
  /** Why the reference cannot be used; then there are no checks. */
  readonly unusable?: string;
}

let child: ChildProcessWithoutNullStreams;
let lines: AsyncIterator<string>;
async function hear(): Promise<string> {
  const line = await lines.next();
  if (line.done) throw new Error('cpu_verify.py ended');
  return line.value;
}
async function ask(question: object): Promise<Heard> {
  child.stdin.write(`${JSON.stringify(question)}\n`);
  return JSON.parse(await hear());
}

const verdicts = (checks: readonly Check[]): Verdict[] =>
  checks.map(({ name, status, code }) => [name, status, code ?? null]);
const said = (found: Verdict | undefined): string => (found === undefined ? 'valid' : `${found[0]} ${found[2]}`);
/** The first check that failed, or of `only` whether it did. */
const verdict = (checks: readonly Verdict[], only?: string): string =>
  said(checks.find(([name, status]) => status === 'fail' && (only === undefined || name === only)));

/** Both verifiers over one text. */
async function both(text: string, options: CpuVerifyOptions & { at: Date }) {
  const { claims, checks } = await appraiseCpu(text, options);
  const theirs = await ask({
    member: text,
    at: options.at.toISOString(),
    policy: options.policy,
    without_revocation: options.without?.revocation ?? false,
    extra_roots: options.simulatedRoots ?? null,
    expected_report_data: options.expected?.reportData ?? null,
    reference: options.reference ?? null,
  });
  return { ours: verdicts(checks), python: theirs.checks, status: [claims?.tcb_status ?? null, theirs.tcb_status] };
}

/** One byte becomes another one, -1 none. */
const flip = (at: number) => (bytes: Buffer) => {
  if (at >= 0) bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
};

/** Where the SHA-384 digest of a CCEL's last event begins. */
function lastDigest(log: Buffer): number {
  const sizes: Readonly<Record<number, number>> = { 4: 20, 11: 32, 12: 48 };
  let found = -1;
  for (let at = 32 + log.readUInt32LE(28); at + 4 <= log.length && log.readUInt32LE(at) !== 0xffffffff; ) {
    let next = at + 12;
    for (let left = log.readUInt32LE(at + 8); left > 0; left--) {
      const algorithm = log.readUInt16LE(next);
      if (algorithm === 12) found = next + 2;
      next += 2 + (sizes[algorithm] ?? Number.NaN);
    }
    at = next + 4 + log.readUInt32LE(next);
  }
  return found;
}

/** A case as text and options, and the one check that its verdict is of, where it is of one alone (docs/attestation.md §7.11). */
function questionOf(one: Case): readonly [text: string, options: CpuVerifyOptions & { at: Date }, only?: string] {
  const options = { ...optionsOf(one), at: new Date(one.at) };
  if (one.kind === 'software') {
    const launch = sha256(bytesOf(one, 'policy')).toString('hex');
    const measurement = [bytesOf(one, 'report').toString('hex', 0x90, 0xc0)];
    const reference = listOf([{ type: 'SEV_SNP', measurement, launch_in: 'host_data' }], launch);
    return [JSON.stringify(memberOf(caseOf('milan-v2-aci'))), { ...options, reference }, 'cpu_software'];
  }
  if (one.kind === 'eventlog') {
    const log = bytesOf(one, 'log');
    if (one.mutate?.some(({ note }) => note !== undefined))
      log.writeUInt8(log.readUInt8(lastDigest(log)) ^ 1, lastDigest(log));
    const member = { type: 'TDX', report: base64(bytesOf(one, 'quote')), event_log: base64(log) };
    return [JSON.stringify(member), options, 'cpu_software'];
  }
  return [JSON.stringify(memberOf(one)), options];
}

describe.skipIf(python === null)(`cpu_verify.py${SKIPPED}`, () => {
  beforeAll(async () => {
    child = spawn(python ?? '', [DRIVER, ...(vectorsPresent ? ROOTS : [])], {
      env: { PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: '1' },
    });
    lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stderr.pipe(process.stderr);
    expect(await hear()).toBe('ready');
  }, 60_000);
  afterAll(() => void child?.kill());

  describe.skipIf(!vectorsPresent)('genuine evidence, under the roots of AMD and Intel', () => {
    const table: string[][] = [['vector', 'expected', 'ours', 'Python']];
    afterAll(() => {
      const widths = [0, 1, 2, 3].map((column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
      console.log(table.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')).join('\n'));
    });

    it('is of 55 cases', () => expect(cases).toHaveLength(55));

    it.each(cases)('$id', async (one) => {
      const [text, options, only] = questionOf(one);
      const { valid, failed_check, code, checks, tcb_status } = one.expect;
      const expected = valid ? 'valid' : `${failed_check} ${code}`;
      const { ours, python, status } = await both(text, options);
      table.push([one.id, expected, verdict(ours, only), verdict(python, only)]);
      expect([verdict(ours, only), verdict(python, only)]).toEqual([expected, expected]);
      expect(python).toEqual(ours);
      expect(status[1]).toBe(status[0]);
      if (tcb_status !== undefined) expect(status[1]).toBe(tcb_status);
      for (const [name, right] of Object.entries(checks ?? {}))
        expect(python).toContainEqual([name, name === 'cpu_software' ? expect.anything() : right, null]);
    });

    /** Every `step`th byte of what a member holds is another one. */
    const CHANGED = [
      ['turin-v5-caci', 'report', 23],
      ['milan-v2', 'certificates', 31],
      ['v4-uptodate', 'report', 47],
      ['v5-uptodate', 'report', 61],
      ['snp-milan-v1', 'report', 29],
      ['tdx-v2', 'quote', 97],
    ] as const;
    it.each(CHANGED)(
      '%s: refuses by the same checks, whichever byte of its %s is another one',
      async (id, name, step) => {
        const one = caseOf(id);
        const member = memberOf(one);
        const bytes = Buffer.from(member[name] ?? '', 'base64');
        let refused = 0;
        for (let at = 0; at < bytes.length; at += step) {
          const changed = Uint8Array.from(bytes);
          changed[at] = (changed[at] ?? 0) ^ 1;
          const text = JSON.stringify({ ...member, [name]: base64(changed) });
          const { ours, python } = await both(text, { ...optionsOf(one), at: new Date(one.at) });
          expect([at, python]).toEqual([at, ours]);
          if (verdict(ours) !== 'valid') refused++;
        }
        expect(refused).toBeGreaterThan(20);
      },
    );
  });

  describe.skipIf(!vectorsPresent)('genuine guests among reference values', () => {
    /** What both say of a guest and of its launch file. */
    async function said(text: string, options: CpuVerifyOptions & { at: Date }): Promise<string> {
      const { ours, python } = await both(text, options);
      expect(python).toEqual(ours);
      const of = (name: string) => ours.find(([one]) => one === name);
      return ['cpu_measurement', 'cpu_software'].map((name) => of(name)?.[2] ?? of(name)?.[1]).join(', ');
    }
    for (const [id, name, expected, guests, label] of GENUINE)
      it(`${id}: ${name}: ${expected}`, async () => {
        const [text, options] = questionOf(caseOf(id));
        const [own, digest] = ownOf(JSON.parse(text));
        const reference = listOf([guests(own)].flat(), 'ef'.repeat(32), label ?? digest);
        expect(await said(text, { ...options, reference })).toBe(expected);
      });

    const TAMPERED = ['cd'.repeat(32)];
    it.each([
      ['a log', 'skip, pass', '[]', []],
      ['another log', 'skip, event_log_mismatch', '[{}]', []],
      ['a log, behind no vTPM', 'skip, skip', '[]', TAMPERED],
      ['another log, behind no vTPM', 'skip, skip', '[{}]', TAMPERED],
    ] as const)('tdx-v2, and no list: %s: %s', async (_, expected, log, pcrs) => {
      const [text, options] = questionOf(caseOf('tdx-v2'));
      const member = { ...JSON.parse(text), event_log: base64(Buffer.from(log)) };
      member.tpm.pcrs.splice(0, pcrs.length, ...pcrs);
      expect(await said(JSON.stringify(member), options)).toBe(expected);
    });
  });

  describe('a list of reference values', () => {
    const member = JSON.stringify(snpMember(makeSnpReport('Genoa', snpLeaf), [snpLeaf, amd.ask]));
    const rows = [...USABLE.map((row) => [true, ...row] as const), ...UNUSABLE.map((row) => [false, ...row] as const)];
    it.each(rows)('can be used, %s: %s', async (can, _, given) => {
      const text = typeof given === 'string' ? given : JSON.stringify(given);
      for (const reference of given === text ? [text] : [text, given]) {
        const options = { at: AT, reference: reference as CpuReference };
        const ours = await appraiseCpu(member, options).catch((error) => error);
        const { unusable } = await ask({ member, at: AT.toISOString(), reference });
        const refused = [ours instanceof TypeError, unusable !== undefined];
        expect(refused).toEqual(can ? [false, false] : [true, true]);
      }
    });
  });

  describe('sessions, under simulated roots', () => {
    interface Told {
      readonly at?: Date;
      readonly policy?: CpuPolicy;
      readonly challenge?: string;
      readonly session?: VerifiedSession;
      readonly reference?: CpuReference;
      /** A session by itself. */
      readonly alone?: true;
    }
    const REFUSED = 'cpu_mode cpu_policy_refused';
    const CHALLENGE = 'ab'.repeat(32);
    /** Of the answer. */
    const TIME = EXCHANGE.timestamp;
    const LATER = new Date(AT.getTime() + 50 * 365 * 86_400_000);
    const OF_CPU = /^(cpu_|raw_hash)/;

    function optionsOf({ at = AT, policy, challenge, session, reference }: Told) {
      return {
        at,
        simulatedRoot: simulatedRoot + processorRoots,
        without: { referenceValues: true, revocation: true },
        cpu: { policy, reference },
        expected: { challenge },
        session,
      };
    }
    /** What both say of the processor and the session; not of the GPU, nor of the token. */
    async function said(input: unknown, told: Told): Promise<string> {
      const text = typeof input === 'string' ? input : JSON.stringify(input);
      const appraise = told.alone ? appraiseSession : appraiseAttestation;
      const ours = verdicts((await appraise(text, optionsOf(told))).checks).filter(([name]) => OF_CPU.test(name));
      const { checks } = await ask({
        [told.alone ? 'session_alone' : 'attestation']: text,
        at: (told.at ?? AT).toISOString(),
        policy: told.policy,
        without_revocation: true,
        extra_roots: processorRoots,
        session: told.session?.statement ?? null,
        challenge: told.challenge ?? null,
        reference: told.reference ?? null,
      });
      const python = checks.filter(([name]) => OF_CPU.test(name));
      expect(python).toEqual(ours);
      return verdict(ours);
    }
    const alone = ({ cpu, gpu }: MadeSession, change: object = {}) => ({ ...cpu, gpu, ...change });

    let one: MadeSession;
    let other: MadeSession;
    beforeAll(async () => {
      one = await makeSession();
      other = await makeSession();
    });
    /** An answer in the session, with other members of `cpu`. */
    const answer = async (change: Record<string, unknown> = {}, session = one) => {
      const made = await answerIn(session);
      return { ...made, cpu: { ...made.cpu, ...change } };
    };
    const stated = async (statement: Record<string, unknown>) => answerIn(await makeSession({ statement }));
    const written = async (text: (text: string) => string) => answerIn(await makeSession({ text }));
    const held = async (): Promise<VerifiedSession> =>
      (await verifySession(JSON.stringify(alone(one)), optionsOf({}))).session;
    const shortOf = ({ cpu, ...made }: Awaited<ReturnType<typeof answerIn>>, change: object = {}) => ({
      ...made,
      cpu: { statement_sha256: statementDigest(one), signature: cpu.signature, ...change },
    });
    const short = async (change: object = {}) => shortOf(await answerIn(one), change);
    /** How a statement names the device. */
    const named = async (): Promise<string> => JSON.parse(one.statement).devices[0];
    const launched = async (file: string, given = file) => {
      const launch = sha256(file).toString('hex');
      return answer({ launch: given }, await makeSession({ statement: { launch } }));
    };

    /** One of 13 answers under a nonce, with other members of `batch`; the session's key signs what `over` gives. */
    const batched = async (change: object | null = {}, over?: (nonce: string) => string) => {
      const { batch, ...made } = await attestInBatch(13, 6);
      const nonce = over?.(made.nonce) ?? sha256(made.raw).toString('hex');
      const cpu = { ...one.cpu, signature: signAnswer(one, { ...made, nonce }) };
      return { ...made, cpu, batch: change === null ? null : { ...batch, ...change } };
    };
    const withPath = async (change: (path: readonly string[]) => unknown) => {
      const right = await batched();
      return { ...right, batch: { ...right.batch, path: change(right.batch?.path ?? []) } };
    };

    const MALFORMED = 'cpu_form cpu_malformed';
    const BATCH = 'raw_hash batch_malformed';
    const PROOF = 'raw_hash batch_proof_invalid';
    const BINDING = 'cpu_binding cpu_binding_mismatch';
    const EXPIRED = 'cpu_binding session_expired';
    const DEVICES = 'cpu_devices cpu_devices_mismatch';
    const ANSWER = 'cpu_answer answer_signature_invalid';
    type Row = readonly [name: string, verdict: string, input: () => Promise<unknown>, told?: Told];
    const ANSWERS: readonly Row[] = [
      ['an answer, SEV-SNP', RIGHT, () => answer()],
      ['an answer, TDX', RIGHT, async () => answerIn(await makeSession({ processor: tdx }))],
      ['of one of two devices', RIGHT, async () => answerIn(await makeSession({ devices: [a, b] }))],
      ['of two devices', RIGHT, async () => answerIn(await makeSession({ devices: [a, b] }), EXCHANGE, [b, a])],
      [
        'another session’s signature',
        ANSWER,
        async () => answer({ signature: (await answer({}, other)).cpu.signature }),
      ],
      ['zeros for a signature', ANSWER, () => answer({ signature: base64(new Uint8Array(64)) })],
      ['a signature of 63 bytes', MALFORMED, () => answer({ signature: base64(new Uint8Array(63)) })],
      ['no signature', MALFORMED, () => answer({ signature: undefined })],
      [
        'another answer’s evidence',
        ANSWER,
        async () => ({ ...(await answer()), evidence: (await answerIn(one)).evidence }),
      ],
      ['another statement', BINDING, () => answer({ statement: other.statement })],
      ['another report', BINDING, () => answer({ report: other.cpu.report })],
      ['other GPU evidence at its start', BINDING, () => answer({ gpu_sha256: other.cpu.gpu_sha256 })],
      [
        'report data of zeros',
        BINDING,
        async () => answerIn(await makeSession({ reportData: () => Buffer.alloc(64) })),
      ],
      [
        'more behind D',
        BINDING,
        async () => answerIn(await makeSession({ reportData: (d) => Buffer.from(d).fill(1, 63) })),
      ],
      ['another device', DEVICES, () => answerIn(one, EXCHANGE, [b])],
      ['a device more', DEVICES, () => answerIn(one, EXCHANGE, [a, b])],
      ['not yet', EXPIRED, () => stated({ not_before: TIME + 1, not_after: TIME + 600 })],
      ['from then on', RIGHT, () => stated({ not_before: TIME, not_after: TIME + 3_600 })],
      ['up to then', RIGHT, () => stated({ not_before: TIME - 3_600, not_after: TIME })],
      ['no more', EXPIRED, () => stated({ not_before: TIME - 3_600, not_after: TIME - 1 })],
      ['for longer than an hour', MALFORMED, () => stated({ not_before: TIME, not_after: TIME + 3_601 })],
      ['for no time', MALFORMED, () => stated({ not_before: TIME, not_after: TIME })],
      ['before 1970', MALFORMED, () => stated({ not_before: -1, not_after: 9 })],
      ['another purpose', MALFORMED, () => stated({ purpose: 'countersign.session.v2' })],
      ['a member more', MALFORMED, () => stated({ more: 1 })],
      ['no device', MALFORMED, () => stated({ devices: [] })],
      [
        '64 devices, one of them this',
        RIGHT,
        async () => stated({ devices: [...Array(63).fill(CHALLENGE), await named()] }),
      ],
      ['65 devices', MALFORMED, async () => stated({ devices: Array(65).fill(await named()) })],
      ['reserved members in use', RIGHT, () => stated({ tls: Array(16).fill(CHALLENGE), hpke: 'AAAA' })],
      ['17 of them', MALFORMED, () => stated({ tls: Array(17).fill(CHALLENGE) })],
      ['an empty one', MALFORMED, () => stated({ hpke: '' })],
      ['a key that is none', ANSWER, () => stated({ key: 'AAAA' })],
      ['white space behind the statement', MALFORMED, () => written((text) => `${text} `)],
      ['white space in it', MALFORMED, () => written((text) => text.replace(',', ', '))],
      ['an escape in it', MALFORMED, () => written((text) => text.replace('"p', '"\\u0070'))],
      ['a member twice', MALFORMED, () => written((text) => text.replace('{', '{"hpke":null,'))],
      ['a time as 1e9', MALFORMED, () => written((text) => text.replace(/"not_after":\d+/, '"not_after":1e9'))],
      ['another order', MALFORMED, () => written((text) => text.replace(/("tls":.*?),("hpke":null)/, '$2,$1'))],
      ['a challenge that nobody asked for', RIGHT, () => stated({ challenge: CHALLENGE })],
      ['the challenge', RIGHT, () => stated({ challenge: CHALLENGE }), { challenge: CHALLENGE }],
      ['another challenge', BINDING, () => stated({ challenge: CHALLENGE }), { challenge: 'cd'.repeat(32) }],
      ['no challenge', BINDING, () => answer(), { challenge: CHALLENGE }],
      ['a launch file', RIGHT, async () => launched('{"é":1}')],
      ['another launch file', MALFORMED, async () => launched('{"é":1}', '{"é":2}')],
      ['one where none is named', MALFORMED, () => answer({ launch: '' })],
      ['the evidence of the GPUs beside it', MALFORMED, () => answer({ gpu: one.gpu })],
      ['a member that nobody knows', MALFORMED, () => answer({ more: 1 })],
      ['null for a member', MALFORMED, () => answer({ launch: null })],
      ['another type', 'cpu_form cpu_unsupported', () => answer({ type: 'SEV' })],
      ['another product than is accepted', REFUSED, () => answer(), { policy: { products: ['Turin'] } }],
      ['later, when the certificates have ended', 'cpu_chain certificate_expired', () => answer(), { at: LATER }],
    ];
    const BATCHED: readonly Row[] = [
      ['one of thirteen', RIGHT, () => batched()],
      ['of which the key signed the nonce', ANSWER, () => batched({}, (nonce) => nonce)],
      ['with a place as 6.0', RIGHT, async () => JSON.stringify(await batched()).replace('x":6,', 'x":6.0,')],
      ['with a size as 13e0', RIGHT, async () => JSON.stringify(await batched()).replace(':13,', ':13e0,')],
      ['with a size as 1e400', BATCH, async () => JSON.stringify(await batched()).replace(':13,', ':1e400,')],
      ['of another place', PROOF, () => batched({ leaf_index: 7 })],
      ['of another size', PROOF, () => batched({ tree_size: 14 })],
      ['of another salt', PROOF, () => batched({ salt: CHALLENGE })],
      ['of a place that is no number', BATCH, () => batched({ leaf_index: true })],
      ['of a place behind the last', BATCH, () => batched({ leaf_index: 13 })],
      ['of a size whose path is longer', BATCH, () => batched({ tree_size: 17 })],
      ['with a member more', BATCH, () => batched({ root: CHALLENGE })],
      ['with a member of null', BATCH, () => batched({ salt: null })],
      ['of null', BATCH, () => batched(null)],
      ['with its path turned round', PROOF, () => withPath((path) => path.toReversed())],
      ['with a shorter path', BATCH, () => withPath((path) => path.slice(1))],
      ['with a longer path', BATCH, () => withPath((path) => [...path, CHALLENGE])],
      ['with a path of capital letters', BATCH, () => withPath((path) => path.map((hash) => `${hash.slice(1)}A`))],
      ['without batch', 'raw_hash raw_hash_mismatch', async () => ({ ...(await batched()), batch: undefined })],
      ['with a batch that it is not of', PROOF, async () => ({ ...(await answer()), batch: (await batched()).batch })],
    ];
    const ALONE: readonly Row[] = [
      ['by itself', RIGHT, async () => alone(one)],
      ['without gpu_sha256', RIGHT, async () => alone(one, { gpu_sha256: undefined })],
      ['with another gpu_sha256', MALFORMED, async () => alone(one, { gpu_sha256: other.cpu.gpu_sha256 })],
      ['with other evidence', MALFORMED, async () => alone(one, { gpu: other.gpu })],
      ['with other evidence and no hash', BINDING, async () => alone(one, { gpu: other.gpu, gpu_sha256: undefined })],
      ['with a signature', MALFORMED, async () => alone(one, { signature: (await answer()).cpu.signature })],
      ['of another device', DEVICES, async () => alone(await makeSession({ statement: { devices: [CHALLENGE] } }))],
      ['at its end', RIGHT, async () => alone(one), { at: new Date((SECONDS + 3_000) * 1_000 + 999) }],
      ['behind its end', EXPIRED, async () => alone(one), { at: new Date((SECONDS + 3_001) * 1_000) }],
      ['before it', EXPIRED, async () => alone(one), { at: new Date((SECONDS - 600) * 1_000 - 1) }],
      ['with no challenge', BINDING, async () => alone(one), { challenge: CHALLENGE }],
    ];
    const SHORT: readonly Row[] = [
      ['beside its session', RIGHT, () => short()],
      ['of another session', 'cpu_form cpu_missing', () => short({ statement_sha256: statementDigest(other) })],
      ['with another signature', ANSWER, async () => short({ signature: (await answer({}, other)).cpu.signature })],
      ['with more', MALFORMED, () => short({ launch: '' })],
      ['of another device', DEVICES, async () => shortOf(await answerIn(one, EXCHANGE, [b]))],
    ];
    for (const [name, expected, input, told = {}] of ANSWERS)
      it(`an answer: ${name}: ${expected}`, async () => expect(await said(await input(), told)).toBe(expected));
    for (const [name, expected, input] of BATCHED)
      it(`a batched answer ${name}: ${expected}`, async () => expect(await said(await input(), {})).toBe(expected));
    for (const [name, expected, input, told = {}] of ALONE)
      it(`a session ${name}: ${expected}`, async () =>
        expect(await said(await input(), { ...told, alone: true })).toBe(expected));
    for (const [name, expected, input] of SHORT)
      it(`the short form ${name}: ${expected}`, async () =>
        expect(await said(await input(), { session: await held() })).toBe(expected));
    it('the short form without a session', async () =>
      expect(await said(await short(), {})).toBe('cpu_form cpu_missing'));

    for (const [name, expected, processor, guest, launch = null] of MADE)
      it(`a guest and its launch file: ${name}: ${expected}`, async () => {
        const session = await makeSession({ processor, statement: { launch } });
        const [own] = ownOf(session.cpu as Record<string, string>);
        const reference = listOf([{ ...own, ...guest }], LISTED, DIGEST);
        expect(await said(await answerIn(session), { reference })).toBe(expected);
        expect(await said(alone(session), { reference, alone: true })).toBe(expected);
      });
    it('a launch file that nobody asks for', async () => {
      const processor = tdxOf(LABEL, [dstackEvent(3, 'countersign-launch', FILE)]);
      const session = await makeSession({ processor, statement: { launch: UNLISTED } });
      expect(await said(await answerIn(session), {})).toBe(RIGHT);
    });
    it('the short form, whatever is known', async () => {
      const reference = listOf([{ type: 'SEV_SNP', measurement: OTHER, ...HOST }], DIGEST);
      expect(await said(await short(), { session: await held(), reference })).toBe(RIGHT);
    });

    /** Evidence in which one byte is another one, before the processor signs it. */
    const SIGNED = [
      [
        'SEV-SNP',
        HOST,
        [0x28, 0x118, 7],
        (at: number) =>
          snpMember(makeSnpReport('Genoa', snpLeaf, { hostData: FILE, edit: flip(at) }), [snpLeaf, amd.ask]),
      ],
      [
        'TDX',
        CONFIG,
        [112, 616, 11],
        (at: number) => ({
          type: 'TDX',
          report: base64(makeQuote(intel, pck, { mrConfigId: LABEL, editBody: flip(at) })),
          collateral,
        }),
      ],
    ] as const;
    it.each(SIGNED)('%s: is known by the same bytes', async (_, place, [from, to, step], memberAt) => {
      const [own] = ownOf(memberAt(-1) as unknown as Record<string, string>);
      const reference = listOf([{ ...own, ...place }], DIGEST);
      const options = { at: AT, simulatedRoots: processorRoots, without: { revocation: true }, reference };
      const found = new Set<string>();
      for (let at = from; at < to; at += step) {
        const { ours, python } = await both(JSON.stringify(memberAt(at)), options);
        expect([at, python]).toEqual([at, ours]);
        found.add(verdict(ours));
      }
      expect([...found]).toEqual(expect.arrayContaining([RIGHT, OTHER_GUEST, OTHER_LAUNCH]));
    });
  });
});
