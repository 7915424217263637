// A figure: what is measured, for whom, and the columns it is shown in.
import { createHash } from 'node:crypto';
import type { BackendCalls } from '../backend/main.ts';
import type { Cost, Judged, LoadCalls } from '../jobs.ts';
import type { Plan } from '../plan.ts';
import type { Scene } from '../scene.ts';
import type { Remote } from '../system/calls.ts';
import { sleep } from '../system/clock.ts';
import { cpu_us, tree } from '../system/proc.ts';
import type { Target, TargetKind, Where } from '../targets/target.ts';

export interface Column {
  readonly key: string;
  readonly title: string;
  readonly digits: number;
  /** Shown as what the proxy adds: the direct value of the same round is taken off. */
  readonly added?: boolean;
  /** Followed by its ratios to nginx and to the bare pipe. */
  readonly ratio?: boolean;
}

export interface Measured {
  /** A target's name, or another subject's. */
  readonly name: string;
  /** By column key; NaN where there is nothing to say. */
  readonly values: Readonly<Record<string, number>>;
  /** Why the row does not count; null when all answers were right. */
  readonly wrong: string | null;
}

export interface Bench {
  readonly plan: Plan;
  readonly where: Where;
  readonly load: Remote<LoadCalls>;
  readonly backend: Remote<BackendCalls>;
  /** Those that run, in order. */
  readonly targets: readonly Target[];
  readonly kinds: readonly TargetKind[];
  say(line: string): void;
}

export interface Figure {
  readonly name: string;
  title(plan: Plan): string;
  readonly columns: readonly Column[];
  /** Measured once whatever the plan's rounds: it starts processes of its own. */
  readonly once?: boolean;
  /** One round over all subjects. `turn` decides the order. */
  round(bench: Bench, turn: number): Promise<Measured[]>;
}

/** The request and the answer of every figure that names no other: 1 KB each. */
export const SMALL = { kind: 'whole', bytes: 1024, asked_bytes: 1024 } as const satisfies Scene;

/** A column for what others took of the machine meanwhile: a row with much of it is not to be trusted alone. */
export const OTHERS: Column = { key: 'others', title: 'others %', digits: 0 };
export const othersOf = ({ foreign_us, elapsed_us }: Cost): number => (foreign_us / elapsed_us) * 100;

const QUIET_SHARE = 0.05;
const QUIET_STEP_MS = 100;
const QUIET_MAX_MS = 4_000;

/**
 * What one target left behind must not run into the next one's time: streams that it asked for and dropped are ended,
 * and every target is given time to fall silent. (A gateway that answered 500 was seen to keep 450 streams running.)
 */
async function quiet({ backend, targets }: Bench): Promise<void> {
  await backend.endStreams();
  const pids = targets.flatMap(({ watch }) => [...watch.proxy, ...watch.sidecar]);
  for (const end = performance.now() + QUIET_MAX_MS; performance.now() < end; ) {
    const before = cpu_us(pids);
    await sleep(QUIET_STEP_MS);
    if (cpu_us(pids) - before < QUIET_SHARE * QUIET_STEP_MS * 1e3) return;
  }
}

/** Another order in each round, the same in every run: nobody always follows the same neighbour. */
function ordered(targets: readonly Target[], turn: number): Target[] {
  const place = ({ name }: Target) => createHash('sha256').update(`${turn} ${name}`).digest('hex');
  return [...targets].sort((a, b) => (place(a) < place(b) ? -1 : 1));
}

/** A round of `figure` over the targets that `measure` wants; null leaves one out. */
export async function overTargets(
  figure: string,
  bench: Bench,
  turn: number,
  answers: 'whole' | 'streams',
  measure: (target: Target, kind: TargetKind) => Promise<Omit<Measured, 'name'> | null>,
): Promise<Measured[]> {
  const rows: Measured[] = [];
  for (const target of ordered(bench.targets, turn)) {
    const kind = bench.kinds.find(({ name }) => name === target.name);
    if (kind === undefined || kind.without?.includes(figure)) continue;
    if (answers === 'streams' && target.streams !== null) {
      rows.push({ name: target.name, values: {}, wrong: `its streams are wrong: ${target.streams}` });
      continue;
    }
    await quiet(bench);
    try {
      const row = await measure(grown(target), kind);
      if (row !== null) rows.push({ name: target.name, ...row });
    } catch (error) {
      rows.push({ name: target.name, values: {}, wrong: (error as Error).message });
    }
  }
  return rows;
}

/** With the processes that it has by now. */
function grown(target: Target): Target {
  const { proxy, sidecar, bench } = target.watch;
  const all = (pids: readonly number[]) => [...new Set(pids.flatMap(tree))];
  return { ...target, watch: { proxy: all(proxy), sidecar: all(sidecar), bench } };
}

export function wrongOf({ wrong, reason }: Judged): string | null {
  return wrong === 0 ? null : `${wrong} wrong, first: ${reason}`;
}
