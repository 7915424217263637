// The connections to the backend. One that is idle waits for another request of the same owner, and rests before it carries it.
import type { Owner } from '../keys/caller.ts';
import { Connection, type Origin } from './connection.ts';
import { Heads } from './response.ts';

/**
 * Nothing in HTTP/1.1 says which request an answer belongs to: bytes that a backend sends behind its answer would be taken for
 * the answer to the next request. While a connection rests, whatever arrives on it ends it.
 */
const REST_MS = 25;
/** Those that have rested are looked for so often at most. */
const LOOK_FOR_RESTED_MS = 5;
/** Idle connections go before a backend closes them: uvicorn does after 5 s, and a request may be on its way then. */
const KEEP_ALIVE_MS = 4_000;
/** Past it the one that has been idle for longest is closed. 1,024 that rest are enough for 30,000 requests a second. */
const MAX_IDLE = 2_048;
const MAX_IDLE_OF_OWNER = 1_024;
const MAX_LOOK_MS = 250;
const LOOKS_IN_SILENCE = 8;

/** What one owner has idle, in the order in which they became so. */
interface Idle {
  count: number;
  /** The last is used first: the others may wait until they are closed. */
  readonly rested: Connection[];
}

export class Pool {
  readonly #origin: Origin;
  readonly #heads = new Heads();
  readonly #all = new Set<Connection>();
  /** All that are idle, in the order in which they became so. */
  readonly #idle = new Set<Connection>();
  readonly #idleOf = new Map<Owner, Idle>();
  /** Those of them that rest. */
  readonly #resting: Connection[] = [];
  #rest: NodeJS.Timeout | null = null;
  /** One look at all of them: a timer of its own for each would be set with every request. */
  readonly #looking: NodeJS.Timeout;

  /** `silence_ms`: the longest that a connection may be silent while it carries a request. */
  constructor(origin: Origin, silence_ms: number) {
    this.#origin = origin;
    const look_ms = Math.min(MAX_LOOK_MS, Math.ceil(silence_ms / LOOKS_IN_SILENCE));
    this.#looking = setInterval(() => this.#look(), look_ms).unref();
  }

  /** A connection for one request. `owner` null: a fresh one, which carries no other. */
  take(owner: Owner | null): Connection {
    const idle = owner === null ? undefined : this.#idleOf.get(owner);
    const taken = idle?.rested.pop();
    if (idle === undefined || taken === undefined) return this.fresh(owner);
    idle.count--;
    this.#idle.delete(taken);
    const now_ms = performance.now();
    if (!isOld(taken, now_ms)) return taken;
    // Nobody looked for a while: the process stood still.
    taken.destroy();
    this.#endOld(now_ms);
    return this.fresh(owner);
  }

  fresh(owner: Owner | null): Connection {
    const connection = new Connection(this.#origin, this.#heads, owner, {
      idle: (one) => this.#keep(one),
      gone: (one) => this.#forget(one),
    });
    this.#all.add(connection);
    return connection;
  }

  close(): void {
    clearInterval(this.#looking);
    clearTimeout(this.#rest ?? undefined);
    for (const connection of [...this.#all]) connection.cut();
  }

  #keep(connection: Connection): void {
    const { owner } = connection;
    if (owner === null) return connection.destroy();
    let idle = this.#idleOf.get(owner);
    if (idle === undefined) {
      idle = { count: 0, rested: [] };
      this.#idleOf.set(owner, idle);
    }
    idle.count++;
    this.#idle.add(connection);
    if (this.#resting.push(connection) === 1) this.#wake(REST_MS);
    if (idle.count > MAX_IDLE_OF_OWNER) this.#endFirst(owner);
    else if (this.#idle.size > MAX_IDLE) this.#endFirst(null);
  }

  #forget(connection: Connection): void {
    this.#all.delete(connection);
    if (!this.#idle.delete(connection) || connection.owner === null) return;
    const idle = this.#idleOf.get(connection.owner);
    if (idle !== undefined) idle.count--;
    for (const list of [this.#resting, idle?.rested ?? []]) {
      const at = list.indexOf(connection);
      if (at >= 0) list.splice(at, 1);
    }
  }

  #wake(after_ms: number): void {
    this.#rest = setTimeout(() => {
      const now_ms = performance.now();
      // If the process stood still, what arrived meanwhile is read before an immediate runs, and only then.
      setImmediate(() => this.#endRest(now_ms));
    }, after_ms).unref();
  }

  #endRest(now_ms: number): void {
    const resting = this.#resting;
    let rested = 0;
    while (rested < resting.length && now_ms - (resting[rested] as Connection).idle_since_ms >= REST_MS) rested++;
    for (const one of resting.splice(0, rested)) this.#idleOf.get(one.owner as Owner)?.rested.push(one);
    const first = resting[0];
    if (first !== undefined)
      this.#wake(Math.max(LOOK_FOR_RESTED_MS, Math.ceil(first.idle_since_ms + REST_MS - now_ms)));
  }

  /** The one that has been idle for longest, of `owner` or of all. */
  #endFirst(owner: Owner | null): void {
    for (const one of this.#idle) if (owner === null || one.owner === owner) return one.destroy();
  }

  #look(): void {
    const now_ms = performance.now();
    for (const connection of this.#all) connection.look(now_ms);
    this.#endOld(now_ms);
    for (const [owner, { count }] of this.#idleOf) if (count === 0) this.#idleOf.delete(owner);
  }

  #endOld(now_ms: number): void {
    for (const connection of this.#idle) {
      if (!isOld(connection, now_ms)) return;
      connection.destroy();
    }
  }
}

const isOld = (connection: Connection, now_ms: number): boolean => now_ms - connection.idle_since_ms > KEEP_ALIVE_MS;
