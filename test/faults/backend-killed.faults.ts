// The backend killed at every stage of its answer, and away.
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DONE, finish, role, type Script, usage } from '../support/backend.ts';
import { Fault } from './fault.ts';
import { Stage } from './stage.ts';
import { askedIn, beginStream, deltasFor, echo, sleep } from './words.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start();
}, 60_000);
afterAll(() => stage?.close());

/** As when the process is killed: what was written may arrive, then the connection is reset. */
const die = async (response: ServerResponse) => {
  await sleep(20);
  response.socket?.resetAndDestroy();
};

/** Sends these events and a part of the next one, then dies; a whole answer dies half way. */
const diesAfter =
  (events: (question: string) => string): Script =>
  async (request, response) => {
    const { question, stream } = askedIn(request);
    if (!stream) {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
      response.write('{"id":"chatcmpl-1","choices":[');
      return die(response);
    }
    beginStream(response);
    response.write(events(question));
    await die(response);
  };

const words = (question: string) => role() + deltasFor(question);

const BROKEN_WHOLE = { '502 backend_bad_response': 10, 'no tee: cut': 10 };
/** The proof is what a finish chunk waits for; without tee the backend's bytes go on as they come. */
const FINISHED = {
  'deltas, then error backend_bad_response': 10,
  'no tee: stop, then cut': 10,
  ...BROKEN_WHOLE,
};
const UNREACHABLE = { '502 backend_unreachable, retry-after': 20, 'no tee: 502 backend_unreachable, retry-after': 20 };

describe('the backend', () => {
  it('killed before its headers', async (context) => {
    const fault = await Fault.ofBackend(
      context,
      stage,
      (_request, response) => void response.socket?.resetAndDestroy(),
    );
    const saw = await fault.end('backend killed before its headers');
    expect(saw).toEqual(UNREACHABLE);
  });

  it('killed in the middle of a chunk', async (context) => {
    const half = (question: string) => words(question).slice(0, -25);
    const fault = await Fault.ofBackend(context, stage, diesAfter(half));
    expect(await fault.end('backend killed mid-chunk')).toEqual({
      'deltas, then error backend_bad_response': 10,
      'no tee: deltas, then cut': 10,
      ...BROKEN_WHOLE,
    });
  });

  it('killed after the finish chunk', async (context) => {
    const fault = await Fault.ofBackend(
      context,
      stage,
      diesAfter((question) => words(question) + finish()),
    );
    const saw = await fault.end('backend killed after the finish chunk');
    expect(saw).toEqual(FINISHED);
  });

  it('killed before [DONE]', async (context) => {
    const fault = await Fault.ofBackend(
      context,
      stage,
      diesAfter((question) => words(question) + finish() + usage()),
    );
    const saw = await fault.end('backend killed before [DONE]');
    expect(saw).toEqual(FINISHED);
  });

  it('killed in the middle of [DONE]', async (context) => {
    const fault = await Fault.ofBackend(
      context,
      stage,
      diesAfter((question) => words(question) + finish() + usage() + DONE.slice(0, 9)),
    );
    const saw = await fault.end('backend killed mid-[DONE]');
    expect(saw).toEqual(FINISHED);
  });

  it('away', async (context) => {
    stage.backend.script = echo();
    const fault = await Fault.begin(context, stage);
    await stage.backend.stop();
    for (const stream of [true, false]) for (const tee of [true, false]) fault.ask(10, { stream, tee });
    expect(await fault.all()).toEqual(UNREACHABLE);
    await expect.poll(() => stage.health(), { timeout: 20_000 }).toBe('down');
    await stage.backend.start();
    await fault.end('backend away, and back');
  });
});
