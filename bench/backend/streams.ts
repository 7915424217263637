// The backend's streams: paced by one clock for all, as fast as they are taken, or held open in silence.
import type { Socket } from 'node:net';
import { DONE, FINISH, ROLE, stampedDelta } from '../answer.ts';
import type { Scene } from '../scene.ts';
import { now_us } from '../system/clock.ts';

const HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n';
const TICK_MS = 1;

const framed = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const END = `${framed(FINISH)}${framed(DONE)}0\r\n\r\n`;

interface Paced {
  readonly socket: Socket;
  readonly period_us: number;
  due_us: number;
  left: number;
}
const paced = new Set<Paced>();
let ticking: NodeJS.Timeout | null = null;

/** Streams that have not ended, so that one target's leftovers never run into the next one's time. */
const open = new Set<Socket>();
const known = new WeakSet<Socket>();

/** Ends every stream that is still open; says how many there were. */
export function endStreams(): number {
  const count = open.size;
  for (const socket of open) socket.destroy();
  open.clear();
  return count;
}

function remember(socket: Socket): void {
  open.add(socket);
  if (known.has(socket)) return;
  known.add(socket);
  socket.once('close', () => open.delete(socket));
}

function finish(socket: Socket): void {
  open.delete(socket);
  socket.write(END, 'latin1');
}

export function startStream(socket: Socket, scene: Exclude<Scene, { kind: 'whole' }>): void {
  const start_us = now_us();
  if (!open.has(socket)) remember(socket);
  socket.write(HEAD + framed(ROLE) + framed(stampedDelta(start_us)), 'latin1');
  if (scene.kind === 'hold') return;
  if (scene.kind === 'burst') return burst(socket, scene.chunks - 1);
  const period_us = 1e6 / scene.rate;
  paced.add({ socket, period_us, due_us: start_us + period_us, left: scene.chunks - 1 });
  ticking ??= setInterval(tick, TICK_MS);
}

function tick(): void {
  for (const stream of paced) {
    if (stream.socket.destroyed) {
      paced.delete(stream);
      continue;
    }
    const now = now_us();
    if (now < stream.due_us) continue;
    stream.due_us += stream.period_us;
    if (stream.left-- > 0) stream.socket.write(framed(stampedDelta(now)), 'latin1');
    else {
      finish(stream.socket);
      paced.delete(stream);
    }
  }
  if (paced.size > 0 || ticking === null) return;
  clearInterval(ticking);
  ticking = null;
}

/** One event in one write each turn of the loop, so that streams interleave; pauses while the reader is behind. */
function burst(socket: Socket, chunks: number): void {
  let left = chunks;
  const step = (): void => {
    if (socket.destroyed) return;
    if (left === 0) return finish(socket);
    left--;
    if (socket.write(framed(stampedDelta(now_us())), 'latin1')) setImmediate(step);
    else socket.once('drain', step);
  };
  setImmediate(step);
}
