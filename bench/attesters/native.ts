// What a sidecar with `native` adds to the collection itself, its caches warm.
import { createNativeAttester } from '../../sidecar/attesters/native/native.ts';
import { type Collector, createCollector } from '../../sidecar/driver/collector.ts';
import { missing, startBench } from '../../test/sidecar/attesters/native/native-bench.ts';
import { percentile } from '../report/stats.ts';
import type { Grid } from '../report/table.ts';
import { COLLECTIONS_MS } from './collections.ts';
import { startTrips } from './trips.ts';

const WARM_TRIPS = 10;
const TRIPS = { 0: 100, 50: 40, 500: 8 };
const BAR_MS = 15;

/** Null where a part is missing: native-bench has said which. */
export async function nativeOverhead(): Promise<Grid | null> {
  if (missing !== null) return null;
  const bench = await startBench();
  let collecting_ms = 0;
  const inner = await createCollector(bench.options);
  const collector: Collector = {
    ...inner,
    async collect(nonce, signal) {
      const start = performance.now();
      const evidence = await inner.collect(nonce, signal);
      collecting_ms = performance.now() - start;
      return evidence;
    },
  };
  const attester = await createNativeAttester({ ...bench.options, collector });
  const trips = await startTrips(attester, bench.options.roots.device);
  const lines: Grid['lines'][number][] = [];
  try {
    for (let i = 0; i < WARM_TRIPS; i++) await trips.once();
    for (const collection_ms of COLLECTIONS_MS) {
      bench.faults.collection_ms = collection_ms;
      const beyond_ms: number[] = [];
      for (let i = 0; i < TRIPS[collection_ms]; i++) beyond_ms.push((await trips.once()) - collecting_ms);
      const [p50, p99] = [percentile(beyond_ms, 0.5), percentile(beyond_ms, 0.99)];
      const cells = [p50.toFixed(1), p99.toFixed(1), `≤ ${BAR_MS}`, p50 <= BAR_MS ? 'pass' : 'MISS'];
      lines.push({ name: `collection ${collection_ms} ms`, cells });
    }
  } finally {
    await trips.close();
    await bench.close();
  }
  return {
    title: 'Sidecar with native: round trip beyond the collection itself',
    heads: ['p50 ms', 'p99 ms', 'bar', ''],
    lines,
  };
}
