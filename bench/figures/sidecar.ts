// The way to the sidecar and back, through the gateway's own client: one attestation at a time, small and large raw.
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { createSidecar, type Sidecar } from '../../gateway/sidecar/client.ts';
import { buildRaw, type Nonce, type Raw } from '../../proto/raw.ts';
import { now_us } from '../clock.ts';
import { stop } from '../process.ts';
import { percentile } from '../stats.ts';
import { startSidecar } from '../targets/ours.ts';
import type { Bench, Figure, Measured } from './figure.ts';

const CONNECT_MS = 15_000;
const ATTEST_MS = 30_000;
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
  const socket_path = join(where.folder, `trip-${kind}.sock`);
  const child = startSidecar(kind, socket_path, where.folder);
  const client = createSidecar({ socket_path, attest_timeout_ms: ATTEST_MS, allow_simulated: true });
  const rows: Measured[] = [];
  try {
    await client.ready(CONNECT_MS);
    for (const [size, bytes] of Object.entries(SIZES)) {
      const trips = bytes > LARGE_BYTES ? plan.trips * LARGE_SHARE : plan.trips;
      const took_us = await tripsOf(client, bytes, trips);
      const values = { p50: percentile(took_us, 0.5), p99: percentile(took_us, 0.99) };
      rows.push({ name: `${size} raw, ${KINDS[kind]}`, values, wrong: null });
    }
  } catch (error) {
    rows.push({ name: `sidecar ${kind}`, values: {}, wrong: (error as Error).message });
  } finally {
    client.close();
    await stop(child);
  }
  return rows;
}

async function tripsOf(client: Sidecar, bytes: number, trips: number): Promise<number[]> {
  const took_us: number[] = [];
  const warm = Math.ceil(trips * WARM_SHARE);
  for (let i = 0; i < warm + trips; i++) {
    const raw = rawOf(bytes, i);
    const nonce = createHash('sha256').update(raw, 'utf8').digest('hex') as Nonce;
    const start = now_us();
    await client.attest(`trip-${bytes}-${i}`, raw, nonce, AbortSignal.timeout(ATTEST_MS));
    if (i >= warm) took_us.push(now_us() - start);
  }
  return took_us;
}

/** No two are equal. */
function rawOf(bytes: number, i: number): Raw {
  const text = 'the answer said "yes"\n'.repeat(Math.ceil(bytes / 22)).slice(0, bytes);
  return buildRaw({ request: '{"model":"bench"}', response: JSON.stringify({ text }), timestamp: 1_700_000_000 + i });
}
