// What a sidecar with `nvtrust` adds to the collection: a worker kept warm, beside a cold start of the same SDK.
import { randomBytes } from 'node:crypto';
import { MissingPart } from '../../test/twin/missing.ts';
import { plainAttest } from '../../test/twin/plain.ts';
import { startNvtrust } from '../../test/twin/stage.ts';
import { startTwin, type Twin } from '../../test/twin/twin.ts';
import { median } from '../report/stats.ts';
import type { Grid } from '../report/table.ts';
import { sleep } from '../system/clock.ts';
import { COLLECTIONS_MS } from './collections.ts';
import { startTrips } from './trips.ts';

const ROUNDS = 5;
/** The successor of a worker is up by then. */
const SUCCESSOR_MS = 1_500;
const EXPECTED_TIMES = 5;

/** @returns what is missing, in words, where NVIDIA's SDK cannot be had. */
export async function nvtrustOverhead(): Promise<Grid | string> {
  try {
    const twin = await startTwin();
    try {
      return await measure(twin);
    } finally {
      await twin.close();
    }
  } catch (error) {
    if (error instanceof MissingPart) return error.message;
    throw error;
  }
}

async function measure(twin: Twin): Promise<Grid> {
  const trips = await startTrips(await startNvtrust(twin), twin.roots.device);
  const lines: Grid['lines'][number][] = [];
  try {
    for (const collection_ms of COLLECTIONS_MS) {
      twin.faults.collection_ms = collection_ms;
      const warm_ms: number[] = [];
      const cold_ms: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        await sleep(SUCCESSOR_MS);
        warm_ms.push(await trips.once());
        await sleep(SUCCESSOR_MS); // its successor starts now, and must not disturb the cold start
        const plain = await plainAttest(twin, randomBytes(32).toString('hex'));
        if (!plain.result) throw new Error("NVIDIA's SDK says no");
        cold_ms.push(plain.ms);
      }
      const [warm, cold] = [median(warm_ms), median(cold_ms)];
      const times = cold / warm;
      const beyond = [(warm - collection_ms).toFixed(0), (cold - collection_ms).toFixed(0)];
      const verdict = times >= EXPECTED_TIMES ? 'as expected' : 'LESS';
      lines.push({
        name: `collection ${collection_ms} ms`,
        cells: [warm.toFixed(0), cold.toFixed(0), ...beyond, times.toFixed(1), `≥ ${EXPECTED_TIMES}`, verdict],
      });
    }
  } finally {
    await trips.close();
  }
  return {
    title: `Sidecar with nvtrust, p50 of ${ROUNDS}: a warm worker's round trip beside a cold start of the same SDK`,
    heads: ['warm ms', 'cold ms', 'warm beyond', 'cold beyond', 'times', 'expected', ''],
    lines,
  };
}
