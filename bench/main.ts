// npm run bench: every proxy side by side in one run, in interleaved rounds; medians, ratios, bars, one report.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { curveChart } from './attested/curve.ts';
import { choose } from './choice.ts';
import { FIGURES } from './figures/index.ts';
import { type Options, readOptions, USAGE } from './options.ts';
import { chart } from './report/chart.ts';
import { markdown } from './report/report.ts';
import { load, save } from './report/saved.ts';
import { run } from './run.ts';
import { stopAll } from './system/process.ts';
import { targetsWith } from './targets/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'bench-'));
const say = (line: string) => void process.stderr.write(`${line}\n`);
let ending = false;

async function end(code: number): Promise<void> {
  if (ending) return;
  ending = true;
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => void end(130));

// A reader that closes its end (| head) and whatever nobody caught end everything too.
process.stdout.on('error', () => void end(1));
process.on('uncaughtException', (error) => {
  if (!ending) console.error(error);
  void end(1);
});

try {
  await act(readOptions(process.argv.slice(2)));
  await end(0);
} catch (error) {
  if (!ending) {
    console.error(`bench: ${error instanceof TypeError ? error.message : (error as Error).stack}`);
    await end(1);
  }
}

async function act(options: Options): Promise<void> {
  if (options.help) return console.log(USAGE);
  const names = (all: readonly { readonly name: string }[]) => all.map(({ name }) => name).join(', ');
  if (options.list) return console.log(`figures: ${names(FIGURES)}\ntargets: ${names(targetsWith(options.before))}`);
  if (options.attested) {
    const { measureAttested } = await import('./attested/main.ts');
    const results = await measureAttested(folder, say);
    if (options.chart !== null) writeFileSync(options.chart, curveChart(results.curve, results.machine));
    return say(`saved ${save(results, options.json, `attested-${results.date}`)}`);
  }
  if (options.chart !== null || options.markdown !== null) return draw(options);
  if (options.install) install();
  const choice = choose(options.only, options.without, options.quick, options.before);
  const result = await run(choice, options.plan, folder, say);
  say(`saved ${save(result, options.json, result.machine.date)}`);
}

/** Measures nothing: shows a result that was kept. */
function draw({ chart: svg, markdown: md, from }: Options): void {
  const saved = load(from);
  if (svg !== null) writeFileSync(svg, chart(saved));
  if (md !== null) writeFileSync(md, markdown(saved));
}

function install(): void {
  say('apt-get install nginx-light haproxy');
  const { status } = spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'nginx-light', 'haproxy'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (status !== 0) say('INSTALL FAILED: nginx and HAProxy may be missing below');
}
