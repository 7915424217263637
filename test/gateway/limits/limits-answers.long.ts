import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { chatBody, delta, role, type Script, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { type Stage, startStage } from './limits-stage.ts';

// Megabytes to clients that do not read: seconds each, and more on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
});
afterAll(() => stage.close());

const STREAM = { ...CHAT, stream: true };

/** An endless stream, one word every few milliseconds. */
const endless = (word: string, pause_ms: number): Script =>
  stream([role(), ...Array(5_000).fill(delta(word))], pause_ms);

describe('an answer', () => {
  it('as a stream has a greatest length in bytes and in events, with tee and without, and says so at its end', async () => {
    const { backend } = stage.service;
    const bytes = await stage.gateway({ limits: { max_stream_bytes: 4096 } });
    const events = await stage.gateway({ limits: { max_stream_events: 10 } });
    for (const [url, what] of [
      [bytes, 'bytes'],
      [events, 'events'],
    ] as const)
      for (const tee of [false, true]) {
        backend.script = endless('word', 1);
        backend.seen.length = 0;
        const got = await chat(url, { ...STREAM, tee });
        const last = JSON.parse(got.payloads().at(-1) ?? '');
        expect([last.error.code, last.error.message]).toEqual(['backend_bad_response', expect.stringContaining(what)]);
        expect(got.body.length).toBeLessThan(6_000);
        expect(got.payloads().length).toBeGreaterThan(9);
        expect(got.text).not.toContain('"finish_reason":"stop"');
        await eventually(() => backend.seen[0]?.aborted_ms !== null);
      }
  });

  it('has a greatest time, before its head, whole or streamed', async () => {
    const { backend } = stage.service;
    const url = await stage.gateway({ limits: { max_answer_ms: 300 } });
    backend.script = endless('word', 20);
    for (const tee of [false, true]) {
      const last = JSON.parse((await chat(url, { ...STREAM, tee })).payloads().at(-1) ?? '');
      expect(last.error.code).toBe('backend_timeout');
    }
    backend.script = () => {};
    expectError(await chat(url, CHAT), 504, 'backend_timeout');
    backend.script = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'application/json' }).write('{');
    expectError(await chat(url, { ...CHAT, tee: true }), 504, 'backend_timeout');
    expect((await chat(url, CHAT)).complete).toBe(false);
  });

  it('that nobody reads gives its place back after the time to stall, and a slow reader is not taken for one', async () => {
    const { backend } = stage.service;
    const url = await stage.gateway({
      limits: { write_stall_ms: 500 },
      MAX_CONCURRENT_REQUESTS: '1',
      MAX_ANSWER_BYTES: String(32 * 1024 * 1024),
      MAX_HELD_BYTES: String(256 * 1024 * 1024),
    });
    const big = chatBody('x'.repeat(16 * 1024 * 1024));
    for (const [body, node] of [STREAM, CHAT, { ...CHAT, tee: true }].flatMap(
      (one) =>
        [
          [one, false],
          [one, true],
        ] as const,
    )) {
      backend.script = (_request, response) => {
        const type = 'stream' in body ? 'text/event-stream' : 'application/json';
        response
          .writeHead(200, { 'content-type': type })
          .end('stream' in body ? delta('x'.repeat(1000)).repeat(12_000) : big);
      };
      const { socket, left } = sendAndNeverRead(url, JSON.stringify(body), node);
      // A byte now and then is no reading.
      const dripping = setInterval(() => socket.write('P'), 100);
      await eventually(async () => (await ask(`${url}/v1/models`, { method: 'GET' })).status === 503, 30_000);
      await eventually(async () => (await ask(`${url}/v1/models`, { method: 'GET' })).status === 200, 30_000);
      clearInterval(dripping);
      socket.resume();
      await left;
    }
    // Reads a little now and then, for longer than the time to stall.
    backend.script = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'application/json' }).end(big);
    const slow = connect(Number(new URL(url).port), '127.0.0.1');
    let received = 0;
    const started = performance.now();
    slow.on('data', (chunk) => {
      received += chunk.length;
      if (received > 10_000_000 || performance.now() - started > 1_500) return;
      slow.pause();
      setTimeout(() => slow.resume(), 10);
    });
    slow.write(requestOf(JSON.stringify(CHAT)));
    await eventually(() => received > big.length, 60_000);
    expect(performance.now() - started).toBeGreaterThan(1_000);
    slow.destroy();
  });

  it('costs bounded memory while nobody reads it', async () => {
    const { backend } = stage.service;
    const url = await stage.gateway({});
    let sent = 0;
    backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const chunk = delta('x'.repeat(60_000));
      const more = () => {
        do sent += chunk.length;
        while (response.write(chunk));
      };
      response.on('drain', more);
      more();
    };
    const clients = Array.from({ length: 20 }, (_, i) =>
      sendAndNeverRead(url, JSON.stringify({ ...STREAM, tee: i % 2 === 0 }), i % 4 < 2),
    );
    let before = -1;
    await eventually(async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const still = sent > 0 && sent === before;
      before = sent;
      return still;
    }, 60_000);
    // What lies in four kernel buffers and the gateway, of an endless answer.
    expect(sent / clients.length).toBeLessThan(12 * 1024 * 1024);
    for (const { socket } of clients) socket.destroy();
  });
});

/** `node`: in a form that is left to Node's parser. */
function requestOf(body: string, node = false): string {
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
  return `${head}${node ? 'te: trailers\r\n' : ''}content-length: ${body.length}\r\n\r\n${body}`;
}

function sendAndNeverRead(url: string, body: string, node: boolean) {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  const left = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.pause();
  socket.write(requestOf(body, node));
  return { socket, left };
}
