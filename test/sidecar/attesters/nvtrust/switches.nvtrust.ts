// NVIDIA's own GPU and switch verifiers, unmodified, over a node behind protected PCIe, and over a B200: true, or a refusal.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { labelled } from '../../../../demo/twin/identity.ts';
import type { Attester, AttesterError } from '../../../../sidecar/common/attester.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { appraiseAttestation, createCollateral } from '../../../../verify/index.ts';
import { parseToken } from '../../../../verify/token/token.ts';
import { freshNonce } from '../../../support/attest.ts';
import { CHAT, chat } from '../../../support/client.ts';
import { eventually } from '../../../support/harness.ts';
import { type Faults, noFaults } from '../../../twin/faults.ts';
import { B200 } from '../../../twin/models.ts';
import { type Stage, startNvtrust, startStage } from '../../../twin/stage.ts';
import { startTwin, type Twin } from '../../../twin/twin.ts';

const lacks = inject('twinLacks');
const suffix = lacks === null ? '' : `, SKIPPED without ${lacks}`;

describe.skipIf(lacks !== null).each([
  ['two H100 behind two NVSwitches', { switch_count: 2 }, ['HOPPER', 'HOPPER', 'LS10', 'LS10']],
  ['two B200', { model: B200 }, ['BLACKWELL', 'BLACKWELL']],
] as const)(`%s${suffix}`, (_what, machine, arches) => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage(2, machine);
  });
  afterAll(() => stage?.close());

  it("NVIDIA's verifiers say true of every device for a fresh nonce of ours", async () => {
    const nonce = freshNonce();
    const { attester } = stage.sidecar;
    const collected = await attester.attest(nonce, AbortSignal.timeout(20_000));
    await checkCollected(collected, nonce, attester);
    const said = parseToken(collected.token);
    expect(said).toMatchObject({ kind: 'nvtrust', overallResult: true });
    expect(new Set(said.nonces)).toEqual(new Set([nonce]));
    expect(said.devices.map(({ measres }) => measres)).toEqual(arches.map(() => 'success'));
    expect(collected.evidence.map(({ arch }) => arch)).toEqual(arches);
    console.log(
      `NVIDIA's verifiers (${said.issuer}): ${said.overallResult} of ${said.devices.map(({ name }) => name)}`,
    );
  });

  it('stands behind a chat with tee, and the answer passes every check of ours', async () => {
    const asked = JSON.stringify({ ...CHAT, tee: true });
    const got = await chat(stage.gateway.url, asked);
    expect(got.status).toBe(200);
    const { rim_url, ocsp_url } = stage.twin.services;
    const report = await appraiseAttestation(got.text, {
      simulatedRoot: stage.twin.roots.device,
      roots: { rim: stage.twin.roots.rim },
      collateral: createCollateral({ fetch, rim_url, ocsp_url }),
      expected: { request: asked, response: got.text },
    });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.valid).toBe(true);
    expect(report.claims.devices.map(({ arch }) => arch)).toEqual(arches);
  });
});

type Row = readonly [fault: string, what: Partial<Faults>, code: string, message: string, again: boolean];
const wrong = new Map([[2, labelled('another firmware')]]);
const broken = (index: number): Partial<Faults> => ({ switch_report: new Map([[index, { breakSignature: true }]]) });
const ROWS: readonly Row[] = [
  ['switches not locked', { switches_locked: false }, 'collection_failed', 'switch_unlocked', false],
  ['NSCQ: no driver', { nvml: new Map([['switches', -7]]) }, 'collection_failed', 'no_driver', false],
  ['NSCQ: timeout', { nvml: new Map([['config/pcie_mode', -8]]) }, 'collection_failed', 'gpu_busy', true],
  ['NSCQ hangs', { hang: new Set(['config/attestation_report']) }, 'collection_failed', 'worker_timeout', true],
  [
    'a report with no bytes',
    { nvml: new Map([['config/attestation_report', -8]]) },
    'collection_failed',
    'collection_failed',
    true,
  ],
  ['the report of another request', { stale_switch_nonce: new Set([1]) }, 'appraisal_failed', 'nonce_mismatch', false],
  ['a broken signature on switch 0', broken(0), 'appraisal_failed', 'report_signature', false],
  ['a broken signature on switch 1 of 2', broken(1), 'appraisal_failed', 'report_signature', false],
  [
    'a wrong measurement on switch 0',
    { switch_report: new Map([[0, { measurements: wrong }]]) },
    'appraisal_failed',
    'measurement_mismatch',
    false,
  ],
  [
    'a wrong measurement on switch 1 of 2',
    { switch_report: new Map([[1, { measurements: wrong }]]) },
    'appraisal_failed',
    'measurement_mismatch',
    false,
  ],
  [
    'a broken signature on GPU 0',
    { report: new Map([[0, { breakSignature: true }]]) },
    'appraisal_failed',
    'report_signature',
    false,
  ],
  ['protected PCIe off since the start', { protected_pcie: false }, 'collection_failed', 'worker_died', true],
];

describe.skipIf(lacks !== null)(`a node behind protected PCIe where something is wrong${suffix}`, () => {
  let twin: Twin;
  let attester: Attester;
  const seen: string[] = [];
  const on = { ...noFaults(), protected_pcie: true };

  async function attest() {
    const nonce = freshNonce();
    const collected = await attester.attest(nonce, AbortSignal.timeout(20_000));
    await checkCollected(collected, nonce, attester);
    return collected;
  }

  beforeAll(async () => {
    twin = await startTwin(1, { switch_count: 2 });
    attester = await startNvtrust(twin, { answer_deadline_ms: 4_000, backoff_ms: 50 });
  });
  beforeEach(async () => {
    Object.assign(twin.faults, noFaults(), on);
    await eventually(() => attest().then(Boolean, () => false), 20_000);
  });
  afterAll(async () => {
    await attester?.close();
    await twin?.close();
    console.log(`fault → code, worth another try, message at the sidecar\n${seen.join('\n')}`);
  });

  it.each(ROWS)('%s', async (fault, what, code, message, again) => {
    Object.assign(twin.faults, what);
    const error = await attest().then(
      () => null,
      (thrown: AttesterError) => thrown,
    );
    if (error !== null)
      seen.push([fault.padEnd(37), error.code.padEnd(17), error.retryable ? 'yes' : 'no ', error.message].join('  '));
    expect(error).toMatchObject({ name: 'AttesterError', code, retryable: again });
    expect(error?.message).toMatch(new RegExp(`^${message}: `));
  });
});

describe.skipIf(lacks !== null)(`a node behind protected PCIe that lacks a part${suffix}`, () => {
  it.each([
    ['the library of its switches', 0, {}, 'no_nscq'],
    ['every switch', 1, { no_switches: true }, 'no_switch'],
    ['a switch that can attest', 1, { switch_architecture: 1 }, 'unsupported_switch'],
  ] as const)('is refused at the start: %s', async (_what, switch_count, faults, reason) => {
    const twin = await startTwin(1, { switch_count });
    Object.assign(twin.faults, { protected_pcie: true }, faults);
    await expect(startNvtrust(twin)).rejects.toThrow(new RegExp(`^ATTESTER=nvtrust cannot run here: ${reason}: `));
    await twin.close();
  });
});
