// Writes of one turn of the event loop, handed to the kernel one after the other at its end, while turns carry several.
// A write wakes whoever reads from it, and pushes our own code out of the processor's caches: many in a row cost a seventh
// of a request less than one here and one there. A turn that carries a single write has nothing to gain, and
// would wait.
import type { Socket } from 'node:net';

/** So many wait for each other at most: the first of them is not to wait for a whole crowd. */
const MAX_WAITING = 128;
/** A turn is worth it from so many writes on. */
const MIN_WRITES = 2;
/** While turns are not gathered, one write in so many is, with those after it in its turn: so it sees about half of what a turn carries. */
const PROBE_WRITES = 128;
/** The mean is over about so many turns. */
const MEAN_TURNS = 8;

export class Batch {
  #waiting: Socket[] = [];
  /** Of this turn. */
  #writes = 0;
  #mean_writes = 0;
  #skipped_writes = 0;

  /** To be called before a write: it goes out at the end of this turn, if turns carry several. Ending the socket sends it at once. */
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

/** Requests to the backend and whole answers. */
export const batch = new Batch();
/** Chunks of streams: however many a turn carries of them, a request does not wait for their end. */
export const chunks = new Batch();
