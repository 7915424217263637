// Open loop: requests leave on a clock or at random times, whether or not the one before was answered. For latency.

import type { OpenJob, OpenResult } from '../jobs.ts';
import { now_us, sleep } from '../system/clock.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { wholeReader } from './check.ts';
import { Connection } from './connection.ts';
import { meter } from './meter.ts';

const WARM_REQUESTS = 10;
const LAST_ANSWERS_MS = 30_000;

export async function open(job: OpenJob): Promise<OpenResult> {
  const nextRequest = requestSource(job.aim, job.scene);
  const expected = expectation(job.aim, job.scene);
  const judge = new Judge();
  const idle: Connection[] = [];
  const latency_us: number[] = [];
  let running = 0;

  function ask(counted: boolean): void {
    let connection = idle.pop();
    while (connection !== undefined && !connection.usable) connection = idle.pop();
    const used = connection ?? new Connection(job.aim.port);
    running++;
    used.ask(
      nextRequest(),
      wholeReader(expected, ({ asked_us, ended_us, wrong }) => {
        running--;
        judge.take(wrong);
        if (counted) latency_us.push(ended_us - asked_us);
        if (used.usable) idle.push(used);
        else used.leave();
      }),
    );
  }

  const period_us = 1e6 / job.rate;
  const start_us = now_us();
  let cost: ReturnType<typeof meter> | null = null;
  const count = Math.round((job.duration_ms / 1e3) * job.rate);
  let next_us = start_us;
  for (let i = 0; i < count + WARM_REQUESTS; i++) {
    await sleep(Math.max(0, (next_us - now_us()) / 1e3));
    next_us += job.arrivals === 'poisson' ? -Math.log(1 - Math.random()) * period_us : period_us;
    if (i === WARM_REQUESTS && job.watch !== undefined) cost = meter(job.watch);
    ask(i >= WARM_REQUESTS);
  }
  for (const end = now_us() + LAST_ANSWERS_MS * 1e3; running > 0 && now_us() < end; ) await sleep(5);
  if (running > 0) judge.take(`${running} answers did not come within ${LAST_ANSWERS_MS} ms`);
  for (const connection of idle) connection.leave();
  return { latency_us, cost: cost?.() ?? null, ...judge.verdict };
}
