// What clients send without being served is bounded for all of them together: the one who has most of it is let go.
import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { MAX_UNSERVED_BYTES } from '../../../gateway/base/memory-bounds.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { get, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const service = useService();

function flood(count: number, text: string): { sockets: Socket[]; closed: () => number } {
  const { port } = new URL(service.gateway.url);
  let closed = 0;
  const sockets = Array.from({ length: count }, () => {
    const socket = connect(Number(port), '127.0.0.1', () => socket.write(text));
    return socket
      .on('error', () => {})
      .on('close', () => closed++)
      .resume();
  });
  return { sockets, closed: () => closed };
}

const HEAD = `GET /health HTTP/1.1\r\nhost: h\r\n${Array.from({ length: 600 }, (_, i) => `x-${i}: ${'v'.repeat(24)}\r\n`).join('')}`;

describe('clients that send heads without an end', () => {
  it('are let go past what is kept for all; others are served, whatever path their requests take', async () => {
    const { url } = service.gateway;
    const many = Math.ceil((1.5 * MAX_UNSERVED_BYTES) / (4 * HEAD.length));
    const { sockets, closed } = flood(many, HEAD);
    await eventually(() => closed() >= many / 4);
    for (let i = 0; i < 5; i++) {
      expect((await chat(url, CHAT)).status).toBe(200);
      const parts = get(
        '/health',
        Array.from({ length: 60 }, (_, k) => `y-${k}: ${'w'.repeat(20)}`),
      );
      expect((await raw(url, parts)).answers[0]?.status).toBe(200);
    }
    expect(closed()).toBeLessThan(many);
    for (const socket of sockets) socket.destroy();
    await eventually(() => closed() === many);
    // And there is room again.
    const again = flood(20, HEAD);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(again.closed()).toBe(0);
    for (const socket of again.sockets) socket.destroy();
  });
});

describe('clients that send many requests behind one that is not answered yet', () => {
  it('are let go past what is kept for all; others are served', async () => {
    const waiting = 300;
    service.backend.script = () => {};
    const requests = get('/v1/things') + 'GET / HTTP/1.1\r\nhost:h\r\n\r\n'.repeat(140);
    const { sockets, closed } = flood(waiting, requests);
    await eventually(() => closed() > 0, 10_000);
    expect(closed()).toBeLessThan(waiting);
    service.backend.script = chatAnswer('Here.');
    expect((await chat(service.gateway.url, CHAT)).status).toBe(200);
    for (const socket of sockets) socket.destroy();
    await eventually(() => closed() === waiting);
  });
});
