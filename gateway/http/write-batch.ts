// Delays the writes of one turn of the event loop, and hands them to the kernel one after the other at its end. A write wakes the process
// that reads from it and pushes our own code out of the processor's caches: writes in a row cost a seventh of a request less than scattered
// ones. A turn with a single write gains nothing and would only wait, so this happens only while turns carry several writes.
import type { Socket } from 'node:net';

/** The most writes that wait for each other, so that the first is not delayed for long. */
const MAX_WAITING = 128;
/** Writes are batched while turns carry at least this many on average. */
const MIN_WRITES = 2;
/** While writes are not batched, one write in this many is, with those after it in its turn. It shows about half of a turn's writes. */
const PROBE_WRITES = 128;
/** The mean is taken over about this many turns. */
const MEAN_TURNS = 8;

export class Batch {
  #waiting: Socket[] = [];
  /** Writes in this turn. */
  #writes = 0;
  #mean_writes = 0;
  #skipped_writes = 0;

  /** Call this before a write. The write goes out at the end of this turn if turns carry several. Ending the socket sends it at once. */
  add(socket: Socket): void {
    if (this.#mean_writes < MIN_WRITES && ++this.#skipped_writes < PROBE_WRITES) return;
    if (socket.writableCorked > 0) return;
    socket.cork();
    this.#waiting.push(socket);
    if (++this.#writes === 1) setImmediate(this.#endTurn);
    else if (this.#waiting.length === MAX_WAITING) this.#send();
  }

  readonly #endTurn = (): void => {
    this.#mean_writes += (this.#writes - this.#mean_writes) / MEAN_TURNS;
    this.#writes = 0;
    this.#skipped_writes = 0;
    this.#send();
  };

  #send(): void {
    const sockets = this.#waiting;
    this.#waiting = [];
    for (const socket of sockets) socket.uncork();
  }
}

/** For requests to the backend and whole responses. */
export const batch = new Batch();
/** For chunks of streams, so that a request does not wait for the many chunks of a turn. */
export const chunks = new Batch();
