// Strangers that connect, say nothing, and connect again when they are let go.
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { attack, dialedMany } from './attack.ts';

interface Options {
  readonly connections: number;
}

const AT_ONCE = 100;
const REST_MS = 20;

attack<Options>(async (given) => {
  const { port, options } = given;
  const open = new Set<Socket>();
  let most = 0;
  let closed = 0;
  for (let from = 1; given.goesOn(); from = (from % 200) + 1) {
    const missing = Math.min(AT_ONCE, options.connections - open.size);
    for (const socket of missing > 0 ? await dialedMany(port, missing, from) : []) {
      open.add(socket);
      socket.resume();
      // The server's end is theirs, too.
      socket.once('end', () => socket.destroy());
      socket.once('close', () => {
        closed++;
        open.delete(socket);
      });
    }
    most = Math.max(most, open.size);
    await sleep(REST_MS);
  }
  for (const socket of open) socket.destroy();
  return { most, closed };
});
