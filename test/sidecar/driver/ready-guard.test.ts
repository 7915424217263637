// What the sidecar does when the driver tears confidential computing down, over the twin's driver.
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createNativeAttester } from '../../../sidecar/attesters/native/native.ts';
import { type Attester, failed } from '../../../sidecar/common/attester.ts';
import { createReadReady, createReadyGuard } from '../../../sidecar/driver/ready-guard.ts';
import { failureOf, freshNonce, never } from '../../support/attest.ts';
import { type Bench, missing, startBench } from '../attesters/native/native-bench.ts';
import { schedule } from '../signing/schedule.ts';

const REPORT = 'nvmlDeviceGetConfComputeGpuAttestationReport';
const UNKNOWN = 999;
const NO_PERMISSION = 4;
const error = (reason: 'gpu_lost' | 'gpu_busy') => failed('collection_failed', reason, 'scripted', 'stop');

describe.skipIf(missing !== null)('a driver that ends confidential computing at the first failed call', () => {
  let bench: Bench;
  let attester: Attester;

  beforeEach(async () => {
    bench = await startBench();
    bench.faults.tears_down = true;
    const { library, parallel_calls } = bench.options;
    const guard = createReadyGuard(createReadReady(library, parallel_calls));
    attester = await guard.attester(() => createNativeAttester(bench.options));
  });
  afterEach(async () => {
    await attester.close();
    await bench.close();
  });

  test('is named, and is not asked again, also when the fault has passed', async () => {
    await attester.attest(freshNonce(), never);
    bench.faults.nvml.set(REPORT, UNKNOWN);
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ code: 'cc_lost', reason: 'cc_lost', retryable: false });
    expect(error.message).toMatch(/restart the guest$/);
    bench.faults.nvml.clear();
    const { collected } = bench.counts();
    expect(await failureOf(attester.attest(freshNonce(), never))).toMatchObject({ code: 'cc_lost' });
    expect(bench.counts().collected).toBe(collected);
  });

  test('leaves the circuit open: no trial reaches the GPU', async () => {
    const reported: (string | null)[] = [];
    const scheduler = schedule(attester, { onUnavailable: (one) => reported.push(one?.code ?? null) });
    await scheduler.attest(freshNonce(), never);
    bench.faults.nvml.set(REPORT, UNKNOWN);
    expect(await failureOf(scheduler.attest(freshNonce(), never))).toMatchObject({ code: 'cc_lost' });
    bench.faults.nvml.clear();
    bench.faults.ready = true;
    const { collected } = bench.counts();
    await delay(150); // five trials of another failure
    scheduler.failed(error('gpu_lost'));
    expect(scheduler.unavailable).toMatchObject({ code: 'cc_lost' });
    expect(bench.counts().collected).toBe(collected);
    expect(reported).toEqual(['cc_lost']);
  });

  test('is not meant by a failure that leaves the GPUs ready', async () => {
    bench.faults.tears_down = false;
    bench.faults.nvml.set(REPORT, UNKNOWN);
    const failure = await failureOf(attester.attest(freshNonce(), never));
    expect(failure).toMatchObject({ code: 'collection_failed', reason: 'nvml_error' });
    bench.faults.nvml.clear();
    await expect(attester.attest(freshNonce(), never)).resolves.toMatchObject({ evidence: [{ arch: 'HOPPER' }] });
  });
});

describe.skipIf(missing !== null)('GPUs that nobody has set ready yet', () => {
  test('fail with their own reason, and attest when that has passed', async () => {
    const bench = await startBench();
    bench.faults.ready = false;
    const { library, parallel_calls } = bench.options;
    const guard = createReadyGuard(createReadReady(library, parallel_calls));
    bench.faults.nvml.set('nvmlDeviceGetCount', NO_PERMISSION);
    const make = () => guard.attester(() => createNativeAttester(bench.options));
    expect(await failureOf(make())).toMatchObject({ reason: 'no_permission' });
    bench.faults.nvml.clear();
    const attester = await make();
    bench.faults.nvml.set(REPORT, UNKNOWN);
    expect(await failureOf(attester.attest(freshNonce(), never))).toMatchObject({ reason: 'nvml_error' });
    bench.faults.nvml.clear();
    await attester.attest(freshNonce(), never);
    await attester.close();
    await bench.close();
  });
});

describe('without NVML', () => {
  test('the guard knows nothing, and every failure keeps its reason', async () => {
    const readReady = createReadReady('libnot-there.so.1', 1);
    expect(await readReady()).toBeNull();
    let broken = true;
    const attester = await createReadyGuard(readReady).attester(async () => ({
      name: 'scripted',
      devices: [],
      simulated: null,
      async attest() {
        if (broken) throw error('gpu_busy');
        return { token: '{}', evidence: [] };
      },
      close: async () => {},
    }));
    expect(await failureOf(attester.attest(freshNonce(), never))).toMatchObject({ reason: 'gpu_busy' });
    broken = false;
    expect((await attester.attest(freshNonce(), never)).token).toBe('{}');
  });
});
