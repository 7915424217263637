// One run: starts the processes, warms them, measures every figure in interleaved rounds, prints and keeps what came out.
import type { BackendCalls } from './backend/main.ts';
import type { Choice } from './choice.ts';
import { type Bench, type Figure, type Measured, SMALL } from './figures/figure.ts';
import type { LoadCalls } from './jobs.ts';
import type { Plan } from './plan.ts';
import { BARS, judge } from './report/bars.ts';
import { barsGrid, footer } from './report/report.ts';
import { type FigureResult, summarise } from './report/results.ts';
import type { Saved, SavedFigure } from './report/saved.ts';
import { median } from './report/stats.ts';
import { aligned, grid } from './report/table.ts';
import type { Scene } from './scene.ts';
import { remote } from './system/calls.ts';
import { describeMachine, machineLine } from './system/machine.ts';
import { pidOf, startNode } from './system/process.ts';
import { type Target, type TargetKind, Unavailable } from './targets/target.ts';

const CALL_MS = 60_000;

export async function run(choice: Choice, plan: Plan, folder: string, say: Bench['say']): Promise<Saved> {
  const { kinds, figures } = choice;
  const began = performance.now();
  const machine = describeMachine();
  console.log(machineLine(machine));

  const processes = {
    backend: startNode('bench/backend/main.ts', { channel: true }),
    load: startNode('bench/load/main.ts', { channel: true }),
  };
  const backend = remote<BackendCalls>(processes.backend, 'backend', CALL_MS);
  const load = remote<LoadCalls>(processes.load, 'load generator', CALL_MS);
  const own = [process.pid, pidOf(processes.backend), pidOf(processes.load)];
  const where = { backendPort: await backend.port(), folder };
  const started = await startTargets(kinds, where, own, say);
  const skipped = [...choice.skipped, ...started.skipped];
  for (const line of skipped) say(`SKIPPED ${line}`);

  const bench: Bench = { plan, where, load, backend, targets: started.targets, kinds, say };
  for (const target of started.targets)
    await warm(
      bench,
      target,
      kinds.find(({ name }) => name === target.name),
    );
  const order = kinds.map(({ name }) => name);
  const results: FigureResult[] = [];
  const kept: Record<string, SavedFigure> = {};
  for (const result of await measure(figures, bench, began)) {
    const { figure, rounds } = result;
    const wanted = roundsOf(figure, plan);
    if (rounds.length < wanted)
      skipped.push(`${figure.name}: ${wanted - rounds.length} of ${wanted} rounds, the run would be too long`);
    const rows = summarise(result, order);
    const [title, { columns }] = [figure.title(plan), figure];
    console.log(aligned(grid(title, columns, rows)));
    results.push(result);
    kept[figure.name] = { title, columns, rows, rounds };
  }

  const bars = judge(
    BARS.filter(({ figure, rows }) => kept[figure] !== undefined && rows.every((row) => order.includes(row))),
    results,
  );
  const legend = started.targets.map(({ name }) => ({ name, about: aboutOf(kinds, name) }));
  const took_s = (performance.now() - began) / 1e3;
  const others_percent = othersOver(results);
  const saved: Saved = { machine, plan, took_s, others_percent, legend, skipped, figures: kept, bars };
  if (bars.length > 0) console.log(aligned(barsGrid(saved)));
  console.log(footer(saved));
  return saved;
}

function othersOver(results: readonly FigureResult[]): number | null {
  const share = median(results.flatMap(({ rounds }) => rounds.flat().map(({ values }) => values.others ?? Number.NaN)));
  return Number.isNaN(share) ? null : share;
}

const aboutOf = (kinds: readonly TargetKind[], name: string): string =>
  kinds.find((kind) => kind.name === name)?.about ?? '';

async function startTargets(
  kinds: readonly TargetKind[],
  where: Bench['where'],
  own: readonly number[],
  say: Bench['say'],
) {
  const targets: Target[] = [];
  const skipped: string[] = [];
  for (const kind of kinds) {
    try {
      const target = await kind.start(where);
      targets.push({ ...target, watch: { ...target.watch, bench: own } });
      say(`started ${kind.name}${target.streams === null ? '' : `; STREAMS NOT MEASURED: ${target.streams}`}`);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      skipped.push(`${kind.name}: ${error.message}`);
    }
  }
  return { targets, skipped };
}

const STILL_FALLING = 0.95;
/** So many steps without a fall in a row, for one alone may be another's noise. */
const LEVEL_STEPS = 2;

/**
 * Requests that nobody counts, until they get no cheaper: a compiler at run time needs tens of thousands of them, which a
 * gateway has behind it within its first minute. The same rule for everybody.
 */
async function warm(bench: Bench, target: Target, kind: TargetKind | undefined): Promise<void> {
  bench.say(`warming ${target.name}`);
  const streams = target.streams === null && !kind?.without?.includes('paced');
  // What a compiler made for the one kind it makes anew when it has seen the other.
  const scenes: readonly Scene[] = streams ? [SMALL, { kind: 'burst', chunks: 50 }, SMALL] : [SMALL, SMALL];
  for (const scene of scenes) await untilLevel(bench, target, scene);
}

async function untilLevel({ load, plan }: Bench, { aim, watch }: Target, scene: Scene) {
  let lowest = Number.POSITIVE_INFINITY;
  let level = 0;
  const duration_ms = plan.warm_step_ms;
  for (let step = 0; step < plan.warm_steps && level < LEVEL_STEPS; step++) {
    const job = { aim, watch, scene, concurrency: plan.concurrency, warm_ms: 0, duration_ms };
    const { cost, answers } = await load.closed(job);
    const each = (cost.proxy_us + cost.sidecar_us) / answers;
    if (each < lowest * STILL_FALLING) level = 0;
    else level++;
    lowest = Math.min(lowest, each);
  }
}

const roundsOf = (figure: Figure, plan: Plan): number => (figure.once ? 1 : plan.rounds);

/**
 * Round after round over all figures: a machine that is slow for a minute is so for one round of several figures, not for all
 * rounds of one. `began`: by performance.now(). The first round is always measured; of the others, what the budget has room for,
 * round after round.
 */
async function measure(figures: readonly Figure[], bench: Bench, began: number): Promise<FigureResult[]> {
  const { plan, say } = bench;
  const measured = figures.map((figure) => ({ figure, rounds: [] as Measured[][], took_ms: 0 }));
  const measureOne = async (one: (typeof measured)[number], turn: number) => {
    const { figure, rounds } = one;
    const now = performance.now();
    if (turn >= roundsOf(figure, plan) || (turn > 0 && now - began + one.took_ms > plan.budget_ms)) return;
    say(`${figure.name}, round ${turn + 1}, ${((now - began) / 1e3).toFixed(0)} s into the run`);
    rounds.push(await figure.round(bench, turn));
    one.took_ms = performance.now() - now;
  };
  for (const one of measured) await measureOne(one, 0);
  for (let turn = 1; turn < plan.rounds; turn++) for (const one of measured) await measureOne(one, turn);
  return measured;
}
