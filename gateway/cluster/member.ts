// A worker's side of what several workers share: attestations that another one keeps, what a key may have at once, whose turn it is.
import cluster from 'node:cluster';
import type { Registry } from 'prom-client';
import { RateLimiterCluster } from 'rate-limiter-flexible';
import type { Kept, MemoryStore, Store } from '../attestation/store-memory.ts';
import { Problem } from '../http/problem.ts';
import type { Caller, Owner } from '../keys/keys.ts';
import { largestRequest, shareOf } from '../limits/bounds.ts';
import {
  type Concurrency,
  type ConcurrencyPermit,
  type ConcurrencySettings,
  type Counted,
  tooMany,
} from '../limits/concurrency.ts';
import type { PermitLimits, Permits } from '../limits/permits.ts';
import type { MakeLimiter } from '../limits/rates.ts';

// What a worker and the primary process say to each other: one peerRequest, one answer.

export type PeerRequest =
  /** Has any other worker kept this? Asked of the primary by a worker, and by it of the others. */
  | { readonly type: 'find'; readonly owner: Owner; readonly id: string }
  /** What does this worker's /metrics say? Asked by the primary. */
  | { readonly type: 'metrics' }
  /** May this key have one more? 0: no limit. */
  | { readonly type: 'count'; readonly key: string; readonly counted: Counted; readonly limit: number };

export interface PeerResponses {
  /** undefined: not everybody who may have it answered. */
  readonly find: Kept | null | undefined;
  readonly metrics: Awaited<ReturnType<Registry['getMetricsAsJSON']>>;
  readonly count: boolean;
}

export type Message =
  | { readonly countersign: 'request'; readonly n: number; readonly request: PeerRequest }
  | { readonly countersign: 'response'; readonly n: number; readonly response: unknown }
  /** What was sat on is free again. */
  | { readonly countersign: 'uncount'; readonly key: string; readonly counted: Counted }
  /** A worker asks the primary for a permit of the queue `name`; `n` is its own number for that. */
  | {
      readonly countersign: 'acquire';
      readonly name: string;
      readonly n: number;
      readonly owner: string;
      readonly limits: PermitLimits;
    }
  /** The primary's answer: the permit, or that the queue is full. */
  | { readonly countersign: 'permit'; readonly name: string; readonly n: number; readonly granted: boolean }
  /** It is needed no longer, given or not. */
  | { readonly countersign: 'release'; readonly name: string; readonly n: number };

export function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'countersign' in value;
}

/** The other end of a channel between processes. */
export interface Peer {
  send(message: Message): void;
}

/** Asks over a channel, and gives up after a time: the other process may have ended. */
export class PeerRequests {
  readonly #waiting = new Map<number, (response: unknown) => void>();
  #n = 0;

  /** undefined when there was no answer in time; `late` takes one that comes after that. */
  send<R extends PeerRequest>(
    peer: Peer,
    request: R,
    timeout_ms: number,
    afterTimeout?: (response: PeerResponses[R['type']]) => void,
  ): Promise<PeerResponses[R['type']] | undefined> {
    const n = ++this.#n;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (afterTimeout === undefined) this.#waiting.delete(n);
        else this.#waiting.set(n, (response) => afterTimeout(response as PeerResponses[R['type']]));
        resolve(undefined);
      }, timeout_ms);
      this.#waiting.set(n, (response) => {
        clearTimeout(timer);
        resolve(response as PeerResponses[R['type']]);
      });
      peer.send({ countersign: 'request', n, request });
    });
  }

  settle(n: number, response: unknown): void {
    const resolve = this.#waiting.get(n);
    this.#waiting.delete(n);
    resolve?.(response);
  }
}

const REQUEST_TIMEOUT_MS = 3_000;
const RATE_TIMEOUT_MS = 2_000;

/** True in a process that is one of several workers. */
export const isMember = cluster.isWorker;

export interface Member {
  /** What others keep is found too. */
  store(memory: MemoryStore): Store;
  /** Per key as for one process, whichever worker a request meets, where that has a number of its own; in total a share of it for each worker. */
  concurrency(make: (limits: ConcurrencySettings) => Concurrency, limits: ConcurrencySettings): Concurrency;
  /** One queue of that name for all workers, which the primary keeps. */
  permits(name: string, limits: PermitLimits): Permits;
  readonly limiter: MakeLimiter;
  /** The primary serves what all workers say together. */
  metrics(registry: Registry): void;
}

export function joinPrimary(workers: number): Member {
  const requests = new PeerRequests();
  const queues = new Map<string, SharedPermits>();
  let localStore: MemoryStore | null = null;
  let localRegistry: Registry | null = null;
  const primary: Peer = { send: (message) => void process.send?.(message) };
  process.on('message', (message: unknown) => {
    if (!isMessage(message)) return;
    if (message.countersign === 'response') requests.settle(message.n, message.response);
    if (message.countersign === 'permit') queues.get(message.name)?.settle(message.n, message.granted);
    if (message.countersign !== 'request') return;
    const { n, request: peerRequest } = message;
    const respond = (response: unknown) => primary.send({ countersign: 'response', n, response });
    if (peerRequest.type === 'find') respond(localStore?.find(peerRequest.owner, peerRequest.id) ?? null);
    // Who cannot say its numbers does not answer.
    if (peerRequest.type === 'metrics') localRegistry?.getMetricsAsJSON().then(respond, () => {});
  });

  return {
    store(memory) {
      localStore = memory;
      return {
        begin: (owner, id) => memory.begin(owner, id),
        name: (owner, id, completionId) => memory.name(owner, id, completionId),
        keep: (owner, id, completionId, json) => memory.keep(owner, id, completionId, json),
        drop: (owner, id) => memory.drop(owner, id),
        find: (owner, id) =>
          memory.find(owner, id) ??
          requests.send(primary, { type: 'find', owner, id }, REQUEST_TIMEOUT_MS).then(foundByPeer),
        get usage() {
          return memory.usage;
        },
        close: () => memory.close(),
      };
    },
    concurrency(make, limits) {
      const share = (limit: number) => shareOf(limit, workers);
      const shareOfBytes = (limit: number) => shareOf(limit, workers, largestRequest(limits));
      const local = make({
        ...limits,
        max_concurrent_requests: share(limits.max_concurrent_requests),
        max_streams: share(limits.max_streams),
        max_attestations_waiting: share(limits.max_attestations_waiting),
        max_held_bytes: shareOfBytes(limits.max_held_bytes),
        max_held_bytes_per_key: limits.max_held_bytes_per_key && shareOfBytes(limits.max_held_bytes_per_key),
        max_concurrent_per_key: countedByPrimary(limits.max_concurrent_per_key),
        max_streams_per_key: countedByPrimary(limits.max_streams_per_key),
        max_tee_per_key: countedByPrimary(limits.max_tee_per_key),
      });
      return sharedConcurrency(local, limits, requests, primary);
    },
    permits(name, limits) {
      const permits = sharedPermits(primary, name, limits);
      queues.set(name, permits);
      return permits;
    },
    limiter: (options) => new RateLimiterCluster({ ...options, timeoutMs: RATE_TIMEOUT_MS }),
    metrics(registry) {
      localRegistry = registry;
    },
  };
}

/** A number of its own is counted by the primary, and not here; half of what there is, is half of each worker's. */
const countedByPrimary = (limit: number | null) => (limit === null ? null : 0);

/** Between processes a Buffer becomes a Uint8Array. */
function foundByPeer(found: Kept | null | undefined): Kept | null {
  if (found === undefined)
    throw new Problem('store_unavailable', 'Another worker may have it, and did not answer in time.', {
      retryAfterSeconds: 1,
    });
  if (found?.state !== 'ready') return found;
  const { buffer, byteOffset, byteLength } = found.json;
  return { state: 'ready', json: Buffer.from(buffer, byteOffset, byteLength) };
}

function sharedConcurrency(
  local: Concurrency,
  limits: ConcurrencySettings,
  requests: PeerRequests,
  primary: Peer,
): Concurrency {
  const unlimited = new WeakMap<Caller, Caller>();
  const withoutLimits = (caller: Caller): Caller => {
    let same = unlimited.get(caller);
    if (same === undefined) {
      const { concurrent, streams, tee } = caller.limits;
      const limits = {
        ...caller.limits,
        concurrent: countedByPrimary(concurrent),
        streams: countedByPrimary(streams),
        tee: countedByPrimary(tee),
      };
      same = { ...caller, limits };
      unlimited.set(caller, same);
    }
    return same;
  };

  function counted(permit: ConcurrencyPermit, key: string, limited: Record<Counted, number>): ConcurrencyPermit {
    const acquired: Counted[] = [];
    let released = false;
    const uncount = (what: Counted) => primary.send({ countersign: 'uncount', key, counted: what });
    async function count(what: Counted): Promise<void> {
      if (limited[what] === 0) return;
      const request = { type: 'count', key, counted: what, limit: limited[what] } as const;
      // A place that is given when nobody waits for it any more is given back.
      const allowed = await requests.send(primary, request, REQUEST_TIMEOUT_MS, (counted) => counted && uncount(what));
      if (allowed === undefined)
        throw new Problem('overloaded', 'Requests cannot be counted now.', { retryAfterSeconds: 1 });
      if (!allowed) throw tooMany(limited[what], what);
      // Whoever left while the answer was on its way has left this too.
      if (released) uncount(what);
      else acquired.push(what);
    }
    return {
      acquireShared: () => count('requests'),
      async stream() {
        await permit.stream();
        await count('streams');
      },
      async tee() {
        await permit.tee();
        await count('tee');
      },
      received: () => permit.received(),
      hold: (bytes, coming) => permit.hold(bytes, coming),
      release() {
        permit.release();
        released = true;
        for (const what of acquired.splice(0)) uncount(what);
      },
    };
  }

  return {
    get running() {
      return local.running;
    },
    acquire(caller) {
      const permit = local.acquire(withoutLimits(caller));
      const limited = {
        requests: caller.limits.concurrent ?? limits.max_concurrent_per_key ?? 0,
        streams: caller.limits.streams ?? limits.max_streams_per_key ?? 0,
        tee: caller.limits.tee ?? limits.max_tee_per_key ?? 0,
      };
      return limited.requests + limited.streams + limited.tee === 0 ? permit : counted(permit, caller.name, limited);
    },
  };
}

interface SharedPermits extends Permits {
  /** The primary has given what `n` asked for, or refused it. */
  settle(n: number, granted: boolean): void;
}

/**
 * A worker's end of a queue that the primary keeps for all of them. Nothing starts that the primary has not allowed, however
 * long it takes; without a primary there is no worker, either.
 */
function sharedPermits(primary: Peer, name: string, limits: PermitLimits): SharedPermits {
  const waiting = new Map<number, { readonly start: () => void; readonly refused: () => void }>();
  let last = 0;
  return {
    get waiting() {
      return waiting.size;
    },
    acquire(owner, start, refused) {
      const n = ++last;
      waiting.set(n, { start, refused });
      primary.send({ countersign: 'acquire', name, n, owner, limits });
      let released = false;
      return () => {
        if (released) return;
        released = true;
        waiting.delete(n);
        primary.send({ countersign: 'release', name, n });
      };
    },
    settle(n, granted) {
      const request = waiting.get(n);
      waiting.delete(n);
      // Whoever has left meanwhile has released it.
      if (granted) request?.start();
      else request?.refused();
    },
  };
}
