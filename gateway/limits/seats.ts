// Who is being served: how many requests, streams and requests with tee, in total and of each key. Counted in this process.
import type { Caller } from '../keys/caller.ts';
import { Problem } from '../problem.ts';

export interface SeatLimits {
  readonly max_concurrent_requests: number;
  readonly max_held_bytes: number;
  readonly max_streams: number;
  /** Per key, 0: no limit. */
  readonly max_concurrent_per_key: number;
  readonly max_streams_per_key: number;
  readonly max_tee_per_key: number;
}

/** One request's place, from its arrival until the last byte of its answer is with the client. */
export interface Seat {
  /** What has to be asked of others before the place is taken, where places are shared. @throws {Problem} rate_limit_exceeded */
  begin?(): Promise<void>;
  /** It asks for a stream. @throws {Problem} overloaded, rate_limit_exceeded */
  stream(): void | Promise<void>;
  /** It asks for an attestation. @throws {Problem} rate_limit_exceeded */
  tee(): void | Promise<void>;
  /** The gateway keeps `bytes` more for it until it leaves, and soon `coming` more. @throws {Problem} overloaded */
  hold(bytes: number, coming?: number): void;
  /** Gives the place back, once. */
  leave(): void;
}

export interface Seats {
  /** @throws {Problem} overloaded, rate_limit_exceeded */
  take(caller: Caller): Seat;
  readonly taken: number;
}

/** What of a key is counted. */
export type Counted = 'requests' | 'streams' | 'tee';
type Counts = Record<Counted, number>;

/** So many keys that nobody asks with stay in the table: one whose entries come and go would be built anew all the time. */
const MAX_RESTING = 256;

const overloaded = (message: string) => new Problem('overloaded', message, { retryAfterSeconds: 1 });

/** The key has as many as it may. */
export const tooMany = (limit: number, what: Counted) =>
  new Problem(
    'rate_limit_exceeded',
    `This API key may have ${limit} ${what === 'tee' ? 'requests with tee' : what} at once.`,
    { retryAfterSeconds: 1 },
  );

/** @param limit 0: none */
function within(count: number, limit: number, what: Counted): void {
  if (limit > 0 && count >= limit) throw tooMany(limit, what);
}

export function createSeats(limits: SeatLimits): Seats {
  const total = { requests: 0, streams: 0, bytes: 0 };
  const keys = new Map<string, Counts>();
  return {
    get taken() {
      return total.requests;
    },
    take: (caller) => new Taken(limits, total, keys, caller),
  };
}

interface Total {
  requests: number;
  streams: number;
  bytes: number;
}

class Taken implements Seat {
  readonly #limits: SeatLimits;
  readonly #total: Total;
  readonly #keys: Map<string, Counts>;
  readonly #caller: Caller;
  readonly #key: Counts;
  #streams = 0;
  #tee = 0;
  #bytes = 0;
  #left = false;

  constructor(limits: SeatLimits, total: Total, keys: Map<string, Counts>, caller: Caller) {
    if (total.requests >= limits.max_concurrent_requests) throw overloaded('The gateway is at its capacity.');
    const known = keys.get(caller.name);
    const key = known ?? { requests: 0, streams: 0, tee: 0 };
    within(key.requests, caller.limits.concurrent ?? limits.max_concurrent_per_key, 'requests');
    if (known === undefined) keys.set(caller.name, key);
    total.requests++;
    key.requests++;
    this.#limits = limits;
    this.#total = total;
    this.#keys = keys;
    this.#caller = caller;
    this.#key = key;
  }

  stream(): void {
    // The client left while something was waited for: nobody would give it back.
    if (this.#left) return;
    const { max_streams, max_streams_per_key } = this.#limits;
    if (this.#total.streams >= max_streams) throw overloaded('The gateway has as many streams as it can.');
    within(this.#key.streams, this.#caller.limits.streams ?? max_streams_per_key, 'streams');
    this.#streams = 1;
    this.#total.streams++;
    this.#key.streams++;
  }

  tee(): void {
    if (this.#left) return;
    within(this.#key.tee, this.#caller.limits.tee ?? this.#limits.max_tee_per_key, 'tee');
    this.#tee = 1;
    this.#key.tee++;
  }

  hold(bytes: number, coming = 0): void {
    if (this.#left) return;
    if (this.#total.bytes + bytes + coming > this.#limits.max_held_bytes)
      throw overloaded('The gateway holds as much as it can.');
    this.#bytes += bytes;
    this.#total.bytes += bytes;
  }

  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.#total.bytes -= this.#bytes;
    this.#total.requests--;
    this.#total.streams -= this.#streams;
    this.#key.requests--;
    this.#key.streams -= this.#streams;
    this.#key.tee -= this.#tee;
    if (this.#key.requests === 0 && this.#keys.size > MAX_RESTING) this.#keys.delete(this.#caller.name);
  }
}
