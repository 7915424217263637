// ATTESTER=native over the twin as an H100 behind NVSwitches, and as a B200: evidence of every device, a token of ours, or words.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { labelled } from '../../../../demo/twin/identity.ts';
import { buildRaw, nonceOf } from '../../../../proto/attestation/raw.ts';
import { createNativeAttester, type NativeAttester } from '../../../../sidecar/attesters/native/native.ts';
import { createNrasAttester } from '../../../../sidecar/attesters/nras/nras.ts';
import type { AttesterError } from '../../../../sidecar/common/attester.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { appraiseAttestation, createCollateral } from '../../../../verify/index.ts';
import { parseToken } from '../../../../verify/token/token.ts';
import { freshNonce, never } from '../../../support/attest.ts';
import { type Faults, noFaults } from '../../../twin/faults.ts';
import { B200 } from '../../../twin/models.ts';
import { type Bench, missing, startBench } from './native-bench.ts';

/** An attestation over an exchange, as a gateway would hand it on, appraised as anybody would. */
async function appraised(bench: Bench, attester: NativeAttester) {
  const raw = buildRaw({ request: '{"model":"m"}', response: '{"id":"r"}', timestamp: Math.floor(Date.now() / 1000) });
  const nonce = await nonceOf(raw);
  const collected = await attester.attest(nonce, never);
  const { roots, rim_url, ocsp_url, fetch } = bench.options;
  await checkCollected(collected, nonce, { ...attester, simulated: { root: roots.device } });
  const { token, evidence } = collected;
  return appraiseAttestation(JSON.stringify({ raw, nonce, token, evidence }), {
    simulatedRoot: roots.device,
    roots: { rim: roots.rim },
    collateral: createCollateral({ fetch, rim_url, ocsp_url }),
    countersignKeys: attester.token_keys,
  });
}

describe.skipIf(missing !== null)('native behind protected PCIe', () => {
  let bench: Bench;
  let attester: NativeAttester;
  const on = () => Object.assign(bench.faults, noFaults(), { protected_pcie: true });

  beforeAll(async () => {
    bench = await startBench(2, { switch_count: 2 });
    attester = await createNativeAttester({ ...bench.options, collection_timeout_ms: 800 });
  });
  afterEach(() => void on());
  afterAll(async () => {
    await attester?.close();
    await bench?.close();
  });

  test('every GPU and every switch gives evidence over the nonce, and all of it verifies', async () => {
    expect(attester.devices.map(({ arch }) => arch)).toEqual(['HOPPER', 'HOPPER', 'LS10', 'LS10']);
    const report = await appraised(bench, attester);
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.valid).toBe(true);
    expect(report.claims.devices.map(({ kind, mode }) => [kind, mode])).toEqual([
      ['gpu', 'ppcie'],
      ['gpu', 'ppcie'],
      ['switch', null],
      ['switch', null],
    ]);
  });

  test('the token names each kind by itself', async () => {
    const { token } = await attester.attest(freshNonce(), never);
    expect(parseToken(token).devices.map(({ name, measres, vbios }) => [name, measres, vbios])).toEqual([
      ['GPU-0', 'success', '53.49.4D.00.01'],
      ['GPU-1', 'success', '53.49.4D.00.01'],
      ['SWITCH-0', 'success', '53.49.4D.00.02'],
      ['SWITCH-1', 'success', '53.49.4D.00.02'],
    ]);
  });

  const wrong = new Map([[2, labelled('another firmware')]]);
  test.each<[string, Partial<Faults>, RegExp]>([
    ['a switch that is not locked', { switches_locked: false }, /^switch_unlocked: switch 0 /],
    ['a switch that does not answer in time', { nvml: new Map([['config/attestation_report', -8]]) }, /^switch_busy: /],
    ['a switch whose driver is gone', { nvml: new Map([['switches', -7]]) }, /^no_driver: /],
    ['the nonce of another request', { stale_switch_nonce: new Set([1]) }, /^report_nonce_mismatch: switch 1: /],
    [
      'a broken signature',
      { switch_report: new Map([[1, { breakSignature: true }]]) },
      /^report_signature_invalid: switch 1: /,
    ],
    [
      'a wrong measurement',
      { switch_report: new Map([[0, { measurements: wrong }]]) },
      /^measurement_mismatch: switch 0: /,
    ],
    [
      'a switch that the GPUs do not name',
      { switch_report: new Map([[1, { fabricIds: [Buffer.alloc(8, 7)] }]]) },
      /^topology_mismatch: device 3 is a switch that the GPUs do not name/,
    ],
    [
      'a GPU at the switches of another machine',
      { report: new Map([[1, { fabricIds: [Buffer.alloc(8, 7), Buffer.alloc(8, 8)] }]]) },
      /^topology_mismatch: device 1 is at other switches than device 0/,
    ],
    ['protected PCIe off since the start', { protected_pcie: false }, /^gpu_lost: protected PCIe/],
  ])('%s is refused in words', async (_what, faults, words) => {
    Object.assign(bench.faults, faults);
    const failed = await attester.attest(freshNonce(), never).then(
      () => null,
      (error: AttesterError) => error,
    );
    expect(failed).toMatchObject({ name: 'AttesterError', message: expect.stringMatching(words) });
    on();
    await expect
      .poll(() => attester.attest(freshNonce(), never).then(Boolean, () => false), { timeout: 5_000 })
      .toBe(true);
  });

  test('a switch that hangs keeps itself, and the sidecar says so and ends', async () => {
    const hung = await startBench(1, { switch_count: 1 });
    const other = await createNativeAttester({ ...hung.options, collection_timeout_ms: 300 });
    hung.faults.hang.add('config/attestation_report');
    await expect(other.attest(freshNonce(), never)).rejects.toThrow(/^nvml_timeout: /);
    await other.close();
    await hung.close();
  });

  test('nras refuses such a node: it has no service for switches', async () => {
    await expect(createNrasAttester(bench.options)).rejects.toThrow(/^protected_pcie: .*cannot attest the switches/);
  });
});

describe.skipIf(missing !== null)('native on a node whose switches cannot be asked', () => {
  test.each([
    ['no library', { switch_count: 1, switch_library: false }, {}, /^no_nscq: .*libnvidia-nscq/],
    ['no switch', { switch_count: 1 }, { switches: 0 }, /^no_switch: /],
    ['a switch of another kind', { switch_count: 1 }, { architecture: 1 }, /^unsupported_switch: switch 0 /],
  ])('%s: refused in words at the start', async (_what, machine, seen, words) => {
    const bench = await startBench(1, machine);
    if ('switches' in seen) bench.faults.no_switches = true;
    if ('architecture' in seen) bench.faults.switch_architecture = 1;
    await expect(createNativeAttester(bench.options)).rejects.toThrow(words);
    await bench.close();
  });
});

describe.skipIf(missing !== null)('native on a B200', () => {
  test('its evidence, its reference values and its token verify', async () => {
    const bench = await startBench(1, { model: B200 });
    const attester = await createNativeAttester(bench.options);
    const report = await appraised(bench, attester);
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.valid).toBe(true);
    expect(report.claims.devices).toMatchObject([{ arch: 'BLACKWELL', chip: 'GB100', mode: 'spt' }]);
    expect(report.checks.find(({ name }) => name === 'report_fwid')).toMatchObject({ status: 'pass' });
    await attester.close();
    await bench.close();
  });
});

describe.skipIf(missing !== null)('native on a driver with the newer report format', () => {
  test('its evidence and its token verify', async () => {
    const bench = await startBench(1);
    bench.faults.new_format = true;
    const attester = await createNativeAttester(bench.options);
    const report = await appraised(bench, attester);
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.valid).toBe(true);
    await attester.close();
    await bench.close();
  });
});
