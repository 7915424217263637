// The backend says more than it was asked: a second answer to nobody, some milliseconds behind each of its answers.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chatBody, type Script } from '../support/backend.ts';
import { Fault } from './fault.ts';
import { Stage } from './stage.ts';
import { answerTo, askedIn, beginStream, echo, eventsFor, sleep } from './words.ts';

/** While an answer takes so long, what came behind the last one has arrived. */
const ANSWER_MS = 30;
const BEHIND_MS = [1, 2, 5, 10];
const ROUNDS = 18;

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start();
}, 60_000);
afterAll(() => stage?.close());

function saysMore(behind_ms: number): Script {
  return async (request, response) => {
    const { socket } = response;
    response.on('finish', async () => {
      await sleep(behind_ms);
      const body = chatBody(answerTo('another question'));
      if (socket?.writable)
        socket.write(
          `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        );
    });
    await sleep(ANSWER_MS);
    const { question, stream } = askedIn(request);
    if (!stream) return echo()(request, response);
    beginStream(response);
    response.end(eventsFor(question).join(''));
  };
}

describe('the backend', () => {
  it('answering twice', async (context) => {
    const fault = await Fault.begin(context, stage);
    for (const behind_ms of BEHIND_MS) {
      stage.backend.script = saysMore(behind_ms);
      // One after the other, so that each could be given what came behind the one before it.
      for (let i = 0; i < ROUNDS; i++)
        for (const stream of [true, false]) for (const tee of [false, true]) await fault.ask(1, { stream, tee });
    }
    stage.backend.script = echo();
    const saw = await fault.end('backend answering twice, 1 to 10 ms behind each answer');
    // Where both come in one read, which of them is the answer is not known: then there is none.
    const refused = Object.keys(saw).filter((words) => words.endsWith('backend_bad_response'));
    const right = [
      'stop with its proof',
      'the answer with its proof',
      'no tee: the stream whole',
      'no tee: the answer',
    ];
    expect(
      Object.keys(saw)
        .filter((words) => !refused.includes(words))
        .sort(),
    ).toEqual(right.sort());
    const asked = BEHIND_MS.length * ROUNDS * right.length;
    expect(right.reduce((sum, words) => sum + (saw[words] ?? 0), 0)).toBeGreaterThan(asked * 0.9);
  });
});
