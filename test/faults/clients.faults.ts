// Clients that leave, stall, half-close, or send a byte at a time; a thousand that say nothing at all.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { delta, type Script } from '../support/backend.ts';
import { eventually } from '../support/harness.ts';
import { Fault } from './fault.ts';
import { NEVER } from './judge.ts';
import { dial, letGo, lines, PLAIN, TEE } from './line.ts';
import { Stage } from './stage.ts';
import { beginStream, echo, sleep, writtenOut } from './words.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start({
    gateway: { limits: { write_stall_ms: 2_000, headers_timeout_ms: 3_000, request_timeout_ms: 6_000 } },
  });
}, 60_000);
afterAll(() => stage?.close());

const FLOOD = delta('x'.repeat(16_000));

/** Words for as long as somebody takes them. */
const endless: Script = async (_request, response) => {
  beginStream(response);
  while (!response.destroyed) {
    response.write(delta('word '));
    await sleep(20);
  }
};

describe('clients', () => {
  it('that leave, at any time: the backend is let go', async (context) => {
    const fault = await Fault.begin(context, stage);
    stage.backend.seen.length = 0;
    stage.backend.script = endless;
    const leaving = (text: string) => text.length > 200 + Math.random() * 3_000;
    for (const tee of [true, false]) fault.ask(50, { stream: true, tee, leaves: leaving });
    const saw = await fault.all();
    // Nobody waits for what these left: every one of the backend's answers was cancelled.
    await eventually(() => stage.backend.seen.every((one) => one.aborted_ms !== null), 10_000);
    expect(stage.backend.seen).toHaveLength(100);
    stage.backend.script = echo();
    await fault.end('clients leave mid-stream');
    expect(saw).toEqual({ left: 50, 'no tee: left': 50 });
  });

  it('that leave while their answer is attested', async (context) => {
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo();
    stage.sidecar.child.kill('SIGSTOP');
    for (let i = 0; i < 30; i++) {
      fault.note(
        dial(stage.url).then(async (line) => {
          line.socket.write(TEE.head + TEE.body);
          await eventually(() => line.text.includes('by hand'), 10_000).catch(() => {});
          line.socket.destroy();
          return line.text.includes('"finish_reason":"stop"') ? `${NEVER}stop` : 'deltas, then left';
        }),
      );
    }
    await fault.all();
    stage.sidecar.child.kill('SIGCONT');
    expect(await fault.end('clients leave while the sidecar holds up their proof')).toEqual({
      'deltas, then left': 30,
    });
  });

  it.for([
    ['without tee', PLAIN],
    ['with tee', TEE],
  ] as const)(
    'that stop reading, %s: the backend waits, and in time they are let go',
    async ([kind, request], context) => {
      let written = 0;
      const flood: Script = async (_request, response) => {
        beginStream(response);
        while (!response.destroyed) {
          written += FLOOD.length;
          if (!response.write(FLOOD)) await writtenOut(response);
        }
      };
      async function stall(): Promise<string[]> {
        stage.backend.seen.length = 0;
        stage.backend.script = flood;
        const stalled = await lines(stage.url, 20);
        for (const line of stalled) {
          line.socket.pause();
          line.socket.write(request.head + request.body);
        }
        await eventually(() => stage.backend.seen.length === 20, 10_000);
        await eventually(() => stage.backend.seen.every((one) => one.aborted_ms !== null), 30_000);
        for (const line of stalled) line.socket.destroy();
        stage.backend.script = echo();
        return stalled.map(() => 'let go after the time to stall');
      }
      // Once before: with tee, what is recorded takes memory that the process keeps for the next time.
      await stall();
      const fault = await Fault.begin(context, stage);
      written = 0;
      for (const words of await stall()) fault.note(Promise.resolve(words));
      // What was written lies in the kernel's buffers between the processes, and is no answer of any length.
      expect(written / 20).toBeLessThan(32 * 1024 * 1024);
      await fault.end(`clients stop reading a flood, ${kind}`);
    },
  );

  it('that close their side after the request have left', async (context) => {
    const fault = await Fault.begin(context, stage);
    stage.backend.seen.length = 0;
    stage.backend.script = endless;
    const halves = await lines(stage.url, 20);
    for (const line of halves) {
      line.socket.end(TEE.head + TEE.body);
      fault.note(letGo(line, 15_000));
    }
    const saw = await fault.all();
    await eventually(() => stage.backend.seen.every((one) => one.aborted_ms !== null), 10_000);
    stage.backend.script = echo();
    await fault.end('clients half-close');
    expect(Object.values(saw).reduce((sum, count) => sum + count, 0)).toBe(20);
  });

  it('that send a byte a second are told 408 and let go', async (context) => {
    const fault = await Fault.begin(context, stage);
    const slow = await lines(stage.url, 50);
    for (const [i, line] of slow.entries()) {
      // Half of them drip their headers, half their body.
      const text = i % 2 === 0 ? TEE.head + TEE.body : TEE.body;
      if (i % 2 === 1) line.socket.write(TEE.head);
      let at = 0;
      const drip = setInterval(() => void (line.socket.writable && line.socket.write(text[at++] ?? '')), 1_000);
      line.socket.once('close', () => clearInterval(drip));
      fault.note(letGo(line, 40_000));
    }
    // Meanwhile others are served.
    fault.ask(10, { stream: true, tee: true });
    expect(await fault.end('clients send one byte a second')).toEqual({
      '408 request_timeout, then let go': 50,
      'stop with its proof': 10,
    });
  });

  it('that say nothing, a thousand of them: others are served, and they are let go', async (context) => {
    const fault = await Fault.begin(context, stage);
    const idle = await lines(stage.url, 1_000);
    fault.ask(50, { stream: true, tee: true });
    fault.ask(50, { stream: false, tee: false });
    await fault.all();
    for (const line of idle) fault.note(letGo(line, 40_000));
    const saw = await fault.end('1,000 idle connections');
    expect(saw).toMatchObject({ 'stop with its proof': 50, 'no tee: the answer': 50 });
  });
});
