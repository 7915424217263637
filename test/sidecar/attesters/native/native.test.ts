// ATTESTER=native over the twin: what NVML's stand-in says becomes evidence and a token that verify/ takes, or words.
import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Nonce } from '../../../../proto/attestation/raw.ts';
import { createNativeAttester, type NativeAttester } from '../../../../sidecar/attesters/native/native.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { appraiseAttestation, createCollateral } from '../../../../verify/index.ts';
import { checkTokenDigests } from '../../../../verify/token/digests.ts';
import { verifyTokenSignature } from '../../../../verify/token/signature.ts';
import { parseToken } from '../../../../verify/token/token.ts';
import { failureOf, freshNonce, never } from '../../../support/attest.ts';
import { noFaults } from '../../../twin/faults.ts';
import { type Bench, missing, startBench } from './native-bench.ts';

describe.skipIf(missing !== null)('native over the twin', () => {
  let bench: Bench;
  let attester: NativeAttester;

  beforeAll(async () => {
    bench = await startBench(2);
    attester = await createNativeAttester({ ...bench.options, collection_timeout_ms: 800 });
  });
  afterEach(() => void Object.assign(bench.faults, noFaults()));
  afterAll(async () => {
    await attester?.close();
    await bench?.close();
  });

  test('every GPU gives evidence over the nonce, and the sidecar takes it', async () => {
    const nonce = freshNonce();
    const collected = await attester.attest(nonce, never);
    expect(attester.devices).toEqual([
      { arch: 'HOPPER', model: 'SIMULATED H100' },
      { arch: 'HOPPER', model: 'SIMULATED H100' },
    ]);
    expect(collected.evidence).toHaveLength(2);
    await checkCollected(collected, nonce, { ...attester, simulated: { root: bench.options.roots.device } });
  });

  test("the token is a detached EAT of ours: nonces, digests and signature hold under this process's key alone", async () => {
    const nonce = freshNonce();
    const { token } = await attester.attest(nonce, never);
    const parsed = parseToken(token);
    expect(parsed).toMatchObject({ kind: 'countersign', overallResult: true, issuer: 'countersign-native' });
    expect(new Set(parsed.nonces)).toEqual(new Set([nonce]));
    expect(parsed.devices.map(({ name, measres, debug }) => [name, measres, debug])).toEqual([
      ['GPU-0', 'success', 'disabled'],
      ['GPU-1', 'success', 'disabled'],
    ]);
    expect((await checkTokenDigests(parsed)).rechecked).toBe(2);
    const at = new Date();
    const signed = await verifyTokenSignature(parsed, { countersignKeys: attester.token_keys, at });
    expect(signed.signature).toBe('countersign-signed');
    // In NVIDIA's set our key counts for nothing.
    await expect(verifyTokenSignature(parsed, { keys: attester.token_keys, at })).resolves.toMatchObject({
      signature: 'self-asserted',
    });
  });

  test('an attestation with it is valid for who holds the key of this process', async () => {
    const raw = `{"request":{},"response":{},"timestamp":${Math.floor(Date.now() / 1000)}}`;
    const nonce = createHash('sha256').update(raw).digest('hex') as Nonce;
    const { token, evidence } = await attester.attest(nonce, never);
    const { roots, rim_url, ocsp_url, fetch } = bench.options;
    const report = await appraiseAttestation(
      { raw, nonce, token, evidence },
      {
        roots,
        collateral: createCollateral({ rim_url: new URL(rim_url).origin, ocsp_url, fetch }),
        countersignKeys: attester.token_keys,
      },
    );
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report).toMatchObject({ valid: true, claims: { token: { signature: 'countersign-signed' } } });
  });

  test('reference values and answers are asked for once', async () => {
    await attester.attest(freshNonce(), never);
    const before = bench.counts();
    for (let i = 0; i < 3; i++) await attester.attest(freshNonce(), never);
    expect(bench.counts()).toMatchObject({ rim: before.rim, ocsp: before.ocsp });
  });

  test.each([
    [3, 'unsupported_gpu', false],
    [4, 'no_permission', false],
    [10, 'nvml_timeout', true],
    [15, 'gpu_lost', false],
    [19, 'gpu_busy', true],
    [999, 'nvml_error', true],
    [77, 'nvml_error', false],
  ])('NVML error %i is told as %s', async (code, reason, retryable) => {
    bench.faults.nvml.set('nvmlDeviceGetConfComputeGpuAttestationReport', code);
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ code: 'collection_failed', retryable });
    expect(error.message).toMatch(new RegExp(`^${reason}: .*NVML error ${code}`));
    bench.faults.nvml.clear();
    await attester.attest(freshNonce(), never);
  });

  test.each([
    ['cc_off', { cc: 'off' }],
    ['devtools_on', { devtools: 'on' }],
  ] as const)('a mode in which the GPU proves nothing is refused: %s', async (reason, faults) => {
    Object.assign(bench.faults, faults);
    for (const work of [attester.attest(freshNonce(), never), createNativeAttester(bench.options)])
      expect(await failureOf(work)).toMatchObject({
        code: 'collection_failed',
        retryable: false,
        message: expect.stringMatching(new RegExp(`^${reason}: `)),
      });
  });

  test('a measurement that is not the reference value is refused', async () => {
    bench.faults.report.set(1, { measurements: new Map([[3, randomBytes(48)]]) });
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ code: 'appraisal_failed', retryable: false });
    expect(error.message).toBe('measurement_mismatch: GPU 1: the device does not match VBIOS RIM indices 3');
  });

  test('a broken signature on the second of two GPUs is refused', async () => {
    bench.faults.report.set(1, { breakSignature: true });
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ code: 'appraisal_failed', retryable: false });
    expect(error.message).toMatch(/^report_signature_invalid: GPU 1: /);
  });

  test('a report over the nonce before is refused', async () => {
    bench.faults.stale_nonce.add(0);
    expect((await failureOf(attester.attest(freshNonce(), never))).message).toMatch(/^report_nonce_mismatch: GPU 0: /);
  });

  test('a GPU that is slow is given up in time, and the next request waits until it is done', async () => {
    bench.faults.collection_ms = 1200;
    const first = await failureOf(attester.attest(freshNonce(), never));
    expect(first).toMatchObject({ code: 'collection_failed', retryable: true });
    expect(first.message).toBe('nvml_timeout: a device did not answer within 800 ms');
    bench.faults.collection_ms = 0;
    await attester.attest(freshNonce(), never);
  });

  test('who leaves is let go at once', async () => {
    const own = await createNativeAttester(bench.options);
    await own.attest(freshNonce(), never);
    bench.faults.collection_ms = 600;
    const leaving = new AbortController();
    const work = own.attest(freshNonce(), leaving.signal);
    setTimeout(() => leaving.abort(new Error('the gateway left')), 20);
    const started = performance.now();
    await expect(work).rejects.toThrow('the gateway left');
    expect(performance.now() - started).toBeLessThan(570);
    // What it left behind goes on, and the driver is not closed under it.
    await own.close();
    await delay(200);
  });

  test('GPUs report at the same time', async () => {
    const own = await createNativeAttester(bench.options);
    await own.attest(freshNonce(), never);
    bench.faults.collection_ms = 500;
    const started = performance.now();
    await own.attest(freshNonce(), never);
    expect(performance.now() - started).toBeLessThan(1_000);
    await own.close();
  });

  test('a driver that cannot be opened is told at the start: not loaded, and hanging', async () => {
    bench.faults.nvml.set('nvmlInit', 9);
    const gone = await failureOf(createNativeAttester(bench.options));
    expect(gone).toMatchObject({ retryable: false, message: expect.stringMatching(/^no_driver: .*dmesg/) });
    Object.assign(bench.faults, noFaults());
    bench.faults.nvml.set('nvmlSystemGetConfComputeSettings', 13);
    await (await createNativeAttester(bench.options)).close();
    bench.faults.hang.add('nvmlInit');
    const hangs = await failureOf(createNativeAttester({ ...bench.options, collection_timeout_ms: 50 }));
    expect(hangs).toMatchObject({ retryable: true, message: expect.stringMatching(/^nvml_timeout: /) });
    const again = { ...bench.options, collection_timeout_ms: 50, parallel_calls: 1 };
    expect((await failureOf(createNativeAttester(again))).message).toMatch(/^nvml_timeout: earlier calls hang/);
  });

  test('a driver that is not there is told with what to do', async () => {
    const error = await failureOf(createNativeAttester({ ...bench.options, library: '/nowhere/libnvidia-ml.so.1' }));
    expect(error).toMatchObject({ code: 'collection_failed', retryable: false });
    expect(error.message).toMatch(/^no_driver: .*install the NVIDIA driver/);
  });
});
