// `npm run soak`: mixed load with faults for as long as one likes; fails when something grows, is lost or goes unproven.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { keyLine } from '../../gateway/limits/limits-stage.ts';
import { serverProgram, startStoreServer } from '../../store/server.ts';
import { eventually, freePort, temporaryFolder } from '../../support/harness.ts';
import { Stage } from '../stage.ts';
import { sleep } from '../words.ts';
import { type Mood, moody } from './backend.ts';
import { startFaults } from './faults.ts';
import { CANARY, startLoad, wrongIn } from './load.ts';
import { readOptions } from './options.ts';
import { growth, memoryAround, percentile, type Sample, SPARE_DESCRIPTORS, settledAt_s } from './samples.ts';

const options = optionsOrEnd();
const total_s = options.minutes * 60;
/** In long runs, so that a curve can be seen. */
const SAY_S = 300;
const window_s = Math.min(30, total_s / 8);
const folder = temporaryFolder();
const KEY = 'key-soak';
const keysFile = join(folder.path, 'keys');
writeFileSync(keysFile, `${keyLine('soak tokens-per-day=1000000000 rps=100000 concurrent=0')}\n`);
const program = serverProgram();
const store = program === null ? null : await startStoreServer(program);
const stage = await Stage.start({
  gateway: {
    API_KEYS_FILE: keysFile,
    METRICS_PORT: String(await freePort()),
    ...(store === null ? {} : { ATTESTATION_STORE_URL: store.url, limits: { attestation_store_timeout_ms: 1_000 } }),
  },
});
const mood: Mood = { trouble: 0 };
stage.backend.script = moody(mood);

const began_ms = performance.now();
const seconds = () => (performance.now() - began_ms) / 1000;
const start = { ...stage.cost, at_s: 0 };
const samples: Sample[] = [start];
const load = startLoad(stage, options.clients, KEY);
const faults = startFaults(stage, mood, store, options.fault_s);

function optionsOrEnd() {
  try {
    return readOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`soak: ${(error as Error).message}`);
    process.exit(2);
  }
}

/** Memory is the gateway's: the sidecar is never old. */
async function say(when: string, rss_mib: number, descriptors: number): Promise<void> {
  const { plain, tee } = load.takeLatencies();
  const ms = (values: readonly number[]) =>
    `${percentile(values, 0.5).toFixed(0)} / ${percentile(values, 0.99).toFixed(0)}`;
  const mib = async (gauge: string) => ((await stage.gauge(gauge)) / 1024 / 1024).toFixed(0);
  // Resident memory follows the allocator; what grows without end would show in the heap, or in what it holds outside.
  const held = `heap ${await mib('nodejs_heap_size_used_bytes')}, buffers ${await mib('nodejs_external_memory_bytes')}`;
  console.log(
    `${when.padEnd(12)} memory ${rss_mib.toFixed(0)} MiB (${held}), descriptors ${descriptors}, ` +
      `whole answers p50 / p99 ms: ${ms(plain)}, with tee ${ms(tee)} (${plain.length + tee.length} of them)`,
  );
}

/** Samples until `until_s`; the latencies that are said are those of the last window. */
async function measure(until_s: number): Promise<void> {
  let taken = false;
  while (seconds() < until_s) {
    await sleep(1_000);
    samples.push({ ...stage.cost, at_s: seconds() });
    // What the backend of the tests remembers is no growth of the gateway.
    stage.backend.seen.length = 0;
    if (!taken && seconds() >= until_s - window_s) {
      load.takeLatencies();
      taken = true;
    }
  }
}

const problems: string[] = [];
try {
  await measure(Math.min(window_s, total_s / 4));
  await say('start', samples.at(-1)?.rss_mib ?? 0, samples.at(-1)?.descriptors ?? 0);
  const settled_s = settledAt_s(options.minutes);
  await measure(settled_s);
  const settled = memoryAround(samples, settled_s, window_s);
  await say(`${(settled_s / 60).toFixed(1)} min`, settled, samples.at(-1)?.descriptors ?? 0);
  for (let next_s = settled_s + SAY_S; next_s < total_s - window_s; next_s += SAY_S) {
    await measure(next_s);
    await say(`${(next_s / 60).toFixed(1)} min`, memoryAround(samples, next_s, window_s), stage.cost.descriptors);
  }
  await measure(total_s);
  const end = memoryAround(samples, seconds(), window_s);
  await faults.stop();
  await load.stop();
  await eventually(async () => (await stage.gauge('countersign_signing_queue_depth')) === 0, 20_000).catch(() =>
    problems.push('attestations that nobody waits for are pending'),
  );
  // Connections to the backend are kept for a few seconds.
  let left = stage.cost.descriptors;
  const closed = () => {
    left = stage.cost.descriptors;
    return left <= start.descriptors + SPARE_DESCRIPTORS;
  };
  await eventually(closed, 30_000).catch(() => {});
  await say('end', end, left);
  problems.push(
    ...wrongIn(load.saw),
    ...growth({ settled, end }, { start: start.descriptors, end: left }, options.minutes),
  );
  const told = (await stage.metrics()) + stage.gateway.output() + stage.sidecar.output();
  for (const text of [CANARY, KEY]) if (told.includes(text)) problems.push(`"${text}" stands in a log or a metric`);
  if ((load.saw.get('stop with its proof') ?? 0) === 0) problems.push('no stream ended with its proof');
  console.log(
    `memory at the end is ${((end / settled - 1) * 100).toFixed(1)} % over its value at ${(settled_s / 60).toFixed(1)} min`,
  );
  console.log('\nfaults:');
  for (const [name, count] of faults.had) console.log(`${String(count).padStart(8)} × ${name}`);
  console.log('\nclients saw:');
  for (const [words, count] of [...load.saw].sort(([, a], [, b]) => b - a))
    console.log(`${String(count).padStart(8)} × ${words}`);
} catch (error) {
  problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
} finally {
  await stage.close();
  await store?.close();
  folder.remove();
}
for (const problem of problems) console.error(`soak: ${problem}`);
console.log(problems.length === 0 ? '\nnothing grew, nothing was lost' : '\nfailed');
process.exit(problems.length === 0 ? 0 : 1);
