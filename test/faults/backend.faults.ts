// The backend killed at every stage of its answer, slow, silent, never ending, flooding, away.
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DONE, delta, finish, role, type Script, usage } from '../backend.ts';
import { Fault } from './fault.ts';
import { Stage } from './stage.ts';
import { askedIn, beginStream, echo, eventsFor, sleep, wordsFor, writtenOut } from './words.ts';

const MIB = 1024 * 1024;
let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start({
    gateway: {
      BACKEND_TIMEOUT_MS: '2000',
      MAX_ANSWER_MS: '6000',
      MAX_ANSWER_BYTES: String(4 * MIB),
      MAX_STREAM_BYTES: String(16 * MIB),
    },
  });
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

const words = (question: string) =>
  role() +
  wordsFor(question)
    .map((word) => delta(word))
    .join('');

/** Clients of each kind, the fault, and as ever after it. */
async function under(context: Parameters<typeof Fault.begin>[0], script: Script, clients = 10) {
  stage.backend.script = echo();
  const fault = await Fault.begin(context, stage);
  stage.backend.script = script;
  for (const stream of [true, false]) for (const tee of [true, false]) fault.ask(clients, { stream, tee });
  await fault.all();
  stage.backend.script = echo();
  return fault;
}

const BROKEN_WHOLE = { '502 backend_bad_response': 10, 'no tee: cut': 10 };
/** The proof is what a finish chunk waits for; without tee the backend's bytes go on as they come. */
const FINISHED = {
  'deltas, then error backend_bad_response': 10,
  'no tee: stop, then cut': 10,
  ...BROKEN_WHOLE,
};
const UNREACHABLE = { '502 backend_unreachable, retry-after': 20, 'no tee: 502 backend_unreachable, retry-after': 20 };
const TOO_SLOW = {
  'deltas, then error backend_timeout': 10,
  '504 backend_timeout': 10,
  'no tee: deltas, then error backend_timeout': 10,
  'no tee: 504 backend_timeout': 10,
};

describe('the backend', () => {
  it('killed before its headers', async (context) => {
    const fault = await under(context, (_request, response) => void response.socket?.resetAndDestroy());
    const saw = await fault.end('backend killed before its headers');
    expect(saw).toEqual(UNREACHABLE);
  });

  it('killed in the middle of a chunk', async (context) => {
    const half = (question: string) => words(question).slice(0, -25);
    const fault = await under(context, diesAfter(half));
    expect(await fault.end('backend killed mid-chunk')).toEqual({
      'deltas, then error backend_bad_response': 10,
      'no tee: deltas, then cut': 10,
      ...BROKEN_WHOLE,
    });
  });

  it('killed after the finish chunk', async (context) => {
    const fault = await under(
      context,
      diesAfter((question) => words(question) + finish()),
    );
    const saw = await fault.end('backend killed after the finish chunk');
    expect(saw).toEqual(FINISHED);
  });

  it('killed before [DONE]', async (context) => {
    const fault = await under(
      context,
      diesAfter((question) => words(question) + finish() + usage()),
    );
    const saw = await fault.end('backend killed before [DONE]');
    expect(saw).toEqual(FINISHED);
  });

  it('killed in the middle of [DONE]', async (context) => {
    const fault = await under(
      context,
      diesAfter((question) => words(question) + finish() + usage() + DONE.slice(0, 9)),
    );
    const saw = await fault.end('backend killed mid-[DONE]');
    expect(saw).toEqual(FINISHED);
  });

  it('dripping, a few bytes at a time', async (context) => {
    const fault = await under(context, async (request, response) => {
      const { question, stream } = askedIn(request);
      if (!stream) return echo()(request, response);
      beginStream(response);
      const text = eventsFor(question).join('');
      for (let at = 0; at < text.length; at += 7) {
        if (response.destroyed) return;
        response.write(text.slice(at, at + 7));
        await sleep(5);
      }
      response.end();
    });
    expect(await fault.end('backend dripping, 7 bytes every 5 ms')).toEqual({
      'stop with its proof': 10,
      'the answer with its proof': 10,
      'no tee: the stream whole': 10,
      'no tee: the answer': 10,
    });
  });

  it('silent after its first words', async (context) => {
    const fault = await under(context, (request, response) => {
      const { question, stream } = askedIn(request);
      if (!stream) return; // not even headers
      beginStream(response);
      response.write(words(question));
    });
    const saw = await fault.end('backend silent for longer than BACKEND_TIMEOUT_MS');
    expect(saw).toEqual(TOO_SLOW);
  });

  it('never ending', async (context) => {
    const fault = await under(context, async (request, response) => {
      if (!askedIn(request).stream) return;
      beginStream(response);
      while (!response.destroyed) {
        response.write(delta(' and'));
        await sleep(100);
      }
    });
    const saw = await fault.end('backend never ending, past MAX_ANSWER_MS');
    expect(saw).toEqual(TOO_SLOW);
  });

  it('flooding', async (context) => {
    const flood = delta('x'.repeat(16_000));
    const fault = await under(
      context,
      async (request, response) => {
        if (!askedIn(request).stream) {
          response.writeHead(200, { 'content-type': 'application/json' });
          while (!response.destroyed) if (!response.write('x'.repeat(16_000))) await writtenOut(response);
          return;
        }
        beginStream(response);
        while (!response.destroyed) if (!response.write(flood)) await writtenOut(response);
      },
      4,
    );
    const saw = await fault.end('backend flooding without an end');
    expect(saw).toEqual({
      'deltas, then error backend_bad_response': 4,
      '502 backend_bad_response': 4,
      'no tee: deltas, then cut': 4,
      'no tee: cut': 4,
    });
  });

  it('away', async (context) => {
    stage.backend.script = echo();
    const fault = await Fault.begin(context, stage);
    await stage.backend.stop();
    for (const stream of [true, false]) for (const tee of [true, false]) fault.ask(10, { stream, tee });
    expect(await fault.all()).toEqual(UNREACHABLE);
    expect(await stage.health()).toBe('down');
    await stage.backend.start();
    await fault.end('backend away, and back');
  });
});
