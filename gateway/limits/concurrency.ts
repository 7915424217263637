// Concurrency limits: counts requests, streams and requests with tee, in total and per key, in this process.

import { largestRequest } from '../base/bounds.ts';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Caller } from '../keys/keys.ts';

export type ConcurrencySettings = Pick<
  GatewayConfig,
  | 'max_concurrent_requests'
  | 'max_held_bytes'
  | 'max_streams'
  | 'max_attestations_waiting'
  | 'max_body_bytes'
  | 'max_answer_bytes'
  // Per key. 0: no limit. null: half of the total, so that no single key can take everything.
  | 'max_concurrent_per_key'
  | 'max_streams_per_key'
  | 'max_tee_per_key'
  | 'max_held_bytes_per_key'
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
    requests: limits.max_concurrent_per_key ?? half(limits.max_concurrent_requests),
    streams: limits.max_streams_per_key ?? half(limits.max_streams),
    tee: limits.max_tee_per_key ?? half(limits.max_attestations_waiting),
    // The default is never less than one request may need.
    bytes:
      limits.max_held_bytes_per_key ??
      Math.min(limits.max_held_bytes, Math.max(half(limits.max_held_bytes), largestRequest(limits))),
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

/** The limits of a key whose line in the keys file sets none. 0: no limit. */
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
      throw overloaded('The gateway has as many streams as it may (MAX_STREAMS).');
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
    const limit = this.#perKey.bytes;
    if (limit > 0 && this.#key.bytes + bytes + announced > limit)
      throw new Problem(
        'rate_limit_exceeded',
        `This API key may have ${limit} bytes in the gateway at once (MAX_HELD_BYTES_PER_KEY).`,
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
