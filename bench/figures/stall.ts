// A large raw: how long the event loops of gateway and sidecar stand still for it, while other requests wait.
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { percentile } from '../report/stats.ts';
import { sleep } from '../system/clock.ts';
import type { Longest } from '../system/loop-probe.ts';
import { freePort, pidOf } from '../system/process.ts';
import { startGateway, startSidecar } from '../targets/ours.ts';
import { ready } from '../targets/target.ts';
import { type Bench, type Figure, type Measured, wrongOf } from './figure.ts';

export const LARGE_BYTES = 4 * 1024 * 1024;
/** In a second, as the backend's clock ticks. */
const STREAM_CHUNKS = 1_000;
const SCENES = [
  ['', { kind: 'whole', bytes: LARGE_BYTES }],
  [', request', { kind: 'whole', bytes: 1_024, asked_bytes: LARGE_BYTES }],
  [
    ', stream',
    { kind: 'paced', chunks: STREAM_CHUNKS, rate: 1_000, more_bytes: Math.ceil(LARGE_BYTES / STREAM_CHUNKS) },
  ],
] as const;
const WARM_ANSWERS = 5;
const SETTLE_MS = 150;
const NOTE_MS = 2_000;
const PROBE = ['--import', './bench/system/loop-probe.ts'];

export const stall: Figure = {
  name: 'stall',
  once: true,
  title: (plan) => `Longest turn of the event loop while 4 MB are attested, ${plan.large_answers} times each`,
  columns: [
    { key: 'cpu50', title: 'CPU p50 ms', digits: 1 },
    { key: 'cpu', title: 'max', digits: 1 },
    { key: 'wall50', title: 'clock p50 ms', digits: 1 },
    { key: 'wall', title: 'max', digits: 1 },
  ],
  async round(bench) {
    try {
      return await measure(bench);
    } catch (error) {
      return [{ name: 'stall', values: {}, wrong: (error as Error).message }];
    }
  },
};

async function measure({ where, plan, load }: Bench): Promise<Measured[]> {
  const { folder, backendPort } = where;
  const port = await freePort();
  const socket = join(folder, `sidecar-${port}.sock`);
  const files = { gateway: join(folder, 'loop-gateway.json'), sidecar: join(folder, 'loop-sidecar.json') };
  const probed = (file: string) => ({ flags: PROBE, env: { BENCH_LOOP_FILE: file } });
  const proxy = startGateway('ours stall', { port, backendPort, socket }, probed(files.gateway));
  const sidecar = startSidecar('simulated', socket, folder, 0, probed(files.sidecar));
  const aim = { port, headers: '', tee: true, exact: true };
  const target = await ready('stall', aim, { proxy, sidecar });
  const rows: Measured[] = [];
  try {
    for (const [what, scene] of SCENES) {
      const turns: { gateway: Longest[]; sidecar: Longest[] } = { gateway: [], sidecar: [] };
      let wrong: string | null = null;
      for (let i = -WARM_ANSWERS; i < plan.large_answers; i++) {
        await longest(pidOf(proxy), files.gateway);
        await longest(pidOf(sidecar), files.sidecar);
        wrong ??= wrongOf(await load.once({ aim, scene }));
        await sleep(SETTLE_MS);
        const gateway = await longest(pidOf(proxy), files.gateway);
        const beside = await longest(pidOf(sidecar), files.sidecar);
        if (i < 0) continue;
        turns.gateway.push(gateway);
        turns.sidecar.push(beside);
      }
      rows.push({ name: `gateway${what}`, values: valuesOf(turns.gateway), wrong });
      if (what === '') rows.push({ name: 'sidecar', values: valuesOf(turns.sidecar), wrong });
    }
  } finally {
    await target.stop();
  }
  return rows;
}

function valuesOf(turns: readonly Longest[]): Record<string, number> {
  const cpu_ms = turns.map((turn) => turn.cpu_ms);
  const wall_ms = turns.map((turn) => turn.wall_ms);
  return {
    cpu50: percentile(cpu_ms, 0.5),
    cpu: Math.max(...cpu_ms),
    wall50: percentile(wall_ms, 0.5),
    wall: Math.max(...wall_ms),
  };
}

/** Since it was last asked. @throws when the process does not write it down. */
async function longest(pid: number, file: string): Promise<Longest> {
  rmSync(file, { force: true });
  process.kill(pid, 'SIGUSR2');
  for (const end = performance.now() + NOTE_MS; performance.now() < end; await sleep(5)) {
    try {
      return JSON.parse(readFileSync(file, 'utf8')) as Longest;
    } catch {
      // Not yet, or not whole yet.
    }
  }
  throw new Error(`no note of the event loop within ${NOTE_MS} ms`);
}
