// Paced streams: many at once, each at an engine's pace. For the time to the first chunk, the age of chunks, CPU per chunk.

import type { PacedJob, PacedResult } from '../jobs.ts';
import { percentile } from '../report/stats.ts';
import type { Scene } from '../scene.ts';
import { now_us, sleep } from '../system/clock.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { streamReader } from './check.ts';
import { Connection } from './connection.ts';
import { meter } from './meter.ts';

/** Streams begin over this time, so that they do not beat in step. */
const STAGGER_MS = 500;
const LAST_CHUNKS_MS = 10_000;
/** Between the streams that open the connections and those that are measured. */
const PAUSE_MS = 100;

export async function paced(job: PacedJob): Promise<PacedResult> {
  const judge = new Judge();
  let connections = Array.from({ length: job.streams }, () => new Connection(job.aim.port));
  // On a new connection the answer waits for the server that accepts it: the backend where nobody is between, which no proxy that
  // keeps its own adds to. So each serves one stream first, all of them at once, and every proxy has as many behind it.
  const opening = await begin(job, connections, chunksIn(job, STAGGER_MS + 200), judge);
  await opening.ended();
  await sleep(PAUSE_MS);
  connections = connections.map((one) => (one.usable ? one : new Connection(job.aim.port)));

  const ages_us: number[] = [];
  let counting = false;
  // The counted time begins when the last stream has begun and ends before the first has ended.
  const streams = await begin(job, connections, chunksIn(job, STAGGER_MS + job.duration_ms + 200), judge, (age_us) => {
    if (counting) ages_us.push(age_us);
  });
  counting = true;
  const cost = meter(job.watch);
  await sleep(job.duration_ms);
  const spent = cost();
  counting = false;
  await streams.ended();
  for (const connection of connections) connection.leave();
  return {
    cost: spent,
    chunks: ages_us.length,
    ttft_us: streams.ttft_us,
    ttft_new_us: opening.ttft_us,
    age_p50_us: percentile(ages_us, 0.5),
    age_p99_us: percentile(ages_us, 0.99),
    ...judge.verdict,
  };
}

const chunksIn = ({ rate }: PacedJob, ms: number): number => Math.ceil((ms / 1e3) * rate);

interface Streams {
  readonly ttft_us: readonly number[];
  /** Waits for all of them, for a while. */
  ended(): Promise<void>;
}

/** One stream on each connection; resolves when the last has been asked for. */
async function begin(
  job: PacedJob,
  connections: readonly Connection[],
  chunks: number,
  judge: Judge,
  onChunk: (age_us: number) => void = () => {},
): Promise<Streams> {
  const scene: Scene = { kind: 'paced', chunks, rate: job.rate };
  const nextRequest = requestSource(job.aim, scene);
  const expected = expectation(job.aim, scene);
  const ttft_us: number[] = [];
  let running = 0;
  const start_us = now_us();
  for (const [i, connection] of connections.entries()) {
    await sleep(Math.max(0, (start_us - now_us()) / 1e3 + (i * STAGGER_MS) / connections.length));
    running++;
    connection.ask(
      nextRequest(),
      streamReader(expected, onChunk, ({ asked_us, first_us, wrong }) => {
        running--;
        judge.take(wrong);
        if (first_us > 0) ttft_us.push(first_us - asked_us);
      }),
    );
  }
  return {
    ttft_us,
    async ended() {
      for (const end = now_us() + LAST_CHUNKS_MS * 1e3; running > 0 && now_us() < end; ) await sleep(10);
      if (running > 0) judge.take(`${running} streams did not end within ${LAST_CHUNKS_MS} ms`);
    },
  };
}
