// cpu_verify.py beside our own verifier: the same verdicts on sessions, and on answers in them, under simulated roots.
import { beforeAll, describe, expect, it } from 'vitest';
import { makeSnpReport, snpMember } from '../../sidecar/cpu/simulated/snp.ts';
import { makeQuote } from '../../sidecar/cpu/simulated/tdx.ts';
import {
  appraiseSession,
  type CpuPolicy,
  type CpuReference,
  type VerifiedSession,
  verifySession,
} from '../../verify/cpu.ts';
import { appraiseAttestation } from '../../verify/index.ts';
import { LAUNCH } from '../support/launch-file.ts';
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
  LABEL,
  LISTED,
  MADE,
  OTHER,
  OTHER_GUEST,
  OTHER_LAUNCH,
  RIGHT,
  UNLISTED,
} from './cpu-references.ts';
import { ask, both, runPython, verdict, verdicts } from './cpu-verifiers.ts';
import { python, SKIPPED } from './python.ts';

/** One byte becomes another one, -1 none. */
const flip = (at: number) => (bytes: Buffer) => {
  if (at >= 0) bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
};

describe.skipIf(python === null)(`cpu_verify.py${SKIPPED}`, () => {
  runPython();

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
      const { batch, ...made } = await attestInBatch(13, 6, { ...EXCHANGE, session: statementDigest(one) });
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
    const OLD = 'cpu_tcb tcb_not_accepted';
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
      ['a launch file', RIGHT, async () => launched(LAUNCH)],
      ['another launch file', MALFORMED, async () => launched(LAUNCH, `${LAUNCH} `)],
      ['one of another form', MALFORMED, async () => launched('{"é":1}')],
      ['one with white space', MALFORMED, async () => launched(`${LAUNCH} `)],
      [
        'one of another order',
        MALFORMED,
        async () => launched(LAUNCH.replace(/"login":false,("operator":null)/, '$1,"login":false')),
      ],
      ['one without a sidecar', MALFORMED, async () => launched(LAUNCH.replace('"sidecar"', '"sidecar2"'))],
      ['one where none is named', MALFORMED, () => answer({ launch: '' })],
      ['the evidence of the GPUs beside it', MALFORMED, () => answer({ gpu: one.gpu })],
      ['a member that nobody knows', MALFORMED, () => answer({ more: 1 })],
      ['null for a member', MALFORMED, () => answer({ launch: null })],
      ['another type', 'cpu_form cpu_unsupported', () => answer({ type: 'SEV' })],
      ['another product than is accepted', REFUSED, () => answer(), { policy: { products: ['Turin'] } }],
      ['another chip than is accepted', REFUSED, () => answer(), { policy: { chips: ['c2'.repeat(64)] } }],
      ['the chip that is accepted', RIGHT, () => answer(), { policy: { chips: ['c1'.repeat(64)] } }],
      ['SMT, where it must be off', REFUSED, () => answer(), { policy: { requireSmtOff: true } }],
      ['no ciphertext hiding', REFUSED, () => answer(), { policy: { requireCiphertextHiding: true } }],
      ['an alias check', RIGHT, () => answer(), { policy: { requireAliasCheck: true } }],
      ['older firmware', OLD, () => answer(), { policy: { minTcb: { Genoa: { snp: 28 } } } }],
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
      [
        'of a device more than signed',
        'cpu_form cpu_devices_mismatch',
        async () => alone(await makeSession({ statement: { devices: [await named(), CHALLENGE] } })),
      ],
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
