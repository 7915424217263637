// One request, judged as all others are.
import type { Judged, OnceJob } from '../jobs.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { type Finished, streamReader, wholeReader } from './check.ts';
import { Connection } from './connection.ts';

const ANSWER_MS = 30_000;

export function once({ aim, scene }: OnceJob): Promise<Judged> {
  const judge = new Judge();
  const connection = new Connection(aim.port);
  return new Promise((resolve) => {
    const settle = (wrong: string | null) => {
      clearTimeout(timer);
      connection.leave();
      judge.take(wrong);
      resolve(judge.verdict);
    };
    const timer = setTimeout(() => settle(`no answer within ${ANSWER_MS} ms`), ANSWER_MS);
    const expected = expectation(aim, scene);
    const finish = ({ wrong }: Finished) => settle(wrong);
    const reader = scene.kind === 'whole' ? wholeReader(expected, finish) : streamReader(expected, () => {}, finish);
    connection.ask(requestSource(aim, scene)(), reader);
  });
}
