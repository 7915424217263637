// A backend that closes idle connections just as requests go out on them.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { createBackend } from '../../../gateway/backend/client.ts';

const OPTIONS = { backend_timeout_ms: 5_000, max_stream_bytes: 1e9, max_stream_events: 1e9, max_answer_ms: 60_000 };
/** Around the rest of a connection, after which it is used again. */
const CLOSES_AFTER_MS = [24, 34] as const;
const within = ([from, to]: readonly [number, number]) => from + Math.random() * (to - from);

it('loses no request to the connections that it closes', async () => {
  const server = createServer((request, response) => {
    const { socket } = request.resume();
    response.end('{}');
    setTimeout(() => socket.end(), within(CLOSES_AFTER_MS));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const backend = createBackend({ backend_url: `http://127.0.0.1:${port}/v1`, ...OPTIONS });
  onTestFinished(async () => {
    await backend.close();
    server.close();
  });
  const call = (owner: string) =>
    new Promise<string>((resolve) =>
      backend.call(
        { method: 'POST', path: '/x', headers: {}, body: '{}', repeatable: true, owner },
        { head: () => {}, data: () => {}, end: () => resolve('answered'), fail: ({ code }) => resolve(code) },
      ),
    );
  const outcomes = await Promise.all(
    Array.from({ length: 20 }, async (_, owner) => {
      const seen: string[] = [];
      for (let i = 0; i < 40; i++) {
        seen.push(await call(String(owner)));
        await sleep(within(CLOSES_AFTER_MS));
      }
      return seen;
    }),
  );
  expect(new Set(outcomes.flat())).toEqual(new Set(['answered']));
});
