// The figures: thousands of tee requests while the sidecar is restarted every two seconds, thousands of open streams.
import { afterEach, describe, expect, it } from 'vitest';
import { DONE, delta, finish, role, usage } from '../support/backend.ts';
import { Fault } from './fault.ts';
import { REQUESTS, STREAMS } from './settings.ts';
import { Stage } from './stage.ts';
import { askedIn, beginStream, echo, sleep, wordsFor } from './words.ts';

const AT_ONCE = 64;
let stage: Stage;
afterEach(() => stage?.close());

const REQUESTED = `${REQUESTS.number} tee requests`;

describe.each([
  ['each with a signature of its own', REQUESTED, {}, {}],
  // Long enough for batches to form, and for the sidecar to be killed with one in hand.
  ['sharing signatures', `${REQUESTED} with batches`, { batch: true }, { args: ['--collection-ms', '50'] }],
])('tee requests while the sidecar is restarted every two seconds, %s', (_, name, how, sidecar) => {
  it('0 lost, 0 crossed, 0 without proof', { timeout: Math.max(170_000, REQUESTS.number * 80) }, async (context) => {
    stage = await Stage.start({ sidecar });
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo(2);
    let over = false;
    const restarting = stage.restartSidecarWhile(() => !over && !context.signal.aborted);
    let left = REQUESTS.number;
    const client = async () => {
      while (left-- > 0) await fault.ask(1, { stream: left % 2 === 0, tee: true, ...how });
    };
    await Promise.all(Array.from({ length: AT_ONCE }, client));
    over = true;
    const restarts = await restarting;
    const half = REQUESTS.number / 2;
    const saw = await fault.end(`${name}, sidecar restarted every 2 s (${restarts} times)`);
    expect(saw).toEqual({ 'stop with its proof': half, 'the answer with its proof': half });
    expect(restarts).toBeGreaterThan(1);
  });
});

describe(`${STREAMS} open streams`, () => {
  it('none dropped: each says a word a second, then ends with its proof', async (context) => {
    stage = await Stage.start();
    const fault = await Fault.begin(context, stage);
    let open = 0;
    let most = 0;
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    stage.backend.script = async (request, response) => {
      const { question } = askedIn(request);
      most = Math.max(most, ++open);
      beginStream(response);
      response.write(role());
      const [first = '', ...rest] = wordsFor(question);
      response.write(delta(first));
      const words = rest.map((word) => delta(word));
      await ended;
      for (const word of words) {
        response.write(word);
        await sleep(1_000);
      }
      response.end(finish() + usage() + DONE);
      open--;
    };
    const tee = STREAMS / 2;
    fault.ask(tee, { stream: true, tee: true, hang_ms: 90_000 });
    fault.ask(STREAMS - tee, { stream: true, tee: false, hang_ms: 90_000 });
    await expect.poll(() => most, { timeout: 60_000, interval: 200 }).toBe(STREAMS);
    end();
    await fault.all();
    stage.backend.script = echo();
    expect(await fault.end(`${STREAMS} open streams, half of them with tee`)).toEqual({
      'stop with its proof': tee,
      'no tee: the stream whole': STREAMS - tee,
    });
  });
});
