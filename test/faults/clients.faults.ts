// Clients that leave, stall, half-close, or send a byte at a time; a thousand that say nothing at all.
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { delta, type Script } from '../backend.ts';
import { eventually } from '../harness.ts';
import { Fault } from './fault.ts';
import { NEVER } from './seen.ts';
import { Stage } from './stage.ts';
import { beginStream, echo, sleep, writtenOut } from './words.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.start({
    gateway: { WRITE_STALL_MS: '2000', HEADERS_TIMEOUT_MS: '3000', REQUEST_TIMEOUT_MS: '6000' },
  });
}, 60_000);
afterAll(() => stage?.close());

const STREAM = JSON.stringify({ messages: [{ role: 'user', content: 'by hand' }], stream: true, tee: true });
const headFor = (body: string) =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
const HEAD = headFor(STREAM);
const FLOOD = delta('x'.repeat(16_000));

interface Line {
  readonly socket: Socket;
  text: string;
  closed: boolean;
}

function dial(): Promise<Line> {
  const { hostname, port } = new URL(stage.url);
  const line: Line = {
    socket: connect({ port: Number(port), host: hostname, allowHalfOpen: true }),
    text: '',
    closed: false,
  };
  line.socket.on('data', (data) => {
    line.text += data;
  });
  line.socket.on('error', () => {});
  line.socket.on('close', () => {
    line.closed = true;
  });
  line.socket.on('end', () => line.socket.end());
  return new Promise((resolve) => {
    line.socket.once('connect', () => resolve(line)).once('close', () => resolve(line));
  });
}

const lines = (count: number) => Promise.all(Array.from({ length: count }, dial));

/** In words; `NEVER` when the connection is still open after so long. */
async function letGo(line: Line, within_ms: number): Promise<string> {
  try {
    await eventually(() => line.closed, within_ms);
  } catch {
    return `${NEVER}held on to`;
  } finally {
    line.socket.destroy();
  }
  const status = /^HTTP\/1\.1 (\d{3})/.exec(line.text)?.[1];
  const code = /"code":"(\w+)"/.exec(line.text)?.[1];
  if (line.text.includes('"finish_reason":"stop"')) return `${NEVER}stop`;
  if (status === undefined) return 'let go without a word';
  return status === '200' ? 'deltas, then let go' : `${status} ${code}, then let go`;
}

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
    expect(saw).toEqual({ 'deltas, then cut': 50, 'no tee: deltas, then cut': 50 });
  });

  it('that leave while their answer is attested', async (context) => {
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo();
    stage.sidecar.child.kill('SIGSTOP');
    for (let i = 0; i < 30; i++) {
      fault.note(
        dial().then(async (line) => {
          line.socket.write(HEAD + STREAM);
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
    ['without tee', STREAM.replace('"tee":true', '"tee":false')],
    ['with tee', STREAM],
  ] as const)(
    'that stop reading, %s: the backend waits, and in time they are let go',
    async ([kind, body], context) => {
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
        const stalled = await lines(20);
        for (const line of stalled) {
          line.socket.pause();
          line.socket.write(headFor(body) + body);
        }
        await eventually(() => stage.backend.seen.length === 20, 10_000);
        await eventually(() => stage.backend.seen.every((one) => one.aborted_ms !== null), 30_000);
        for (const line of stalled) line.socket.destroy();
        stage.backend.script = echo();
        return stalled.map(() => 'let go after WRITE_STALL_MS');
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
    const halves = await lines(20);
    for (const line of halves) {
      line.socket.end(HEAD + STREAM);
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
    const slow = await lines(50);
    for (const [i, line] of slow.entries()) {
      // Half of them drip their headers, half their body.
      const text = i % 2 === 0 ? HEAD + STREAM : STREAM;
      if (i % 2 === 1) line.socket.write(HEAD);
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
    const idle = await lines(1_000);
    fault.ask(50, { stream: true, tee: true });
    fault.ask(50, { stream: false, tee: false });
    await fault.all();
    for (const line of idle) fault.note(letGo(line, 40_000));
    const saw = await fault.end('1,000 idle connections');
    expect(saw).toMatchObject({ 'stop with its proof': 50, 'no tee: the answer': 50 });
  });
});
