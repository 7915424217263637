// The way to the sidecar and back, through the gateway's own client: one attestation at a time, small and large raw.
import { join } from 'node:path';
import { percentile } from '../report/stats.ts';
import { stop } from '../system/process.ts';
import { startSidecar } from '../targets/ours.ts';
import { type Asker, connectTo } from '../trip.ts';
import type { Bench, Figure, Measured } from './figure.ts';

/** Beside those that are counted. */
const WARM_SHARE = 0.25;
const KINDS = {
  unchecked: 'neither signed nor checked',
  blank: 'checked, not signed',
  simulated: 'signed by the twin',
} as const;
const SIZES = { '4 KB': 4 * 1024, '256 KB': 256 * 1024, '4 MB': 4 * 1024 * 1024 } as const;
/** Large raws are slow: fewer of them. */
const LARGE_BYTES = 1024 * 1024;
const LARGE_SHARE = 0.1;

export const sidecar: Figure = {
  name: 'sidecar',
  once: true,
  title: (plan) => `Sidecar round trip, one at a time, ${plan.trips} of each (4 MB: ${plan.trips * LARGE_SHARE})`,
  columns: [
    { key: 'p50', title: 'p50 µs', digits: 0 },
    { key: 'p99', title: 'p99 µs', digits: 0 },
  ],
  async round(bench) {
    const rows: Measured[] = [];
    for (const kind of Object.keys(KINDS) as (keyof typeof KINDS)[]) rows.push(...(await measure(bench, kind)));
    return rows;
  },
};

async function measure({ where, plan }: Bench, kind: keyof typeof KINDS): Promise<Measured[]> {
  const socket = join(where.folder, `trip-${kind}.sock`);
  const child = startSidecar(kind, socket, where.folder);
  const rows: Measured[] = [];
  let asker: Asker | null = null;
  try {
    asker = await connectTo(socket);
    for (const [size, bytes] of Object.entries(SIZES)) {
      const trips = bytes > LARGE_BYTES ? plan.trips * LARGE_SHARE : plan.trips;
      const took_us = await tripsOf(asker, bytes, trips);
      const values = { p50: percentile(took_us, 0.5), p99: percentile(took_us, 0.99) };
      rows.push({ name: `${size} raw, ${KINDS[kind]}`, values, wrong: null });
    }
  } catch (error) {
    rows.push({ name: `sidecar ${kind}`, values: {}, wrong: (error as Error).message });
  } finally {
    asker?.close();
    await stop(child);
  }
  return rows;
}

async function tripsOf(asker: Asker, bytes: number, trips: number): Promise<number[]> {
  const took_us: number[] = [];
  const warm = Math.ceil(trips * WARM_SHARE);
  for (let i = 0; i < warm + trips; i++) {
    const took_ms = await asker.trip(bytes);
    if (i >= warm) took_us.push(took_ms * 1e3);
  }
  return took_us;
}
