// Closed loop: a fixed number of connections, each asking again as soon as it is answered. For throughput and CPU.

import type { ClosedJob, ClosedResult } from '../jobs.ts';
import { sleep } from '../system/clock.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { streamReader, wholeReader } from './check.ts';
import { Connection } from './connection.ts';
import { meter } from './meter.ts';

/** Past this many broken connections there is nothing to measure. */
const MAX_WRONG = 1_000;

export async function closed(job: ClosedJob): Promise<ClosedResult> {
  const nextRequest = requestSource(job.aim, job.scene);
  const expected = expectation(job.aim, job.scene);
  const judge = new Judge();
  const connections = new Set<Connection>();
  let answers = 0;
  let chunks = 0;
  let over = false;
  const onChunk = () => {
    chunks++;
  };

  function run(connection: Connection): void {
    const finish = ({ wrong }: { wrong: string | null }) => {
      if (over) return;
      answers++;
      judge.take(wrong);
      if (connection.usable) return run(connection);
      connection.leave();
      connections.delete(connection);
      if (judge.verdict.wrong < MAX_WRONG) setImmediate(open);
    };
    connection.ask(
      nextRequest(),
      job.scene.kind === 'whole' ? wholeReader(expected, finish) : streamReader(expected, onChunk, finish),
    );
  }
  function open(): void {
    const connection = new Connection(job.aim.port);
    connections.add(connection);
    run(connection);
  }

  for (let i = 0; i < job.concurrency; i++) open();
  await sleep(job.warm_ms);
  const cost = meter(job.watch);
  const before = { answers, chunks };
  await sleep(job.duration_ms);
  const result = { cost: cost(), answers: answers - before.answers, chunks: chunks - before.chunks, ...judge.verdict };
  over = true;
  for (const connection of connections) connection.leave();
  return result;
}
