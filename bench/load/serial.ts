// One request after the other on one connection, each timed.
import type { OpenResult, SerialJob } from '../jobs.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { type Finished, wholeReader } from './check.ts';
import { Connection } from './connection.ts';

export async function serial({ aim, scene, count }: SerialJob): Promise<OpenResult> {
  const nextRequest = requestSource(aim, scene);
  const expected = expectation(aim, scene);
  const judge = new Judge();
  const latency_us: number[] = [];
  let connection = new Connection(aim.port);
  for (let n = 0; n < count; n++) {
    if (!connection.usable) {
      connection.leave();
      connection = new Connection(aim.port);
    }
    const { asked_us, ended_us, wrong } = await new Promise<Finished>((finish) =>
      connection.ask(nextRequest(), wholeReader(expected, finish)),
    );
    judge.take(wrong);
    latency_us.push(ended_us - asked_us);
  }
  connection.leave();
  return { latency_us, cost: null, ...judge.verdict };
}
