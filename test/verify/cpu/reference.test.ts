// The relying party's reference values: guests that are its own, guests that differ in one thing, and lists that cannot be used.
import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { pem } from '../../../demo/twin/authority.ts';
import { makeSnpReport, snpMember } from '../../../demo/twin/snp.ts';
import { makeCollateral, makePck, makeQuote } from '../../../demo/twin/tdx.ts';
import { type CpuReference, type GuestReference, readReference, verifySession } from '../../../verify/cpu.ts';
import { appraiseAttestation, type VerifyOptions, verifyAttestation } from '../../../verify/index.ts';
import { changed, LAUNCH, LAUNCH_1, LAUNCH_SHA256, launchOf, REFUSED, WEIGHTS } from '../../support/launch-file.ts';
import { AT, attest, EXCHANGE, simulatedRoot } from '../maker.ts';
import {
  amd,
  answerIn,
  intel,
  type MadeSession,
  makeSession,
  type Processor,
  signAnswer,
  snpLeaf,
  statementDigest,
} from '../session-maker.ts';
import { judge, refuse } from './tdx-bench.ts';

const OWN_ROOTS: VerifyOptions = {
  at: AT,
  roots: { device: simulatedRoot },
  without: { referenceValues: true, revocation: true },
};
const MEASUREMENT = 'a7'.repeat(48);
const RTMRS = ['10', '11', '12', '00'].map((byte) => byte.repeat(48));

const snpWith =
  (spec: { hostData?: string; vmpl?: number; measurement?: string } = {}): Processor =>
  (reportData) => {
    const { hostData = LAUNCH_SHA256, vmpl = 0, measurement = MEASUREMENT } = spec;
    const edit = (report: Buffer) => {
      report.write(measurement, 0x90, 'hex');
      report.write(hostData, 0xc0, 'hex');
      report.writeUInt32LE(vmpl, 0x30);
    };
    return snpMember(makeSnpReport('Genoa', snpLeaf, { reportData, edit }), [snpLeaf, amd.ask]);
  };
const window = { from: new Date(AT.getTime() - 86_400_000), to: new Date(AT.getTime() + 86_400_000) };
const tdxWith =
  (spec: { configId?: string; rtmrs?: readonly string[] } = {}): Processor =>
  (reportData) => {
    const { configId = LAUNCH_SHA256 + '00'.repeat(16), rtmrs = RTMRS } = spec;
    const editBody = (body: Buffer) => {
      body.write(MEASUREMENT, 136, 'hex');
      body.write(configId, 184, 'hex');
    };
    const registers = rtmrs.map((hex) => Buffer.from(hex, 'hex'));
    const report = makeQuote(intel, makePck(intel), { reportData, rtmrs: registers, editBody }).toString('base64');
    return { type: 'TDX', report, collateral: makeCollateral(intel, { window }) };
  };

const SNP: GuestReference = { type: 'SEV_SNP', measurement: ['00'.repeat(48), MEASUREMENT], launch_in: 'host_data' };
const [rtmr0 = '', rtmr1 = '', rtmr2 = ''] = RTMRS;
const TDX = {
  type: 'TDX',
  mrtd: [MEASUREMENT],
  rtmr0: [rtmr0],
  rtmr1: [rtmr1],
  rtmr2: [rtmr2],
  launch_in: 'mrconfigid',
} as const satisfies GuestReference;

const listOf = (...cpu: readonly GuestReference[]): CpuReference => ({
  version: 1,
  cpu,
  launch: ['ef'.repeat(32), LAUNCH_SHA256],
});
const optionsOf = (reference: CpuReference | string | undefined, weights?: Weights): VerifyOptions => ({
  ...OWN_ROOTS,
  cpu: { roots: { amd: pem(amd.ark), intel: pem(intel.root) }, reference, weights },
});
type Weights = NonNullable<VerifyOptions['cpu']>['weights'];

/** A session of this processor, whose statement names the launch file. */
async function sessionOf(processor: Processor, launch: string | null = LAUNCH_SHA256): Promise<MadeSession> {
  const made = await makeSession({ processor, statement: { launch } });
  return launch === LAUNCH_SHA256 ? { ...made, cpu: { ...made.cpu, launch: LAUNCH } } : made;
}

async function judged(processor: Processor, reference: CpuReference | string, launch: string | null = LAUNCH_SHA256) {
  const report = await appraiseAttestation(await answerIn(await sessionOf(processor, launch)), optionsOf(reference));
  const failed = report.checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);
  return { ...report, failed };
}

/** An answer of a known guest that was started with this launch file. */
async function withLaunch(launch: string, more: { weights?: Weights; reference?: undefined } = {}) {
  const sha256 = hash('sha256', launch);
  const made = await makeSession({ processor: snpWith({ hostData: sha256 }), statement: { launch: sha256 } });
  const reference = 'reference' in more ? undefined : { ...listOf(SNP), launch: [sha256] };
  const answer = await answerIn({ ...made, cpu: { ...made.cpu, launch } });
  const report = await appraiseAttestation(answer, optionsOf(reference, more.weights));
  const failed = report.checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);
  return { ...report, failed };
}

const WRONG_GUEST = ['cpu_measurement measurement_mismatch'];
const WRONG_LAUNCH = ['cpu_software software_mismatch'];

describe('a guest that the caller knows', () => {
  test.each([
    ['SEV-SNP', snpWith(), listOf(TDX, SNP)],
    ['TDX', tdxWith(), listOf(SNP, TDX)],
  ] as const)('%s: is of level measured, in words', async (_, processor, reference) => {
    const { level, failed, proven, not_proven, claims } = await judged(processor, reference);
    expect([failed, level]).toEqual([[], 'measured']);
    expect(claims.cpu?.software).toMatchObject({
      launch: LAUNCH_SHA256,
      images: { sidecar: expect.stringMatching(/sidecar@sha256:/) },
      weights: [WEIGHTS],
      model: WEIGHTS,
    });
    expect(proven.join('\n')).toContain(
      `launch file ${LAUNCH_SHA256} are on the caller's list; its compose file, whose backend has no way out, names backend vllm/`,
    );
    expect(proven).toContain(
      `Which weights: ${WEIGHTS.name}, root ${WEIGHTS.verity_root}, mounted read-only in that guest; nothing else could be loaded by the launch's own command.`,
    );
    expect(not_proven.join('\n')).toContain('the guest wrote the list of its devices');
    expect(not_proven.join('\n')).not.toContain("Which model's weights ran");
    expect(not_proven.join('\n')).toContain('That the engine used these weights for this answer');
    expect(not_proven.join('\n').includes('ACPI tables')).toBe(claims.cpu?.type === 'SEV_SNP');
    expect(not_proven.join('\n')).toContain('what is in them was not looked at');
    expect(not_proven.join('\n')).not.toContain('its measurement was not compared');
  });

  test('is one where the list is text, and where the caller demands the level', async () => {
    const options = optionsOf(JSON.stringify(listOf(SNP)));
    const answer = await answerIn(await sessionOf(snpWith()));
    await verifyAttestation(answer, { ...options, policy: { minLevel: 'measured' } });
  });

  test('is one without the launch file itself, which only says what is in it', async () => {
    const { level, claims } = await judged(snpWith(), listOf(SNP), null);
    expect([level, claims.cpu?.software?.images]).toEqual(['measured', null]);
  });

  test('of a launch file of version 1 has its writer’s words, and no weights', async () => {
    const { level, claims, proven, not_proven } = await withLaunch(LAUNCH_1);
    expect([level, claims.cpu?.software?.weights]).toEqual(['measured', null]);
    expect(proven.join('\n')).toContain("the file's writer names backend backend@sha256:");
    expect(not_proven).toContain("Which model's weights ran.");
    expect(not_proven.join('\n')).toContain('it holds the hash only');
  });

  test('stays one in the short form, by the session that was verified', async () => {
    const session = await sessionOf(snpWith());
    const verified = await verifySession({ ...session.cpu, gpu: session.gpu }, optionsOf(listOf(SNP)));
    expect(verified.level).toBe('measured');
    const made = await attest({ ...EXCHANGE, session: statementDigest(session) });
    const cpu = { statement_sha256: statementDigest(session), signature: signAnswer(session, made) };
    const { level } = await verifyAttestation({ ...made, cpu }, { ...OWN_ROOTS, session: verified.session });
    expect(level).toBe('measured');
    const unknown = await verifySession(
      { ...session.cpu, gpu: session.gpu },
      { ...OWN_ROOTS, cpu: { roots: { amd: pem(amd.ark) } } },
    );
    expect(unknown.level).toBe('gpu+cpu');
    const other = await verifyAttestation({ ...made, cpu }, { ...optionsOf(listOf(SNP)), session: unknown.session });
    expect(other.level).toBe('gpu+cpu');
  });

  test('is simulated where its processor is: of no level', async () => {
    const options = {
      ...OWN_ROOTS,
      roots: {},
      simulatedRoot: simulatedRoot + pem(amd.ark),
      cpu: { reference: listOf(SNP) },
    };
    const report = await appraiseAttestation(await answerIn(await sessionOf(snpWith())), options);
    expect([report.valid, report.level, report.claims.cpu?.software?.launch]).toEqual([true, 'none', LAUNCH_SHA256]);
  });

  test('whose launch file is part of its measurement is named by the statement', async () => {
    const measured: GuestReference = { type: 'SEV_SNP', measurement: [MEASUREMENT], launch_in: 'measurement' };
    const plain = snpWith({ hostData: '00'.repeat(32) });
    expect((await judged(plain, listOf(measured))).level).toBe('measured');
    expect((await judged(plain, listOf(measured), null)).failed).toEqual(WRONG_LAUNCH);
    expect((await judged(plain, listOf(measured), 'aa'.repeat(32))).failed).toEqual(WRONG_LAUNCH);
  });

  test('whose RTMR0 is left out is told so', async () => {
    const { level, not_proven } = await judged(
      tdxWith({ rtmrs: ['99'.repeat(48), ...RTMRS.slice(1)] }),
      listOf({ ...TDX, rtmr0: null }),
    );
    expect(level).toBe('measured');
    expect(not_proven.join('\n')).toContain('RTMR0');
  });

  test('whose RTMR3 somebody extended is one where it is listed', async () => {
    const rtmr3 = '33'.repeat(48);
    const extended = tdxWith({ rtmrs: [...RTMRS.slice(0, 3), rtmr3] });
    expect((await judged(extended, listOf(TDX))).failed).toEqual(WRONG_GUEST);
    expect((await judged(extended, listOf({ ...TDX, rtmr3: [rtmr3] }))).level).toBe('measured');
  });
});

describe('weights', () => {
  const root = WEIGHTS.verity_root;
  const none = launchOf(
    changed(({ services }) => Object.assign(services.backend ?? {}, { volumes: [], command: ['m'] })),
    { weights: [] },
  );

  test.each([
    ['by their root', root],
    ['by weights.json', JSON.stringify({ name: 'Qwen/Qwen3-8B', revision: 'b968826', verity_root: root, files: {} })],
    ['by an object', { verity_root: root }],
  ])('that the caller names %s pass', async (_, weights) => {
    const { failed, level, checks } = await withLaunch(LAUNCH, { weights });
    expect([failed, level]).toEqual([[], 'measured']);
    expect(checks.find(({ name }) => name === 'cpu_weights')).toMatchObject({ status: 'pass' });
  });

  test('that nobody names are a skip', async () => {
    const { checks } = await withLaunch(LAUNCH);
    const skip = { status: 'skip', detail: 'the caller names no weights' };
    expect(checks.find(({ name }) => name === 'cpu_weights')).toMatchObject(skip);
  });

  test.each([
    ['others', LAUNCH, { weights: 'ef'.repeat(32) }, 'weights_mismatch'],
    ['a launch file of version 1', LAUNCH_1, { weights: root }, 'weights_missing'],
    ['a launch file without weights', none, { weights: root }, 'weights_missing'],
    ['no reference values', LAUNCH, { weights: root, reference: undefined }, 'weights_missing'],
  ] as const)('are refused: %s', async (_, launch, options, code) => {
    const { failed, level } = await withLaunch(launch, options);
    expect([failed, level]).toEqual([[`cpu_weights ${code}`], 'none']);
    expect((await withLaunch(LAUNCH, { weights: root })).valid).toBe(true);
  });

  test('of an answer without a processor, or whose raw names no session, are missing', async () => {
    const options = optionsOf({ ...listOf(SNP) }, root);
    const plain = await appraiseAttestation(await attest(EXCHANGE), options);
    expect(plain.checks.find(({ name }) => name === 'cpu_weights')).toMatchObject({ code: 'weights_missing' });
    const session = await sessionOf(snpWith());
    const made = await attest(EXCHANGE);
    const cpu = { ...session.cpu, signature: signAnswer(session, made) };
    const unnamed = await appraiseAttestation({ ...made, cpu }, options);
    expect(unnamed.checks.find(({ name }) => name === 'cpu_weights')).toMatchObject({ code: 'weights_missing' });
    expect(unnamed.proven.join()).not.toContain('Which weights');
  });

  test('of a session are shown, and in the short form those of the session that was verified', async () => {
    const session = await sessionOf(snpWith());
    const verified = await verifySession({ ...session.cpu, gpu: session.gpu }, optionsOf(listOf(SNP), root));
    expect(verified.proven.join('\n')).toContain(`Which weights: ${WEIGHTS.name}`);
    const made = await attest({ ...EXCHANGE, session: statementDigest(session) });
    const cpu = { statement_sha256: statementDigest(session), signature: signAnswer(session, made) };
    const short = (weights: Weights) =>
      appraiseAttestation({ ...made, cpu }, { ...optionsOf(undefined, weights), session: verified.session });
    expect(await short(root)).toMatchObject({ level: 'measured', valid: true });
    expect((await short('ef'.repeat(32))).checks.at(-2)).toMatchObject({ code: 'weights_mismatch' });
  });

  test.each(REFUSED.slice(0, 3))('of a compose file with %s are shown to nobody', async (_, compose, message) => {
    const { failed, level, checks } = await withLaunch(launchOf(compose));
    expect([failed, level]).toEqual([['cpu_form cpu_malformed'], 'none']);
    expect(checks.find(({ name }) => name === 'cpu_form')?.detail).toBe(`the compose file ${message}`);
  });

  test.each([
    ['capitals', root.toUpperCase()],
    ['a name', WEIGHTS.name],
    ['an object without a root', {}],
    ['a root that is short', { verity_root: 'cd' }],
    ['a member twice', `{"verity_root":"${root}","verity_root":"${root}"}`],
    ['null', null],
  ])('cannot be used: %s', async (_, weights) => {
    await expect(withLaunch(LAUNCH, { weights: weights as string })).rejects.toThrow(/^weights: /);
    expect((await withLaunch(LAUNCH, { weights: root })).valid).toBe(true);
  });
});

describe('another guest', () => {
  const others: readonly (readonly [string, Processor, GuestReference])[] = [
    ['another MEASUREMENT', snpWith({ measurement: 'a8'.repeat(48) }), SNP],
    ['another privilege level asked', snpWith({ vmpl: 1 }), SNP],
    ['another identity key', snpWith(), { ...SNP, id_key_digest: ['77'.repeat(48)] } as GuestReference],
    ['another MRTD', tdxWith(), { ...TDX, mrtd: ['a8'.repeat(48)] }],
    ...([0, 1, 2] as const).map(
      (i) => [`another RTMR${i}`, tdxWith(), { ...TDX, [`rtmr${i}`]: ['a8'.repeat(48)] }] as const,
    ),
    ['another RTMR3', tdxWith(), { ...TDX, rtmr3: ['a8'.repeat(48)] }],
    ['the other kind', tdxWith(), SNP],
  ];
  test.each(others)('%s', async (_, processor, guest) => {
    const { failed, level, checks, claims } = await judged(processor, listOf(guest));
    expect([failed, level, claims.cpu?.software]).toEqual([WRONG_GUEST, 'none', null]);
    expect(checks.find(({ name }) => name === 'cpu_software')).toMatchObject({ status: 'skip' });
  });

  test('a lower privilege level passes where the caller takes it', async () => {
    expect((await judged(snpWith({ vmpl: 2 }), listOf({ ...SNP, vmpl: [0, 2] } as GuestReference))).level).toBe(
      'measured',
    );
  });
});

describe('another launch file', () => {
  const other = '5a'.repeat(32);
  test.each([
    ['HOST_DATA is zero', snpWith({ hostData: '00'.repeat(32) }), SNP, null],
    ['HOST_DATA is not on the list', snpWith({ hostData: other }), SNP, null],
    ['HOST_DATA is another than the statement says', snpWith({ hostData: 'ef'.repeat(32) }), SNP, LAUNCH_SHA256],
    ['MRCONFIGID is not on the list', tdxWith({ configId: other + '00'.repeat(16) }), TDX, null],
    ['MRCONFIGID goes on behind the digest', tdxWith({ configId: `${LAUNCH_SHA256}${'00'.repeat(15)}01` }), TDX, null],
    ['RTMR3 has no event', tdxWith(), { ...TDX, launch_in: 'rtmr3' } as GuestReference, null],
  ])('%s', async (_, processor, guest, launch) => {
    expect((await judged(processor, listOf(guest), launch)).failed).toEqual(WRONG_LAUNCH);
  });

  test('bare evidence is compared too', async () => {
    const [mrtd, rtmr0, rtmr1, rtmr2, rtmr3] = ['e7', '01', '02', '03', '04'].map((byte) => [byte.repeat(48)]);
    const own = { type: 'TDX', mrtd, rtmr0, rtmr1, rtmr2, rtmr3, launch_in: 'mrconfigid' } as GuestReference;
    const launch = 'c1'.repeat(32);
    const among = (reference: CpuReference) => ({ options: { reference } });
    const { valid, claims } = await judge(among({ version: 1, cpu: [own], launch: [launch] }));
    expect([valid, claims?.software?.launch]).toEqual([true, launch]);
    expect(await refuse(among({ version: 1, cpu: [own], launch: [other] }))).toEqual([
      ['cpu_software', 'software_mismatch'],
    ]);
    expect(await refuse(among({ version: 1, cpu: [TDX], launch: [launch] }))).toEqual([
      ['cpu_measurement', 'measurement_mismatch'],
    ]);
  });
});

describe('a list that cannot be used is the caller’s fault', () => {
  const good = listOf(SNP, TDX);
  const azure = {
    type: 'AZURE_SEV_SNP',
    measurement: [MEASUREMENT],
    pcrs: { 11: ['aa'.repeat(32)] },
    launch_in: 'measurement',
  };
  const bad: readonly (readonly [string, unknown, RegExp])[] = [
    ['no object', [], /it is not an object/],
    ['no JSON', '{', /not JSON/],
    ['a member twice', '{"version":1,"version":1}', /twice/],
    ['another version', { ...good, version: 2 }, /version/],
    ['no guests', { ...good, cpu: [] }, /cpu is not a list/],
    ['no launch files', { ...good, launch: [] }, /launch is not a list/],
    ['a launch file in capitals', { ...good, launch: [LAUNCH_SHA256.toUpperCase()] }, /launch/],
    ['a member that nobody knows', { ...good, gpu: [] }, /gpu is no member/],
    ['a misspelt member', { ...good, cpu: [{ ...SNP, vmpls: [0] }] }, /cpu\[0\]\.vmpls is no member/],
    ['a short measurement', { ...good, cpu: [{ ...SNP, measurement: ['ab'] }] }, /cpu\[0\]\.measurement/],
    ['an unknown type', { ...good, cpu: [{ ...SNP, type: 'SGX' }] }, /cpu\[0\]\.type is not known/],
    ['no place of the launch file', { ...good, cpu: [{ type: 'SEV_SNP', measurement: [MEASUREMENT] }] }, /launch_in/],
    ['a place of the other kind', { ...good, cpu: [{ ...SNP, launch_in: 'rtmr3' }] }, /launch_in/],
    ['a privilege level 4', { ...good, cpu: [{ ...SNP, vmpl: [4] }] }, /vmpl/],
    ['RTMR1 left out', { ...good, cpu: [{ ...TDX, rtmr1: null }] }, /rtmr1/],
    ['Azure without registers', { ...good, cpu: [{ ...azure, pcrs: {} }] }, /names no register/],
    [
      'a register that there is not',
      { ...good, cpu: [{ ...azure, pcrs: { 24: ['aa'.repeat(32)] } }] },
      /that there is not/,
    ],
  ];
  test.each(bad)('%s', async (_, reference, message) => {
    expect(() => readReference(reference)).toThrow(TypeError);
    expect(() => readReference(reference)).toThrow(message);
    const answer = await answerIn(await sessionOf(snpWith()));
    await expect(appraiseAttestation(answer, optionsOf(reference as CpuReference))).rejects.toThrow(TypeError);
  });
  test('a right one can', () => {
    expect(readReference(JSON.stringify({ ...good, cpu: [...good.cpu, azure] })).cpu).toHaveLength(3);
  });
});
