// Concurrency limits: counts requests, streams and requests with tee, in total and per key, in this process.

import type { GatewayConfig } from '../base/config.ts';
import { largestRequest } from '../base/memory-bounds.ts';
import { Problem } from '../base/problem.ts';
import type { Caller } from '../keys/keys.ts';

type ConcurrencySettings = Pick<
  GatewayConfig,
  | 'max_concurrent_requests'
  | 'max_held_bytes'
  | 'max_streams'
  | 'max_attestations_waiting'
  | 'max_body_bytes'
  | 'max_answer_bytes'
>;

/**
 * The permit of one request. It counts for its key from its head on, and for the total once the request has arrived, until the client has
 * the last byte of its response.
 */
export interface ConcurrencyPermit {
  /** The whole request has arrived. Until then it does not count for the total. @throws {Problem} overloaded */
  received(): void;
  /** The request asks for a stream. @throws {Problem} overloaded, rate_limit_exceeded */
  stream(): void;
  /** The request asks for an attestation. @throws {Problem} rate_limit_exceeded */
  tee(): void;
  /**
   * Counts `bytes` that the gateway keeps until the release, and checks that `announced` more would fit. @throws {Problem} overloaded,
   * rate_limit_exceeded
   */
  hold(bytes: number, announced?: number): void;
  /** Releases all that was counted. A second call does nothing. */
  release(): void;
}

export interface Concurrency {
  /** Acquires a permit for a request whose head has arrived. @throws {Problem} overloaded, rate_limit_exceeded */
  acquire(caller: Caller): ConcurrencyPermit;
  /** Requests that have arrived whole. */
  readonly running: number;
}

/** The kinds of use that are counted per key. */
type Counted = 'requests' | 'streams' | 'tee';
type Counts = Record<Counted | 'bytes', number>;

/** Idle keys are removed above this many keys only, because a table whose entries come and go is rebuilt all the time. */
const MAX_IDLE_KEYS = 256;

const overloaded = (message: string) => new Problem('overloaded', message, { retryAfterSeconds: 1 });

const full = () => overloaded('The gateway serves as many requests as it may (MAX_CONCURRENT_REQUESTS).');

/** The error for a key that has reached its limit. */
const tooMany = (limit: number, kind: Counted) =>
  new Problem(
    'rate_limit_exceeded',
    `This API key may have ${limit} ${kind === 'tee' ? 'requests with tee' : kind} at once.`,
    { retryAfterSeconds: 1 },
  );

const half = (limit: number) => Math.ceil(limit / 2);

/** @param limit 0: no limit */
function within(count: number, limit: number, kind: Counted): void {
  if (limit > 0 && count >= limit) throw tooMany(limit, kind);
}

export function createConcurrency(limits: ConcurrencySettings): Concurrency {
  const total = { requests: 0, streams: 0, bytes: 0 };
  const keys = new Map<string, Counts>();
  const per_key: PerKey = {
    requests: half(limits.max_concurrent_requests),
    streams: half(limits.max_streams),
    tee: half(limits.max_attestations_waiting),
    // Never less than one request may need.
    bytes: Math.min(limits.max_held_bytes, Math.max(half(limits.max_held_bytes), largestRequest(limits))),
  };
  return {
    get running() {
      return total.requests;
    },
    acquire: (caller) => new LocalPermit(limits, per_key, total, keys, caller),
  };
}

interface Total {
  requests: number;
  streams: number;
  bytes: number;
}

/** The limits of a key for which the keys file sets none: half of the total, so that no single key can take everything. */
type PerKey = Readonly<Counts>;

class LocalPermit implements ConcurrencyPermit {
  readonly #limits: ConcurrencySettings;
  readonly #perKey: PerKey;
  readonly #total: Total;
  readonly #keys: Map<string, Counts>;
  readonly #caller: Caller;
  readonly #key: Counts;
  #requests = 0;
  #streams = 0;
  #tee = 0;
  #bytes = 0;
  #released = false;

  constructor(limits: ConcurrencySettings, perKey: PerKey, total: Total, keys: Map<string, Counts>, caller: Caller) {
    // Rejecting a request by its head costs least.
    if (total.requests >= limits.max_concurrent_requests) throw full();
    const known = keys.get(caller.name);
    const key = known ?? { requests: 0, streams: 0, tee: 0, bytes: 0 };
    within(key.requests, caller.limits.concurrent ?? perKey.requests, 'requests');
    if (known === undefined) keys.set(caller.name, key);
    key.requests++;
    this.#limits = limits;
    this.#perKey = perKey;
    this.#total = total;
    this.#keys = keys;
    this.#caller = caller;
    this.#key = key;
  }

  received(): void {
    // The client left during an earlier wait, so nothing would release this count.
    if (this.#released) return;
    if (this.#total.requests >= this.#limits.max_concurrent_requests) throw full();
    this.#requests = 1;
    this.#total.requests++;
  }

  stream(): void {
    if (this.#released) return;
    if (this.#total.streams >= this.#limits.max_streams)
      throw overloaded('The gateway has as many streams as it may (half of MAX_CONCURRENT_REQUESTS).');
    within(this.#key.streams, this.#caller.limits.streams ?? this.#perKey.streams, 'streams');
    this.#streams = 1;
    this.#total.streams++;
    this.#key.streams++;
  }

  tee(): void {
    if (this.#released) return;
    within(this.#key.tee, this.#caller.limits.tee ?? this.#perKey.tee, 'tee');
    this.#tee = 1;
    this.#key.tee++;
  }

  hold(bytes: number, announced = 0): void {
    if (this.#released) return;
    if (this.#total.bytes + bytes + announced > this.#limits.max_held_bytes)
      throw overloaded('The gateway holds as many bytes of requests and answers as it may (MAX_HELD_BYTES).');
    const limit = this.#caller.limits.held_bytes ?? this.#perKey.bytes;
    if (limit > 0 && this.#key.bytes + bytes + announced > limit)
      throw new Problem(
        'rate_limit_exceeded',
        `This API key may have ${limit} bytes in the gateway at once (held-bytes).`,
        { retryAfterSeconds: 1 },
      );
    this.#bytes += bytes;
    this.#total.bytes += bytes;
    this.#key.bytes += bytes;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#total.bytes -= this.#bytes;
    this.#total.requests -= this.#requests;
    this.#total.streams -= this.#streams;
    this.#key.requests--;
    this.#key.bytes -= this.#bytes;
    this.#key.streams -= this.#streams;
    this.#key.tee -= this.#tee;
    if (this.#key.requests === 0 && this.#keys.size > MAX_IDLE_KEYS) this.#keys.delete(this.#caller.name);
  }
}

// A concurrency limit for each owner.

export class OwnerLimit {
  readonly #max: number;
  readonly #subject: string;
  readonly #held = new Map<string, number>();

  /** `subject`: what is limited, for the error. */
  constructor(max: number, subject: string) {
    this.#max = max;
    this.#subject = subject;
  }

  /** Returns the function that releases what was acquired. A second call of it does nothing. @throws {Problem} rate_limit_exceeded */
  acquire(owner: string): () => void {
    const held = this.#held.get(owner) ?? 0;
    if (held >= this.#max)
      throw new Problem('rate_limit_exceeded', `At most ${this.#max} ${this.#subject} may be here at once.`, {
        retryAfterSeconds: 1,
      });
    this.#held.set(owner, held + 1);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      const rest = (this.#held.get(owner) ?? 0) - 1;
      if (rest > 0) this.#held.set(owner, rest);
      else this.#held.delete(owner);
    };
  }
}

// A concurrency limit with a bounded, fair queue, for a resource that serves few requests at once: the GPU or a thread.

export interface PermitLimits {
  /** Permits that are granted at the same time; a function where that changes. */
  readonly max_permits: number | (() => number);
  /** Requests in the queue, of all owners in total. */
  readonly max_waiting: number;
}

/** A request waits until it has a permit, however long that takes. */
export interface Permits {
  /**
   * Acquires a permit and calls `start`: at once, or when it is this owner's turn. Calls `refused` instead where the queue is full.
   * Returns a function that releases the permit or leaves the queue. A second call of it does nothing.
   */
  acquire(owner: string, start: () => void, refused: () => void): () => void;
  readonly waiting: number;
}

interface Request {
  readonly start: () => void;
  readonly refused: () => void;
  state: 'waiting' | 'started' | 'over';
}

/**
 * A free permit goes to the owner that holds the fewest. Owners that hold equally many take turns, and an owner's requests keep their
 * order. A full queue refuses the latest request of the owner with the most requests in it.
 */
export function createPermits({ max_permits, max_waiting }: PermitLimits): Permits {
  /** Waiting requests by owner, with the owners in the order of their turns. */
  const queues = new Map<string, Set<Request>>();
  /** Granted permits by owner. */
  const held = new Map<string, number>();
  const permitted = typeof max_permits === 'function' ? max_permits : () => max_permits;
  let granted = 0;
  let waiting = 0;

  function count(owner: string, by: number): void {
    granted += by;
    const now = (held.get(owner) ?? 0) + by;
    if (now > 0) held.set(owner, now);
    else held.delete(owner);
  }

  function grant(owner: string, request: Request): void {
    request.state = 'started';
    count(owner, 1);
    request.start();
  }

  function enqueue(owner: string, request: Request): void {
    if (waiting >= max_waiting && !evictFor(owner)) {
      request.state = 'over';
      return request.refused();
    }
    queues.set(owner, (queues.get(owner) ?? new Set()).add(request));
    waiting++;
  }

  function dequeue(owner: string, request: Request): void {
    const queue = queues.get(owner);
    if (queue?.delete(request) !== true) return;
    waiting--;
    if (queue.size === 0) queues.delete(owner);
  }

  /** Refuses the latest request of the owner with the longest queue. Returns false where no owner has more in the queue than `owner`. */
  function evictFor(owner: string): boolean {
    let most = owner;
    let longest = queues.get(owner) ?? new Set<Request>();
    for (const [other, queue] of queues) if (queue.size > longest.size) [most, longest] = [other, queue];
    const latest = [...longest].at(-1);
    if (most === owner || latest === undefined) return false;
    dequeue(most, latest);
    latest.state = 'over';
    latest.refused();
    return true;
  }

  /** Grants the free permits. */
  function next(): void {
    while (waiting > 0 && granted < permitted()) grantOne();
  }

  /** Checks no more owners than there are permits, because the first owner without one is chosen. */
  function grantOne(): void {
    let chosen: string | null = null;
    let fewest = Number.POSITIVE_INFINITY;
    for (const owner of queues.keys()) {
      const has = held.get(owner) ?? 0;
      if (has < fewest) [chosen, fewest] = [owner, has];
      if (fewest === 0) break;
    }
    if (chosen === null) return;
    const queue = queues.get(chosen) as Set<Request>;
    const [request] = queue as Iterable<Request>;
    dequeue(chosen, request as Request);
    // The owner's next turn comes after those of all others.
    if (queues.delete(chosen)) queues.set(chosen, queue);
    grant(chosen, request as Request);
  }

  return {
    get waiting() {
      return waiting;
    },
    acquire(owner, start, refused) {
      const request: Request = { start, refused, state: 'waiting' };
      // More may be permitted than at the last change.
      next();
      if (granted < permitted()) grant(owner, request);
      else enqueue(owner, request);
      return () => {
        const { state } = request;
        request.state = 'over';
        if (state === 'waiting') dequeue(owner, request);
        if (state !== 'started') return;
        count(owner, -1);
        next();
      };
    },
  };
}
