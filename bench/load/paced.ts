// Paced streams: many at once, each at an engine's pace. For the time to the first chunk, the age of chunks, CPU per chunk.
import { now_us, sleep } from '../clock.ts';
import type { PacedJob, PacedResult } from '../jobs.ts';
import type { Scene } from '../scene.ts';
import { percentile } from '../stats.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { streamReader } from './check.ts';
import { Connection } from './connection.ts';
import { meter } from './meter.ts';

/** Streams begin over this time, so that they do not beat in step. */
const STAGGER_MS = 500;
const LAST_CHUNKS_MS = 10_000;

export async function paced(job: PacedJob): Promise<PacedResult> {
  // The counted time begins when the last stream has begun and ends before the first has ended.
  const chunks = Math.ceil(((job.duration_ms + STAGGER_MS + 200) / 1e3) * job.rate);
  const scene: Scene = { kind: 'paced', chunks, rate: job.rate };
  const nextRequest = requestSource(job.aim, scene);
  const expected = expectation(job.aim, scene);
  const judge = new Judge();
  const ttft_us: number[] = [];
  const ages_us: number[] = [];
  let running = 0;
  let counting = false;
  const onChunk = (age_us: number) => {
    if (counting) ages_us.push(age_us);
  };

  const start_us = now_us();
  for (let i = 0; i < job.streams; i++) {
    await sleep(Math.max(0, (start_us - now_us()) / 1e3 + (i * STAGGER_MS) / job.streams));
    const connection = new Connection(job.aim.port);
    running++;
    connection.ask(
      nextRequest(),
      streamReader(expected, onChunk, ({ asked_us, first_us, wrong }) => {
        running--;
        judge.take(wrong);
        if (first_us > 0) ttft_us.push(first_us - asked_us);
        connection.leave();
      }),
    );
  }
  counting = true;
  const cost = meter(job.watch);
  await sleep(job.duration_ms);
  const spent = cost();
  counting = false;
  for (const end = now_us() + LAST_CHUNKS_MS * 1e3; running > 0 && now_us() < end; ) await sleep(10);
  if (running > 0) judge.take(`${running} streams did not end within ${LAST_CHUNKS_MS} ms`);
  return {
    cost: spent,
    chunks: ages_us.length,
    ttft_us,
    age_p50_us: percentile(ages_us, 0.5),
    age_p99_us: percentile(ages_us, 0.99),
    ...judge.verdict,
  };
}
