// How much native adds to the collection itself, its caches warm. The bar is 15 ms at the median, on a machine of its own.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createNativeAttester } from '../../../../sidecar/attesters/native/native.ts';
import { type Collector, createCollector } from '../../../../sidecar/driver/gpu-collector.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { freshNonce, never } from '../../../support/attest.ts';
import { type Bench, missing, startBench } from './native-bench.ts';

const ROUNDS = 50;
/** What other tests on the same two cores may cost. */
const LOOSE_MS = 100;

const percentile = (values: readonly number[], p: number) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * p))] ?? Number.NaN;

describe.skipIf(missing !== null)('what native costs beyond the collection', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await startBench();
  });
  afterAll(() => bench?.close());

  test.each([0, 50])('with a collection of %i ms', async (collection_ms) => {
    bench.faults.collection_ms = collection_ms;
    const inner = await createCollector(bench.options);
    let collect_ms = 0;
    const collector: Collector = {
      ...inner,
      async collect(nonce, signal) {
        const started = performance.now();
        const evidence = await inner.collect(nonce, signal);
        collect_ms = performance.now() - started;
        return evidence;
      },
    };
    const attester = await createNativeAttester({ ...bench.options, collector });
    const overhead: number[] = [];
    const check: number[] = [];
    for (let i = 0; i < (collection_ms === 0 ? ROUNDS : 10) + 5; i++) {
      const nonce = freshNonce();
      const started = performance.now();
      const collected = await attester.attest(nonce, never);
      const done = performance.now();
      await checkCollected(collected, nonce, { ...attester, simulated: { root: bench.options.roots.device } });
      if (i < 5) continue;
      overhead.push(done - started - collect_ms);
      check.push(performance.now() - done);
    }
    await attester.close();
    const figures = [overhead, check].map((values) =>
      [0.5, 0.95].map((p) => percentile(values, p).toFixed(1)).join('/'),
    );
    console.info(
      `native, collection ${collection_ms} ms: appraisal and token ${figures[0]} ms (p50/p95), the sidecar's own check ${figures[1]} ms`,
    );
    expect(percentile(overhead, 0.5)).toBeLessThan(LOOSE_MS);
  });
});
