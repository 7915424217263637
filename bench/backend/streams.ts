// The backend's streams: paced by one clock for all, as fast as they are taken, or held open in silence.
import type { Socket } from 'node:net';
import {
  DONE,
  FINISH,
  RESPONSE_START,
  ROLE,
  responseDelta,
  responseEnd,
  responseText,
  stampedDelta,
} from '../answer.ts';
import type { Scene } from '../scene.ts';
import { now_us } from '../system/clock.ts';

/** When the other side left a held stream. Read by main. */
export const leftAt = new Map<number, number>();

const HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n';
const TICK_MS = 1;

const framed = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const LAST = '0\r\n\r\n';
const END = `${framed(FINISH)}${framed(DONE)}${LAST}`;

interface Paced {
  readonly socket: Socket;
  readonly more_bytes: number;
  readonly period_us: number;
  due_us: number;
  left: number;
  /** What a response has said so far; null: a chat completion, which does not repeat it. */
  text: string | null;
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

function finish(socket: Socket, end = END): void {
  open.delete(socket);
  socket.write(end, 'latin1');
}

export function startStream(socket: Socket, scene: Exclude<Scene, { kind: 'whole' }>): void {
  const start_us = now_us();
  if (!open.has(socket)) remember(socket);
  const response = scene.kind === 'paced' && scene.form === 'response';
  const text = response ? responseText(start_us) : null;
  const first = text === null ? stampedDelta(start_us) : responseDelta(text);
  socket.write(HEAD + framed(response ? RESPONSE_START : ROLE) + framed(first), 'latin1');
  if (scene.kind === 'hold') return hold(socket, scene.id);
  if (scene.kind === 'burst') return burst(socket, scene.chunks - 1);
  const period_us = 1e6 / scene.rate;
  const more_bytes = scene.more_bytes ?? 0;
  paced.add({ socket, more_bytes, period_us, due_us: start_us + period_us, left: scene.chunks - 1, text });
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
    if (stream.left-- > 0) stream.socket.write(framed(nextOf(stream, now)), 'latin1');
    else {
      finish(stream.socket, stream.text === null ? END : framed(responseEnd(stream.text)) + LAST);
      paced.delete(stream);
    }
  }
  if (paced.size > 0 || ticking === null) return;
  clearInterval(ticking);
  ticking = null;
}

function nextOf(stream: Paced, now: number): string {
  if (stream.text === null) return stampedDelta(now, stream.more_bytes);
  const text = responseText(now);
  stream.text += text;
  return responseDelta(text);
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

function hold(socket: Socket, id: number): void {
  const note = (): void => {
    if (!leftAt.has(id)) leftAt.set(id, now_us());
  };
  socket.once('end', note);
  socket.once('close', note);
}
