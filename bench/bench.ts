// What the four questions share: the plan, the processes of a run, and a round over targets.
import { createHash } from 'node:crypto';
import type { Backend } from './backend.ts';
import type { Load, Result } from './load.ts';
import { cpu_us, type Remote } from './processes.ts';
import type { Bar, Row, Table } from './report.ts';
import type { Target, Where } from './target.ts';
import { type Scene, SMALL, sleep } from './wire.ts';

/** How much is measured: a quick run takes half the time for each figure, and looks at less. */
export const planOf = (quick: boolean, rounds: number) => ({
  rounds,
  /** One step of a target's warm-up, one measurement of throughput, of latency, of streams, of proven answers. */
  warm_ms: quick ? 400 : 700,
  closed_ms: quick ? 700 : 1_400,
  low_ms: quick ? 1_000 : 2_500,
  paced_ms: quick ? 1_000 : 2_000,
  proven_ms: quick ? 4_000 : 6_000,
  sizes_kb: quick ? [1, 16] : [1, 16, 128],
  idle_streams: quick ? 500 : 2_000,
  verify_rounds: quick ? 6 : 12,
  /** Nodes on which answers are proven, and what is offered to one GPU of 700 ms. */
  collections_ms: quick ? [0, 700] : [0, 50, 200, 700],
  gpus: quick ? [1] : [1, 4],
  rates: [500, 1_000, 1_500, 2_000],
});
export type Plan = ReturnType<typeof planOf>;

export interface Bench {
  readonly plan: Plan;
  readonly where: Where;
  readonly load: Remote<Load>;
  readonly backend: Remote<Backend>;
  /** The bench's own processes. */
  readonly own: readonly number[];
  /** What relays. */
  readonly targets: readonly Target[];
  /** Checkouts by their rows' names: `ours`, and `before` where there is one. */
  readonly checkouts: Readonly<Record<string, string>>;
  say(line: string): void;
}

/** One of the four. */
export interface Question {
  readonly name: string;
  readonly tables: (plan: Plan) => readonly Table[];
  readonly bars: readonly Bar[];
  /** One round, by the tables' names. `turn` counts from 0. */
  round(bench: Bench, turn: number): Promise<Readonly<Record<string, readonly Row[]>>>;
}

export const CONNECTIONS = 64;
const WARM_STEPS = 8;
const QUIET_MAX_MS = 4_000;
const QUIET_STEP_MS = 100;
const QUIET_SHARE = 0.05;

/** Streams that one target dropped, and work that it left undone, must not run into the next one's time. */
export async function quiet({ backend, targets }: Bench, pids: readonly number[] = []): Promise<void> {
  await backend.endStreams();
  const all = [...pids, ...targets.flatMap(({ watch }) => [...watch().proxy, ...watch().sidecar])];
  for (const end = performance.now() + QUIET_MAX_MS; performance.now() < end; ) {
    const before = cpu_us(all);
    await sleep(QUIET_STEP_MS);
    if (cpu_us(all) - before < QUIET_SHARE * QUIET_STEP_MS * 1e3) return;
  }
}

/** A round over all targets, in another order each time; null leaves one out. */
export async function overTargets(
  bench: Bench,
  turn: number,
  measure: (target: Target) => Promise<Omit<Row, 'name'> | null>,
): Promise<Row[]> {
  const place = ({ kind }: Target) => createHash('sha256').update(`${turn} ${kind.name}`).digest('hex');
  const rows = new Map<string, Row>();
  for (const target of [...bench.targets].sort((a, b) => (place(a) < place(b) ? -1 : 1))) {
    const { name } = target.kind;
    await quiet(bench);
    const row = await measure(target).catch((error: Error) => ({ values: {}, wrong: error.message }));
    if (row !== null) rows.set(name, { name, ...row });
  }
  return bench.targets.map(({ kind }) => rows.get(kind.name)).filter((row) => row !== undefined);
}

/**
 * Asks until answers get no cheaper: a compiler at run time needs ten thousand of them, which a gateway has behind it in its
 * first minute. Streams between, for what was compiled for one kind of answer is made anew for another.
 */
export async function warm({ load, plan }: Pick<Bench, 'load' | 'plan'>, { aim, watch, kind }: Target) {
  const duration_ms = plan.warm_ms;
  const scenes: Scene[] = [SMALL, { kind: 'paced', chunks: 50, rate: 1_000 }, SMALL];
  for (const scene of scenes) {
    let lowest = Number.POSITIVE_INFINITY;
    for (let step = 0, level = 0; step < WARM_STEPS && level < 2; step++) {
      const job = { aim, scene, watch: watch(), concurrency: CONNECTIONS, warm_ms: 0, duration_ms };
      const each = costOf(await load.closed(job));
      level = each < lowest * 0.95 ? 0 : level + 1;
      lowest = Math.min(lowest, each);
      if (kind.slow) break;
    }
  }
}

/** CPU of proxy and sidecar for each, in microseconds. */
export const costOf = ({ proxy_us, sidecar_us, count }: Result): number => (proxy_us + sidecar_us) / count;
export const others = ({ foreign_us, elapsed_us }: Result): number => (foreign_us / elapsed_us) * 100;
/** Of a target without a process of its own nothing is said. */
export const ofProxy = (target: Target, value: number): number => (target.kind.name === 'direct' ? Number.NaN : value);
