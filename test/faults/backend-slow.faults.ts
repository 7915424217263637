// The backend slow, silent, never ending and flooding.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { delta, role } from '../support/backend.ts';
import { Fault } from './fault.ts';
import { Stage } from './stage.ts';
import { askedIn, beginStream, deltasFor, echo, eventsFor, sleep, writtenOut } from './words.ts';

const MIB = 1024 * 1024;
let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start({
    gateway: {
      BACKEND_TIMEOUT_MS: '2000',
      MAX_ANSWER_BYTES: String(4 * MIB),
      limits: { max_answer_ms: 6_000, max_stream_bytes: 16 * MIB },
    },
  });
}, 60_000);
afterAll(() => stage?.close());

const TOO_SLOW = {
  'deltas, then error backend_timeout': 10,
  '504 backend_timeout': 10,
  'no tee: deltas, then error backend_timeout': 10,
  'no tee: 504 backend_timeout': 10,
};

describe('the backend', () => {
  it('dripping, a few bytes at a time', async (context) => {
    const fault = await Fault.ofBackend(context, stage, async (request, response) => {
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
    const fault = await Fault.ofBackend(context, stage, (request, response) => {
      const { question, stream } = askedIn(request);
      if (!stream) return; // not even headers
      beginStream(response);
      response.write(role() + deltasFor(question));
    });
    const saw = await fault.end('backend silent for longer than BACKEND_TIMEOUT_MS');
    expect(saw).toEqual(TOO_SLOW);
  });

  it('never ending', async (context) => {
    const fault = await Fault.ofBackend(context, stage, async (request, response) => {
      if (!askedIn(request).stream) return;
      beginStream(response);
      while (!response.destroyed) {
        response.write(delta(' and'));
        await sleep(100);
      }
    });
    const saw = await fault.end('backend never ending, past its longest time');
    expect(saw).toEqual(TOO_SLOW);
  });

  it('flooding', async (context) => {
    const flood = delta('x'.repeat(16_000));
    const fault = await Fault.ofBackend(
      context,
      stage,
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
    // The gateway sends an error event where the chunk at the limit ends with an event; it cuts the stream where it does not.
    const ERROR = 'no tee: deltas, then error backend_bad_response';
    const CUT = 'no tee: deltas, then cut';
    const { [ERROR]: errors = 0, [CUT]: cut = 0, 'no tee: cut': whole = 0, ...others } = saw;
    expect(errors + cut + whole).toBe(8);
    expect(whole).toBeGreaterThanOrEqual(4);
    expect(others).toEqual({ 'deltas, then error answer_too_large': 4, '502 answer_too_large': 4 });
  });
});
