// A gateway, a sidecar with a simulated GPU that takes its time, a backend, and two load generators before them.
import { join } from 'node:path';
import type { BackendCalls } from '../backend/main.ts';
import type { Aim, Cost, LoadCalls, OpenResult } from '../jobs.ts';
import { remote } from '../system/calls.ts';
import { freePort, pidOf, startNode, stop } from '../system/process.ts';
import { startGateway, startSidecar } from '../targets/ours.ts';
import { ready } from '../targets/target.ts';

const CALL_MS = 240_000;
const SCENE = { kind: 'whole', bytes: 1024 } as const;

export interface StageOptions {
  readonly collection_ms: number;
  /** With more than one each nonce is signed by one of them. */
  readonly gpus?: number;
  /** `receipt`: in place of gateway and sidecar one that signs with a key of its own, with no report and nothing to check. */
  readonly kind?: 'simulated' | 'receipt';
}

export interface Answers {
  readonly latency_ms: readonly number[];
  /** CPU of gateway and sidecar for one answer; NaN where it was not counted. */
  readonly cpu_us: number;
  readonly sidecar_us: number;
  readonly per_second: number;
  /** Answers for one GPU signature; NaN without any. */
  readonly per_signature: number;
  readonly wrong: number;
  readonly reason: string | null;
}

interface Offer {
  readonly rate: number;
  readonly duration_ms: number;
  readonly tee: 'none' | 'strict' | 'batch';
  readonly arrivals?: 'clock' | 'poisson';
}

export interface Stage {
  /** Requests on a clock, or at random times. */
  offer(offer: Offer): Promise<Answers>;
  /** Strict requests from another load generator, while the first one is busy. */
  beside(offer: Omit<Offer, 'tee'>): Promise<Answers>;
  /** One request after the other. */
  alone(tee: 'strict' | 'batch', count: number): Promise<Answers>;
  /** As many strict answers as there are, from so many clients. */
  saturate(duration_ms: number, clients?: number): Promise<Answers>;
  close(): Promise<void>;
}

export async function openStage(folder: string, options: StageOptions): Promise<Stage> {
  const { collection_ms, gpus = 1, kind = 'simulated' } = options;
  const children = {
    backend: startNode('bench/backend/main.ts', { channel: true }),
    load: startNode('bench/load/main.ts', { channel: true }),
    second: startNode('bench/load/main.ts', { channel: true }),
  };
  const backend = remote<BackendCalls>(children.backend, 'backend', CALL_MS);
  const load = remote<LoadCalls>(children.load, 'load generator', CALL_MS);
  const second = remote<LoadCalls>(children.second, 'second load generator', CALL_MS);
  const port = await freePort();
  const socket = join(folder, `sidecar-${port}.sock`);
  const backendPort = await backend.port();
  const env: Record<string, string> = gpus > 1 ? { SIGNERS: 'any' } : {};
  const processes =
    kind === 'receipt'
      ? {
          proxy: startNode('bench/programs/receipt.ts', {
            env: { PORT: String(port), BACKEND_URL: `http://127.0.0.1:${backendPort}/v1` },
          }),
        }
      : {
          proxy: startGateway('attested', { port, backendPort, socket }),
          sidecar: startSidecar('simulated', socket, collection_ms, { env, gpus }),
        };
  const aimOf = (tee: Offer['tee']): Aim => ({
    port,
    headers: '',
    tee: tee !== 'none',
    batch: tee === 'batch',
    exact: true,
  });
  const target = await ready('attested', aimOf('strict'), processes);
  const watch = { ...target.watch, bench: [process.pid, ...Object.values(children).map(pidOf)] };

  /** GPU signatures so far. */
  async function signatures(): Promise<number> {
    if (kind === 'receipt') return 0;
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const counts = text.matchAll(/^countersign_signatures_total\{[^}]*\} (\d+)$/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  async function counted(run: () => Promise<OpenResult>, duration_ms: number): Promise<Answers> {
    const before = await signatures();
    const result = await run();
    const signed = (await signatures()) - before;
    return answersOf(result, signed, duration_ms);
  }

  return {
    offer: ({ rate, duration_ms, tee, arrivals }) =>
      counted(() => load.open({ aim: aimOf(tee), scene: SCENE, rate, duration_ms, arrivals, watch }), duration_ms),
    beside: async ({ rate, duration_ms }) => {
      const result = await second.open({ aim: aimOf('strict'), scene: SCENE, rate, duration_ms });
      return answersOf(result, Number.NaN, duration_ms);
    },
    alone: (tee, count) => counted(() => load.serial({ aim: aimOf(tee), scene: SCENE, count }), Number.NaN),
    async saturate(duration_ms, clients = 8) {
      const warm_ms = Math.min(2_000, 2 * collection_ms);
      const job = { aim: aimOf('strict'), scene: SCENE, concurrency: clients, warm_ms, duration_ms, watch };
      const { cost, answers, wrong, reason } = await load.closed(job);
      const empty = { latency_us: [], cost, wrong, reason };
      return { ...answersOf(empty, answers, duration_ms, answers), per_signature: 1 };
    },
    async close() {
      await target.stop();
      await Promise.all(Object.values(children).map(stop));
    },
  };
}

function answersOf(result: OpenResult, signed: number, duration_ms: number, count = result.latency_us.length): Answers {
  const { latency_us, cost, wrong, reason } = result;
  const each = (us: (cost: Cost) => number) => (cost === null ? Number.NaN : us(cost) / count);
  return {
    latency_ms: latency_us.map((us) => us / 1e3),
    cpu_us: each(({ proxy_us, sidecar_us }) => proxy_us + sidecar_us),
    sidecar_us: each(({ sidecar_us }) => sidecar_us),
    per_second: count / (duration_ms / 1e3),
    per_signature: signed === 0 ? Number.NaN : count / signed,
    wrong,
    reason,
  };
}
