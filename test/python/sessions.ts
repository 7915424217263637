// Sessions and answers in them, under simulated roots: right ones, and ones with something wrong that devices and processor signed.
import { createHash } from 'node:crypto';
import { CHIP_ID, makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { makeCollateral, makePck, makeQuote } from '../../demo/twin/tdx.ts';
import type { CpuPolicy } from '../../verify/cpu.ts';
import { LAUNCH_1, LAUNCH as LAUNCH_FILE, launchOf, REFUSED, WEIGHTS } from '../support/launch-file.ts';
import { mutateBytes, mutateText } from '../verify/fuzz/fuzz-bytes.ts';
import { mutateJson } from '../verify/fuzz/fuzz-json.ts';
import { type Random, seeded, seedOf } from '../verify/fuzz/fuzz-random.ts';
import { AT, a, attestInBatch, b, EXCHANGE, SECONDS, simulatedRoot } from '../verify/maker.ts';
import {
  amd,
  answerIn,
  deviceKey,
  intel,
  type MadeSession,
  makeSession,
  type Processor,
  processorRoots,
  type SessionSpec,
  signAnswer,
  snp,
  snpLeaf,
  statementDigest,
  tdx,
} from '../verify/session-maker.ts';
import { behindVtpm, dstackEvent, HOST, listOf, MEASURED, ownOf, RTMR3, snpOf, tdxOf } from './guests.ts';
import { type Options, ours, type Question } from './package.ts';
import { type Expected, knowing, MADE } from './references.ts';

const OPTIONS: Options = { at: AT.toISOString(), simulatedRoot: simulatedRoot + processorRoots };
const WITHOUT: Options = { ...OPTIONS, without: { referenceValues: true, revocation: true } };
const CHALLENGE = 'ab'.repeat(32);
const sha256 = (...parts: readonly (string | Uint8Array)[]) =>
  parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();
const LAUNCH = sha256('a launch file').toString('hex');

/** The session by itself, and an answer in it. */
async function bothOf(name: string, spec: SessionSpec, options: Options = WITHOUT): Promise<Question[]> {
  const session = await makeSession(spec);
  const devices = spec.devices ?? [a];
  return [alone(name, session, {}, options), whole(name, await answerIn(session, EXCHANGE, devices), options)];
}

const alone = (name: string, { cpu, gpu }: MadeSession, change: object = {}, options = WITHOUT): Question => ({
  name: `a session ${name}`,
  call: 'session',
  input: { text: JSON.stringify({ ...cpu, gpu, ...change }) },
  options,
});

const whole = (name: string, answer: object, options = WITHOUT): Question => ({
  name: `an answer ${name}`,
  call: 'attestation',
  input: { text: JSON.stringify(answer) },
  options,
});

const PROCESSORS: readonly (readonly [name: string, processor: Processor])[] = [
  ['of SEV-SNP', snp],
  ['of TDX', tdx],
  ["behind Azure's vTPM", behindVtpm],
  [
    'of TDX with an event log',
    tdxOf(Buffer.alloc(48), [dstackEvent(3, 'countersign-launch', sha256('a launch file'))]),
  ],
];

const accepting = (policy: CpuPolicy): Options => ({ ...WITHOUT, cpu: { policy } });

/** Right ones first. */
export async function sessions(): Promise<Question[]> {
  const session = await makeSession();
  const other = await makeSession();
  const answer = await answerIn(session);
  const changed = (cpu: object) => ({ ...answer, cpu: { ...answer.cpu, ...cpu } });
  const stated = (name: string, statement: Record<string, unknown>, options?: Options) =>
    bothOf(name, { statement }, options);
  const { batch, ...made } = await attestInBatch(13, 6, { ...EXCHANGE, session: statementDigest(session) });
  const batched = (nonce: string) => ({
    ...made,
    batch,
    cpu: { ...session.cpu, signature: signAnswer(session, { ...made, nonce }) },
  });
  const known = (guest: object) => {
    const [own] = ownOf(session.cpu as Record<string, string>);
    return { ...WITHOUT, cpu: { reference: listOf([{ ...own, ...guest }], LAUNCH) } };
  };
  const held = { statement: session.statement, cpu: await claimsOf(session) };
  const { cpu: _, ...rest } = answer;
  const short = (change: object = {}) => ({
    ...rest,
    cpu: { statement_sha256: statementDigest(session), signature: answer.cpu.signature, ...change },
  });
  const shortly = { ...WITHOUT, session: held };
  const launched = async (launch: string) => {
    const made = await answerIn(await makeSession({ statement: { launch: sha256(launch).toString('hex') } }));
    return { ...made, cpu: { ...made.cpu, launch } };
  };
  return [
    ...(await Promise.all(PROCESSORS.map(([name, processor]) => bothOf(name, { processor })))).flat(),
    ...(await bothOf('of two devices', { devices: [a, b] })),
    ...(await bothOf('with every check', {}, OPTIONS)),
    ...(await bothOf('under no root that is named', {}, { at: AT.toISOString() })),
    ...(await bothOf(
      'of a product that is not accepted',
      {},
      { ...WITHOUT, cpu: { policy: { products: ['Turin'] } } },
    )),
    ...(await bothOf('of a chip that is accepted', {}, accepting({ chips: [CHIP_ID.toString('hex')] }))),
    ...(await bothOf('of a chip that is not accepted', {}, accepting({ chips: ['99'.repeat(16)] }))),
    ...(await bothOf('of a platform that is accepted', { processor: tdx }, accepting({ chips: ['99'.repeat(16)] }))),
    ...(await bothOf('of which SMT off is demanded', {}, accepting({ requireSmtOff: true }))),
    ...(await bothOf('of TDX with an alias check', { processor: tdx }, accepting({ requireAliasCheck: true }))),
    ...(await bothOf('of newer firmware', {}, accepting({ minTcb: { Genoa: { snp: 28 } } }))),
    ...(await bothOf('of no least firmware', {}, accepting({ minTcb: { Genoa: {} } }))),
    ...(await bothOf('of a device that is accepted', {}, { ...WITHOUT, policy: { devices: [deviceKey(a)] } })),
    ...(await bothOf('of a device that is not', {}, { ...WITHOUT, policy: { devices: [deviceKey(b)] } })),
    ...(await bothOf('at least measured', {}, { ...WITHOUT, policy: { minLevel: 'measured' } })),
    ...(await bothOf('of zeros for report data', { reportData: () => Buffer.alloc(64) })),
    ...(await bothOf('of another host', { processor: snpOf(Buffer.from(LAUNCH, 'hex')) }, known({}))),
    ...(await bothOf('of a known guest', { processor: snpOf(Buffer.from(LAUNCH, 'hex')) }, known(HOST))),
    ...(await bothOf('of a known and measured guest', { statement: { launch: LAUNCH } }, known(MEASURED))),
    ...(await bothOf('of an unknown guest', {}, known({ ...HOST, measurement: ['00'.repeat(48)] }))),
    ...(await stated(
      'that the challenge is in',
      { challenge: CHALLENGE },
      { ...WITHOUT, expected: { challenge: CHALLENGE } },
    )),
    ...(await stated('without the challenge', {}, { ...WITHOUT, expected: { challenge: CHALLENGE } })),
    ...(await stated('that has not begun', { not_before: SECONDS + 10, not_after: SECONDS + 600 })),
    ...(await stated('that has ended', { not_before: SECONDS - 3_600, not_after: SECONDS - 11 })),
    ...(await stated('of a device that did not sign', { devices: [deviceKey(b), deviceKey(a)] })),
    ...(await stated('of other devices', { devices: [CHALLENGE] })),
    ...(await stated('with a key that is none', { key: 'AAAA' })),
    ...(await stated('with a member more', { more: 1 })),
    alone('with other evidence', session, { gpu: other.gpu }),
    alone('with other evidence and no digest', session, { gpu: other.gpu, gpu_sha256: undefined }),
    alone('with a signature', session, { signature: answer.cpu.signature }),
    whole('with a launch file that it does not name', { ...answer, cpu: { ...answer.cpu, launch: '{}' } }),
    whole('with the launch file', await launched(LAUNCH_FILE)),
    whole('with a launch file of another form', await launched(`${LAUNCH_FILE} `)),
    whole('with another signature', changed({ signature: (await answerIn(other)).cpu.signature })),
    whole('with no signature', changed({ signature: undefined })),
    whole('with another statement', changed({ statement: other.statement })),
    whole('with a number for its statement', changed({ statement: 1 })),
    whole('with a number for its launch file', changed({ launch: 1 })),
    whole('with a digest of no evidence', changed({ gpu_sha256: null })),
    whole('with a processor that is text', { ...answer, cpu: JSON.stringify(answer.cpu) }),
    whole('with the evidence of GPUs', changed({ gpu: session.gpu })),
    whole('of another device', await answerIn(session, EXCHANGE, [b])),
    whole('in a batch', batched(sha256(made.raw).toString('hex'))),
    whole('in a batch, by its nonce', batched(made.nonce)),
    whole('in short', short(), shortly),
    whole('in short, of another session', short({ statement_sha256: statementDigest(other) }), shortly),
    whole('in short, with more', short({ launch: '' }), shortly),
    whole('in short, of no session', short()),
  ];
}

/** Guests that a test makes, among reference values: the session by itself and an answer in it. */
export async function madeGuests(): Promise<Expected[]> {
  const all = MADE.map(async ([name, expected, processor, guest, launch = null]) => {
    const session = await makeSession({ processor, statement: { launch } });
    const options = { ...WITHOUT, cpu: { reference: knowing(session.cpu, guest) } };
    const named = `of a guest: ${name}`;
    const questions = [alone(named, session, {}, options), whole(named, await answerIn(session), options)];
    return questions.map((question): Expected => ({ question, expected }));
  });
  return (await Promise.all(all)).flat();
}

/** Launch files of a guest that is known, and weights that the caller names. */
export async function launches(): Promise<Expected[]> {
  const root = WEIGHTS.verity_root;
  const of = async (name: string, expected: string, launch: string, weights?: unknown, listed = true) => {
    const digest = sha256(launch);
    const spec = { processor: snpOf(digest), statement: { launch: digest.toString('hex') } };
    const made = await makeSession(spec);
    const session = { ...made, cpu: { ...made.cpu, launch } };
    const [own] = ownOf(session.cpu as Record<string, string>);
    const reference = listOf([{ ...own, ...HOST }], digest.toString('hex'));
    const options = { ...WITHOUT, cpu: { weights, ...(listed ? { reference } : {}) } } as Options;
    const named = `of a launch file: ${name}`;
    const questions = [alone(named, session, {}, options), whole(named, await answerIn(session), options)];
    return questions.map((question): Expected => ({ question, expected }));
  };
  const [missing, mismatch] = ['cpu_weights weights_missing', 'cpu_weights weights_mismatch'];
  const all = [
    of('itself', 'valid', LAUNCH_FILE),
    of('of version 1', 'valid', LAUNCH_1),
    of('its weights', 'valid', LAUNCH_FILE, root),
    of('its weights, as text', 'valid', LAUNCH_FILE, JSON.stringify(WEIGHTS)),
    of('its weights, as an object', 'valid', LAUNCH_FILE, WEIGHTS),
    of('other weights', mismatch, LAUNCH_FILE, 'ef'.repeat(32)),
    of('weights, of version 1', missing, LAUNCH_1, root),
    of('weights, and no list', missing, LAUNCH_FILE, root, false),
    of('weights that cannot be used', 'TypeError', LAUNCH_FILE, 'Qwen/Qwen3-8B'),
    of('weights without a root', 'TypeError', LAUNCH_FILE, {}),
    of('weights twice', 'TypeError', LAUNCH_FILE, `{"verity_root":"${root}","verity_root":"${root}"}`),
    ...[
      ['in version 3', LAUNCH_FILE.replace('"version":2', '"version":3')] as const,
      ['in version true', LAUNCH_FILE.replace('"version":2', '"version":true')] as const,
      ['of version 2.0', LAUNCH_FILE.replace('"version":2', '"version":2.0')] as const,
      ['with a member more', LAUNCH_FILE.replace('"login"', '"more":1,"login"')] as const,
      [
        'with another digest',
        LAUNCH_FILE.replace(/"compose_sha256":"[0-9a-f]{8}/, '"compose_sha256":"00000000'),
      ] as const,
      ['without its weights', LAUNCH_FILE.replace(/"weights":\[[^\]]*\]/, '"weights":[]')] as const,
      [
        'with other weights',
        LAUNCH_FILE.replace(`"verity_root":"${root}"`, `"verity_root":"${'ef'.repeat(32)}"`),
      ] as const,
      ['with a root that is short', LAUNCH_FILE.replace(`"verity_root":"${root}"`, '"verity_root":"cd"')] as const,
      ...REFUSED.map(([name, compose]) => [`of a compose file with ${name}`, launchOf(compose)] as const),
    ].map(([name, launch]) => of(name, 'cpu_form cpu_malformed', launch)),
  ];
  return (await Promise.all(all)).flat();
}

/** What a processor of a session is known by, for its short form. */
async function claimsOf(session: MadeSession): Promise<never> {
  const { report } = await ours(alone('', session));
  if (!report?.valid) throw new TypeError('the session is not valid');
  return (report.claims as { cpu: never }).cpu;
}

/** Each with one thing changed before it was signed, by a seed. */
export async function signedChanges(count: number, seed: number): Promise<Question[]> {
  const questions: Question[] = [];
  for (let i = 0; questions.length < count; i++) {
    const random = seeded(seedOf(seed, i));
    const [name, make] = random.pick(WAYS);
    const spec = make(random);
    for (const one of await bothOf(`with ${name}, seed ${seed}, ${i}`, spec, random.pick([WITHOUT, OPTIONS, KNOWN])))
      questions.push(one);
  }
  return questions;
}

const KNOWN: Options = {
  ...WITHOUT,
  cpu: {
    reference: listOf(
      [
        { type: 'SEV_SNP', measurement: ['a1'.repeat(48)], ...HOST },
        { ...ownOf(tdx(Buffer.alloc(64)) as Record<string, string>)[0], rtmr3: undefined, ...RTMR3 },
      ],
      LAUNCH,
    ),
  },
};

const edit = (random: Random) => (bytes: Buffer) => {
  const at = random.below(bytes.length);
  bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << random.below(8)), at);
};
const pck = makePck(intel);
const window = { from: new Date(AT.getTime() - 86_400_000), to: new Date(AT.getTime() + 86_400_000) };
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');

type Way = readonly [name: string, make: (random: Random) => SessionSpec];
const WAYS: readonly Way[] = [
  [
    'another statement',
    (random) => ({
      text: (text) => {
        const changed = random.chance(0.8) ? mutateJson(text, random) : mutateText(text, random);
        return keyOf(changed) === keyOf(text) ? changed : text;
      },
    }),
  ],
  [
    'a report that was edited',
    (random) => ({
      processor: (reportData) =>
        snpMember(makeSnpReport('Genoa', snpLeaf, { reportData, edit: edit(random) }), [snpLeaf, amd.ask]),
    }),
  ],
  ['a quote that was edited', (random) => ({ processor: quoteOf({ editBody: edit(random) }) })],
  ['a quoting enclave that was edited', (random) => ({ processor: quoteOf({ editQe: edit(random) }) })],
  ['a header that was edited', (random) => ({ processor: quoteOf({ editHeader: edit(random) }) })],
  ['other versions', (random) => ({ processor: quoteOf(versions(random)) })],
  ['another TCB info', (random) => ({ processor: quoteOf({}, { tcbInfo: changedJson(tcbInfo, random) }) })],
  [
    "another quoting enclave's identity",
    (random) => ({ processor: quoteOf({}, { qeIdentity: changedJson(qeIdentity, random) }) }),
  ],
  [
    'another event log',
    (random) => ({
      processor: tdxOf(
        Buffer.alloc(48),
        Array.from({ length: random.below(4) }, () =>
          dstackEvent(
            random.below(4),
            random.pick(['countersign-launch', 'app-id', 'a:b', 'é', '']),
            someBytes(random),
          ),
        ),
      ),
    }),
  ],
  [
    'another vTPM',
    (random) => ({
      processor: (reportData) => {
        const { tpm, ...member } = behindVtpm(reportData) as { tpm: { message: string } };
        const message = base64(mutateBytes(Uint8Array.from(Buffer.from(tpm.message, 'base64')), random));
        return { ...member, tpm: { ...tpm, message } };
      },
    }),
  ],
];

const someBytes = (random: Random) => (random.chance(0.5) ? sha256('a launch file') : random.bytes(random.below(40)));

/** The key stays as it is: verify/ throws no verdict, but an error of its own, where it is not base64. */
function keyOf(statement: string): unknown {
  try {
    return (JSON.parse(statement) as { key?: unknown } | null)?.key;
  } catch {
    return undefined;
  }
}

type QuoteSpec = NonNullable<Parameters<typeof makeQuote>[2]>;
type CollateralSpec = NonNullable<Parameters<typeof makeCollateral>[1]>;
type SignedJson = NonNullable<CollateralSpec['tcbInfo']>;

const quoteOf =
  (quote: QuoteSpec, collateral: CollateralSpec = {}): Processor =>
  (reportData) => ({
    type: 'TDX',
    report: base64(makeQuote(intel, pck, { reportData, ...quote })),
    collateral: makeCollateral(intel, { window, ...collateral }),
  });

/** Security versions around those of the collateral, so that every state comes up. */
function versions(random: Random): QuoteSpec {
  const svn = () => Array.from({ length: 16 }, (_, i) => (i < 3 ? random.below(8) : random.below(2)));
  const is15 = random.chance(0.7);
  return {
    qeSvn: random.below(6),
    teeTcbSvn: svn(),
    ...(is15 ? { version: 5, body: 3, teeTcbSvn2: svn() } : {}),
  };
}

const right = makeCollateral(intel, { window });
const tcbInfo = JSON.parse(right.tcb_info) as Record<string, unknown>;
const qeIdentity = JSON.parse(right.qe_identity) as Record<string, unknown>;

/** The same members with one value changed; where that is no object any more, the right ones. */
function changedJson(json: Record<string, unknown>, random: Random): SignedJson {
  try {
    const changed = JSON.parse(mutateJson(JSON.stringify(json), random)) as unknown;
    const gone = Object.fromEntries(Object.keys(json).map((name) => [name, undefined]));
    return { ...gone, ...(changed as object) } as SignedJson;
  } catch {
    return {};
  }
}
