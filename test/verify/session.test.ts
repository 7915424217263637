// Sessions: what binds a processor to the devices beside it and to one answer, and by which check each exchange of a part fails.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { pem } from '../../demo/twin/authority.ts';
import { makeLeaf, makeSnpReport } from '../../demo/twin/snp.ts';
import { appraiseSession, verifySession } from '../../verify/cpu.ts';
import {
  appraiseAttestation,
  CPU_CHECKS,
  VerificationError,
  type VerificationReport,
  type VerifyOptions,
  verifyAttestation,
} from '../../verify/index.ts';
import { LAUNCH, LAUNCH_SHA256 } from '../support/launch-file.ts';
import { AT, a, attest, b, EXCHANGE, RESPONSE, SECONDS, simulatedRoot } from './maker.ts';
import {
  type Answer,
  amd,
  answerIn,
  deviceKey,
  intel,
  type MadeSession,
  makeSession,
  processorRoots,
  signAnswer,
  snp,
  statementDigest,
  tdx,
} from './session-maker.ts';

const OPTIONS: VerifyOptions = { simulatedRoot: simulatedRoot + processorRoots, at: AT };
/** The same roots as the caller's own, so that the level is the one of hardware. */
const OWN_ROOTS: VerifyOptions = {
  at: AT,
  roots: { device: simulatedRoot },
  cpu: { roots: { amd: pem(amd.ark), intel: pem(intel.root) } },
  without: { referenceValues: true, revocation: true },
};
const OTHER = { ...EXCHANGE, response: RESPONSE.replace('Hello', 'Goodbye') };
const CHALLENGE = 'c0'.repeat(32);

const session = await makeSession();
const good = await answerIn(session);
const other = await makeSession();
const ofB = await makeSession({ devices: [b] });

/** Every check that failed, with its code; `not run` checks are left out. */
const failures = ({ checks }: VerificationReport) =>
  checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);
const failing = async (answer: unknown, options: VerifyOptions = {}) =>
  failures(await appraiseAttestation(answer, { ...OPTIONS, ...options }));
const changed = (answer: Answer, cpu: Record<string, unknown>): Answer => ({
  ...answer,
  cpu: { ...answer.cpu, ...cpu },
});

describe('an answer in a session', () => {
  test.each([
    ['SEV-SNP', snp],
    ['TDX', tdx],
  ])('%s: passes every check', async (_, processor) => {
    const report = await appraiseAttestation(await answerIn(await makeSession({ processor })), OPTIONS);
    expect(failures(report)).toEqual([]);
    expect(report).toMatchObject({ valid: true, level: 'none', claims: { simulated: true, cpu: { simulated: true } } });
    const of = Object.fromEntries(report.checks.map(({ name, status }) => [name, status]));
    for (const name of ['cpu_form', 'cpu_signature', 'cpu_chain', 'cpu_binding', 'cpu_devices', 'cpu_answer'])
      expect([name, of[name]]).toEqual([name, 'pass']);
  });

  test('reports its checks between those of the devices and the policy', async () => {
    const { checks } = await appraiseAttestation(good, OPTIONS);
    const names = checks.map(({ name }) => name);
    const cpu = names.filter((name) => (CPU_CHECKS as readonly string[]).includes(name));
    expect(cpu).toEqual(CPU_CHECKS.filter((name) => cpu.includes(name)));
    expect(names.slice(-cpu.length - 1)).toEqual([...cpu, 'policy']);
  });

  test.each([
    ['SEV-SNP', snp, /AMD's, of a Genoa processor, .*SEV-SNP guest of launch measurement (a1){32}/],
    ['TDX', tdx, /Intel's, of a processor with TDX, .*trust domain of launch measurement [0-9a-f]{96}/],
  ])('%s: is of level gpu+cpu, in words', async (_, processor, words) => {
    const { level, proven, not_proven } = await verifyAttestation(
      await answerIn(await makeSession({ processor })),
      OWN_ROOTS,
    );
    expect(level).toBe('gpu+cpu');
    expect(proven.join('\n')).toMatch(words);
    expect(proven.join('\n')).not.toContain('at the asking of software on its host');
    expect(not_proven.join('\n')).toContain('its measurement was not compared');
    expect(not_proven.join('\n')).toContain('the guest wrote the list of its devices');
  });

  test('without the member is of level gpu, which a caller may refuse', async () => {
    const { cpu: _, ...bare } = good;
    expect(await verifyAttestation(bare, OWN_ROOTS)).toMatchObject({ level: 'gpu', claims: { cpu: null } });
    expect(await failing(bare, { ...OWN_ROOTS, policy: { minLevel: 'gpu+cpu' } })).toEqual(['policy policy_refused']);
    expect(await failing(good, { ...OWN_ROOTS, policy: { minLevel: 'gpu+cpu' } })).toEqual([]);
    expect(await failing(good, { ...OWN_ROOTS, policy: { minLevel: 'measured' } })).toEqual(['policy policy_refused']);
    expect(await failing(good, { policy: { minLevel: 'gpu' } })).toEqual(['policy policy_refused']);
  });

  test('whose raw names no session is of level gpu: no GPU signed for that session', async () => {
    const before = await answerIn(session, { ...EXCHANGE, session: undefined });
    const report = await appraiseAttestation(before, OWN_ROOTS);
    expect(report).toMatchObject({ valid: true, level: 'gpu' });
    expect(report.checks.find(({ name }) => name === 'cpu_answer')).toMatchObject({ status: 'skip' });
    expect(report.proven.join()).not.toContain('processor');
    expect(await failing(before, { ...OWN_ROOTS, policy: { minLevel: 'gpu+cpu' } })).toEqual(['policy policy_refused']);
    expect(await failing(good, { ...OWN_ROOTS, policy: { minLevel: 'gpu+cpu' } })).toEqual([]);
  });

  test('must be of the session, and hold the challenge, that the caller expects', async () => {
    const { session: held } = await verifySession({ ...session.cpu, gpu: session.gpu }, OPTIONS);
    const { session: others } = await verifySession({ ...other.cpu, gpu: other.gpu }, OPTIONS);
    const { cpu: _, ...bare } = good;
    expect(await failing(good, { session: held })).toEqual([]);
    expect(await failing(good, { session: others })).toEqual(['cpu_binding session_mismatch']);
    expect(await failing(bare, { session: held })).toEqual(['cpu_form cpu_missing']);
    expect(await failing(bare, { expected: { challenge: 'ab'.repeat(32) } })).toEqual(['cpu_form cpu_missing']);
    expect(await failing(good, { expected: { challenge: 'ab'.repeat(32) } })).toEqual([
      'cpu_binding cpu_binding_mismatch',
    ]);
    const challenged = await makeSession({ statement: { challenge: 'ab'.repeat(32) } });
    expect(await failing(await answerIn(challenged), { expected: { challenge: 'ab'.repeat(32) } })).toEqual([]);
  });

  test('a simulated processor beside devices of a trusted root is of no level', async () => {
    const options = { at: AT, roots: { device: simulatedRoot }, simulatedRoot: processorRoots };
    const report = await appraiseAttestation(good, {
      ...options,
      without: { referenceValues: true, revocation: true },
    });
    expect(report).toMatchObject({ valid: true, level: 'none', claims: { simulated: true } });
  });

  test('is refused where the caller named no simulated root', async () => {
    const report = await appraiseAttestation(good, { ...OWN_ROOTS, cpu: {} });
    expect(failures(report)).toEqual(['cpu_chain simulated_root_refused']);
  });
});

describe('what was exchanged fails by one check', () => {
  const row = (what: string, make: () => Promise<unknown>, ...codes: string[]) => ({ what, make, codes });
  test.each([
    row(
      "another session's key",
      async () => changed(good, { signature: signAnswer(other, good) }),
      'cpu_answer answer_signature_invalid',
    ),
    row(
      "an honest machine's answer with a relay's session, which lists the same GPU and signs it",
      async () => ({ ...good, cpu: { ...other.cpu, signature: signAnswer(other, good) } }),
      'cpu_answer session_mismatch',
    ),
    row(
      "another answer's signature",
      async () => changed(good, { signature: (await answerIn(session, OTHER)).cpu.signature }),
      'cpu_answer answer_signature_invalid',
    ),
    row(
      "another machine's GPU over the same raw",
      async () => ({ ...(await attest(EXCHANGE, [b])), cpu: good.cpu }),
      'cpu_devices cpu_devices_mismatch',
      'cpu_answer answer_signature_invalid',
    ),
    row(
      "another machine's GPU, signed by the session",
      async () => answerIn(session, EXCHANGE, [b]),
      'cpu_devices cpu_devices_mismatch',
    ),
    row(
      "one device more than the session's",
      async () => answerIn(session, EXCHANGE, [a, b]),
      'cpu_devices cpu_devices_mismatch',
    ),
    row(
      'a second report over the same raw that the sidecar never saw',
      async () => ({ ...(await attest()), cpu: good.cpu }),
      'cpu_answer answer_signature_invalid',
    ),
    row(
      "another session's processor",
      async () => changed(good, { report: other.cpu.report }),
      'cpu_binding cpu_binding_mismatch',
    ),
    row(
      "another machine's session for this answer",
      async () => ({ ...good, cpu: (await answerIn(ofB, EXCHANGE, [a])).cpu }),
      'cpu_devices cpu_devices_mismatch',
      'cpu_answer answer_signature_invalid',
    ),
    row(
      'another statement',
      async () => changed(good, { statement: other.statement }),
      'cpu_binding cpu_binding_mismatch',
    ),
    row(
      'another digest of the GPU evidence',
      async () => changed(good, { gpu_sha256: other.cpu.gpu_sha256 }),
      'cpu_binding cpu_binding_mismatch',
    ),
    row(
      'a session that began later',
      async () => answerIn(await makeSession({ statement: { not_before: SECONDS - 9 } })),
      'cpu_binding session_expired',
    ),
    row(
      'a session that had ended',
      async () => answerIn(await makeSession({ statement: { not_before: SECONDS - 3_000, not_after: SECONDS - 11 } })),
      'cpu_binding session_expired',
    ),
    row(
      'report data with more behind the digest',
      async () => answerIn(await makeSession({ reportData: (d) => Buffer.concat([d.subarray(0, 63), Buffer.of(1)]) })),
      'cpu_binding cpu_binding_mismatch',
    ),
    row(
      'report data of another digest',
      async () =>
        answerIn(await makeSession({ reportData: (d) => Buffer.concat([Buffer.of((d[0] ?? 0) ^ 1), d.subarray(1)]) })),
      'cpu_binding cpu_binding_mismatch',
    ),
    row(
      'a quote over another digest',
      async () =>
        answerIn(
          await makeSession({
            processor: tdx,
            reportData: (d) => Buffer.concat([Buffer.of((d[0] ?? 0) ^ 1), d.subarray(1)]),
          }),
        ),
      'cpu_binding cpu_binding_mismatch',
    ),
  ])('$what', async ({ make, codes }) => {
    expect(await failing(await make())).toEqual(codes);
  });
});

describe('a member of another form is refused, never ignored', () => {
  const statement = (text: (one: string) => string) => async () => answerIn(await makeSession({ text }));
  const row = (what: string, make: () => Promise<unknown>, code = 'cpu_malformed') => ({ what, make, code });

  test.each([
    row('a type that is not known', async () => changed(good, { type: 'SEV_ES' }), 'cpu_unsupported'),
    row('a member that is not known', async () => changed(good, { extra: 1 })),
    row('no signature', async () => changed(good, { signature: undefined })),
    row('a signature of 63 bytes', async () => changed(good, { signature: Buffer.alloc(63).toString('base64') })),
    row('a signature in hex', async () => changed(good, { signature: 'ab'.repeat(64) })),
    row('no digest of the GPU evidence', async () => changed(good, { gpu_sha256: undefined })),
    row('a digest in capitals', async () => changed(good, { gpu_sha256: String(good.cpu.gpu_sha256).toUpperCase() })),
    row('the GPU evidence in an answer', async () => changed(good, { gpu: session.gpu })),
    row('no statement', async () => changed(good, { statement: undefined })),
    row(
      'a statement with white space',
      statement((text) => text.replace(',', ', ')),
    ),
    row(
      'a statement with a further member',
      statement((text) => text.replace('}', ',"more":1}')),
    ),
    row(
      'a statement in another order',
      statement((text) => text.replace(/("hpke":null),("launch":null)/, '$2,$1')),
    ),
    row(
      'a statement for another purpose',
      statement((text) => text.replace('session.v1', 'session.v2')),
    ),
    row(
      'a statement that names a member twice',
      statement((text) => text.replace('"hpke"', '"tls":[],"hpke"')),
    ),
    row(
      'a statement that is a list',
      statement(() => '[]'),
    ),
    row(
      'a statement that is null',
      statement(() => 'null'),
    ),
    row(
      'a statement that is cut off',
      statement((text) => text.slice(0, -1)),
    ),
    row(
      'a session of more than an hour',
      statement((text) => text.replace(`"not_after":${SECONDS + 3_000}`, `"not_after":${SECONDS + 3_001}`)),
    ),
    row(
      'a session without devices',
      statement((text) => text.replace(/"devices":\[[^\]]*\]/, '"devices":[]')),
    ),
    row(
      'a device in capitals',
      statement((text) => text.replace(deviceKey(a), deviceKey(a).toUpperCase())),
    ),
    row(
      'a challenge of 63 digits',
      statement((text) => text.replace('"challenge":null', `"challenge":"${CHALLENGE.slice(1)}"`)),
    ),
    row(
      'times that are no integers',
      statement((text) => text.replace(`"not_before":${SECONDS - 600}`, `"not_before":${SECONDS - 600}.5`)),
    ),
    row('a launch file that the statement does not name', async () => changed(good, { launch: '{}' })),
    row('the short form with a member more', async () => ({
      ...good,
      cpu: { statement_sha256: statementDigest(session), signature: good.cpu.signature, type: 'SEV_SNP' },
    })),
  ])('$what', async ({ make, code }) => {
    const report = await appraiseAttestation(await make(), OPTIONS);
    expect(failures(report)).toEqual([`cpu_form ${code}`]);
    expect(report.checks.filter(({ name, status }) => name.startsWith('cpu_') && status === 'pass')).toEqual([]);
  });

  test('a cpu that is no object is no attestation', async () => {
    for (const cpu of [null, 'x', 1, []]) expect(await failing({ ...good, cpu })).toEqual(['form not_an_attestation']);
  });

  test('a name twice in it is refused', async () => {
    const text = JSON.stringify(good).replace('"cpu":{', '"cpu":{"type":"TDX",');
    expect(await failing(text)).toEqual(['form not_an_attestation']);
  });

  test('the launch file that the statement names is accepted', async () => {
    const answer = await answerIn(await makeSession({ statement: { launch: LAUNCH_SHA256 } }));
    expect(await failing(changed(answer, { launch: LAUNCH }))).toEqual([]);
    expect(await failing(changed(answer, { launch: `${LAUNCH} ` }))).toEqual(['cpu_form cpu_malformed']);
  });

  test.each(['{"version":1}', 'a launch file', '', `${LAUNCH}\n`])(
    'a text that is no launch file is refused, whatever its digest: %j',
    async (launch) => {
      const sha256 = createHash('sha256').update(launch).digest('hex');
      const answer = await answerIn(await makeSession({ statement: { launch: sha256 } }));
      expect(await failing(changed(answer, { launch }))).toEqual(['cpu_form cpu_malformed']);
    },
  );
});

describe('a session by itself', () => {
  const whole = ({ cpu, gpu }: MadeSession) => ({ ...cpu, gpu });
  const appraise = (input: unknown, options: VerifyOptions = {}) => appraiseSession(input, { ...OPTIONS, ...options });

  test.each([
    ['SEV-SNP', snp],
    ['TDX', tdx],
  ])('%s: passes, as text and parsed', async (_, processor) => {
    const made = whole(await makeSession({ processor, devices: [a, b] }));
    for (const input of [made, JSON.stringify(made)]) {
      const report = await appraise(input);
      expect(failures(report)).toEqual([]);
      expect(report).toMatchObject({
        valid: true,
        level: 'none',
        session: { statement: (made as Record<string, unknown>).statement },
      });
    }
    expect(await verifySession(made, OWN_ROOTS)).toMatchObject({ level: 'gpu+cpu', session: { hpke: null } });
  });

  test('hands on the key configurations of sealed prompts that its statement names', async () => {
    const hpke = Buffer.alloc(1_300, 7).toString('base64');
    const made = whole(await makeSession({ statement: { hpke } }));
    expect((await verifySession(made, OPTIONS)).session.hpke).toBe(hpke);
  });

  test.each([
    [
      'GPU evidence over another statement',
      async () => ({ ...whole(session), gpu: (await makeSession()).gpu }),
      'report_nonce report_nonce_mismatch',
      'cpu_form cpu_malformed',
    ],
    [
      'GPU evidence over another statement, its digest left out',
      async () => ({ ...whole(session), gpu: (await makeSession()).gpu, gpu_sha256: undefined }),
      'report_nonce report_nonce_mismatch',
      'cpu_binding cpu_binding_mismatch',
    ],
    [
      'the signature of an answer',
      async () => ({ ...whole(session), signature: good.cpu.signature }),
      'cpu_form cpu_malformed',
    ],
    ['no GPU evidence', async () => session.cpu, 'form not_an_attestation'],
    [
      'a device that the statement does not name',
      async () => whole(await makeSession({ statement: { devices: [deviceKey(b)] } })),
      'cpu_devices cpu_devices_mismatch',
    ],
    [
      'a device that the statement names and that did not sign',
      async () => whole(await makeSession({ statement: { devices: [deviceKey(a), deviceKey(b)] } })),
      'cpu_form cpu_devices_mismatch',
    ],
  ])('%s fails', async (_, make, ...codes) => {
    const report = await appraise(await make());
    expect(failures(report)).toEqual(codes);
    expect(report.session).toBeNull();
  });

  test('is of all devices that its statement names, in any order', async () => {
    const made = await makeSession({ devices: [b, a], statement: { devices: [deviceKey(a), deviceKey(b)] } });
    expect(failures(await appraise(whole(made)))).toEqual([]);
    // One of them may sign an answer.
    expect(await failing(await answerIn(made, EXCHANGE, [a]))).toEqual([]);
  });

  test('may have members beyond the known ones in its GPU evidence, but none twice', async () => {
    const [one] = session.gpu;
    const more = { ...whole(session), gpu: [{ name: 'GPU 0', version: { minor: 1 }, ...one }] };
    for (const input of [more, JSON.stringify(more)]) expect(failures(await appraise(input))).toEqual([]);
    const twice = JSON.stringify(more).replace('"minor":1', '"minor":1,"minor":1');
    expect(failures(await appraise(twice))).toEqual(['form cpu_malformed']);
  });

  test('holds the challenge that the caller gave, or fails', async () => {
    const made = whole(await makeSession({ statement: { challenge: CHALLENGE } }));
    expect(failures(await appraise(made, { expected: { challenge: CHALLENGE } }))).toEqual([]);
    expect(failures(await appraise(made, { expected: { challenge: CHALLENGE.toUpperCase() } }))).toEqual([]);
    for (const [input, challenge] of [
      [made, 'd0'.repeat(32)],
      [whole(session), CHALLENGE],
    ] as const)
      expect(failures(await appraise(input, { expected: { challenge } }))).toEqual([
        'cpu_binding cpu_binding_mismatch',
      ]);
    await expect(appraise(made, { expected: { challenge: 'c0' } })).rejects.toThrow(TypeError);
  });

  test("is judged at the caller's clock", async () => {
    const at = (seconds: number) => appraise(whole(session), { at: new Date(seconds * 1000) });
    expect(failures(await at(SECONDS - 601))).toEqual(['cpu_binding session_expired']);
    expect(failures(await at(SECONDS + 3_001))).toEqual(['cpu_binding session_expired']);
    expect(failures(await at(SECONDS + 3_000))).toEqual([]);
  });

  test('throws the list where it fails', async () => {
    const error = await verifySession({ ...whole(session), statement: '{}' }, OPTIONS).catch((cause) => cause);
    expect(error).toBeInstanceOf(VerificationError);
    expect(error.checks.length).toBeGreaterThan(5);
  });
});

describe('the devices that the caller accepts', () => {
  const accepting = (...devices: readonly string[]): VerifyOptions => ({ policy: { devices } });
  const refused = ['policy device_not_accepted'];

  test('every device that signed must be one of them', async () => {
    const both = await makeSession({ devices: [a, b] });
    const answer = await answerIn(both, EXCHANGE, [a, b]);
    expect(await failing(answer, accepting(deviceKey(a)))).toEqual(refused);
    expect(await failing(answer, accepting())).toEqual(refused);
    expect(await failing(answer, accepting(deviceKey(b), deviceKey(a)))).toEqual([]);
    expect(await failing(await answerIn(both, EXCHANGE, [a]), accepting(deviceKey(a)))).toEqual([]);
    const options = { ...OPTIONS, ...accepting(deviceKey(a)) };
    expect(failures(await appraiseSession({ ...both.cpu, gpu: both.gpu }, options))).toEqual(refused);
    expect(failures(await appraiseSession({ ...session.cpu, gpu: session.gpu }, options))).toEqual([]);
  });

  test('a list that cannot be used is an error of the caller', async () => {
    for (const devices of [['a'], [deviceKey(a).toUpperCase()], deviceKey(a)])
      await expect(failing(good, { policy: { devices: devices as never } })).rejects.toThrow(TypeError);
    expect(await failing(good, accepting(deviceKey(a)))).toEqual([]);
  });
});

describe('the short form', () => {
  const short = (answer: Answer, made = session): Answer => ({
    ...answer,
    cpu: { statement_sha256: statementDigest(made), signature: answer.cpu.signature },
  });

  test('is as good as the whole one beside the session that was verified', async () => {
    const { session: held } = await verifySession({ ...session.cpu, gpu: session.gpu }, OWN_ROOTS);
    const report = await appraiseAttestation(short(good), { ...OWN_ROOTS, session: held });
    expect(failures(report)).toEqual([]);
    expect(report).toMatchObject({ level: 'gpu+cpu', claims: { cpu: { product: 'Genoa' } } });
    expect(JSON.stringify(short(good).cpu).length).toBeLessThan(300);
  });

  test('cannot be verified alone, nor beside another session', async () => {
    expect(await failing(short(good))).toEqual(['cpu_form cpu_missing']);
    const { session: held } = await verifySession({ ...session.cpu, gpu: session.gpu }, OPTIONS);
    expect(await failing(short(await answerIn(other), other), { session: held })).toEqual(['cpu_form cpu_missing']);
  });

  test('is bound to its answer, its devices and its time', async () => {
    const { session: held } = await verifySession({ ...session.cpu, gpu: session.gpu }, OPTIONS);
    const options = { session: held };
    expect(await failing(short(good), options)).toEqual([]);
    const wrong = { ...short(good), cpu: short(await answerIn(session, OTHER)).cpu };
    expect(await failing(wrong, options)).toEqual(['cpu_answer answer_signature_invalid']);
    expect(await failing(short(await answerIn(session, EXCHANGE, [b])), options)).toEqual([
      'cpu_devices cpu_devices_mismatch',
    ]);
    const late = await answerIn(session, { ...EXCHANGE, timestamp: SECONDS + 3_001 });
    expect(await failing(short(late), options)).toEqual(['cpu_binding session_expired']);
  });

  test('a simulated session stays simulated', async () => {
    const { session: held } = await verifySession({ ...session.cpu, gpu: session.gpu }, OPTIONS);
    const report = await appraiseAttestation(short(good), { ...OWN_ROOTS, session: held });
    expect(report).toMatchObject({ valid: true, level: 'none', claims: { simulated: true } });
  });
});

describe('evidence that fails by itself fails the attestation', () => {
  test('a report that a debugger may look into', async () => {
    const leaf = makeLeaf(amd);
    const debug: typeof snp = (reportData) => {
      const edit = (report: Buffer) => void report.writeUInt32LE(report.readUInt32LE(8) | (1 << 19), 8);
      const made = snp(reportData);
      return {
        ...made,
        report: makeSnpReport('Genoa', leaf, { reportData, edit }).toString('base64'),
        certificates: Buffer.from(pem(leaf, amd.ask)).toString('base64'),
      };
    };
    expect(await failing(await answerIn(await makeSession({ processor: debug })))).toEqual(['cpu_mode debug_enabled']);
  });

  test('a product that the caller does not accept', async () => {
    expect(await failing(good, { cpu: { policy: { products: ['Turin'] } } })).toEqual(['cpu_mode cpu_policy_refused']);
  });

  test('options that cannot be used are an error of the caller', async () => {
    await expect(appraiseAttestation(good, { ...OPTIONS, cpu: { roots: { amd: 'none' } } })).rejects.toThrow(TypeError);
    await expect(appraiseAttestation(good, { ...OPTIONS, policy: { minLevel: 'cpu' as never } })).rejects.toThrow(
      TypeError,
    );
  });
});
