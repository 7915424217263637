// A client that takes nothing of what waits for it: how that is seen.
import { ServerResponse } from 'node:http';
import type { Outgoing } from './wire/answer.ts';

/** Ends an answer when nothing has moved on its connection for `stall_ms`, and bytes still wait for the client to take them. */
export function endWhenStalled(outgoing: Outgoing, stall_ms: number): void {
  outgoing.setTimeout(stall_ms, () => {
    if (outgoing.writableLength > 0 || (outgoing.socket?.writableLength ?? 0) > 0) outgoing.destroy();
  });
}

/**
 * While something waits for a client of Node's server nothing is read from it: what it sends would count as movement, and a
 * byte now and then would hold its place for good. A plain connection sees to that itself.
 */
export function readNothingMeanwhile(outgoing: Outgoing): void {
  const { socket } = outgoing;
  if (!(outgoing instanceof ServerResponse) || socket === null || !socket.writableNeedDrain || socket.isPaused())
    return;
  socket.pause();
  socket.once('drain', () => socket.resume());
}
