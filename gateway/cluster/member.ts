// A worker's connection to the primary, and through it the state of all workers: attestations, permits, usage, seeds, the audit log.
import cluster from 'node:cluster';
import type { Registry } from 'prom-client';
import { RateLimiterCluster } from 'rate-limiter-flexible';
import type { Kept, Store } from '../attestation/interfaces.ts';
import type { MemoryStore } from '../attestation/store-memory.ts';
import { largestRequest, shareOf } from '../base/bounds.ts';
import { Problem } from '../base/problem.ts';
import type { Caller } from '../keys/keys.ts';
import {
  type Concurrency,
  type ConcurrencyPermit,
  type ConcurrencySettings,
  type Counted,
  tooMany,
} from '../limits/concurrency.ts';
import type { PermitLimits, Permits } from '../limits/permits.ts';
import type { MakeLimiter } from '../limits/rates.ts';
import type { SeedSource } from '../sealing/keys.ts';
import type { Seed } from '../sealing/seeds.ts';
import type { AuditLog } from '../usage/audit-log.ts';
import type { UsageBook } from '../usage/usage.ts';
import { isMessage, type Peer, PeerRequests } from './messages.ts';

const REQUEST_TIMEOUT_MS = 3_000;
const RATE_TIMEOUT_MS = 2_000;
/** For the audit log's state, which /health waits for. */
const STATE_TIMEOUT_MS = 1_000;
const USAGE_TIMEOUT = 'The process that keeps usage did not answer in time.';

/** True in a process that is one of several workers. */
export const isMember = cluster.isWorker;

export interface Member {
  /** The store of this worker, which also finds attestations of other workers. */
  store(memory: MemoryStore): Store;
  /** Limits that are set per key count all workers. Of each limit in total, every worker has a share. */
  concurrency(make: (limits: ConcurrencySettings) => Concurrency, limits: ConcurrencySettings): Concurrency;
  /** Permits from the queue `name`, which the primary keeps for all workers. */
  permits(name: string, limits: PermitLimits): Permits;
  readonly limiter: MakeLimiter;
  /** The seeds of the keys for sealed requests, which the primary makes for all workers. */
  readonly seeds: SeedSource;
  /** The usage of keys, which the primary keeps for all workers. */
  readonly book: UsageBook;
  /** The audit log, which the primary writes for all workers. */
  readonly audit: AuditLog;
  /** Registers this worker's metrics. The primary serves those of all workers together. */
  metrics(registry: Registry): void;
}

export function joinPrimary(workers: number): Member {
  const requests = new PeerRequests();
  const queues = new Map<string, SharedPermits>();
  let localStore: MemoryStore | null = null;
  let localRegistry: Registry | null = null;
  let seedsChanged: (seeds: readonly Seed[]) => void = () => {};
  const primary: Peer = { send: (message) => void process.send?.(message) };
  process.on('message', (message: unknown) => {
    if (!isMessage(message)) return;
    if (message.countersign === 'response') requests.settle(message.n, message.response);
    if (message.countersign === 'seeds') seedsChanged(message.seeds);
    if (message.countersign === 'permit') queues.get(message.name)?.settle(message.n, message.granted);
    if (message.countersign !== 'request') return;
    const { n, request: peerRequest } = message;
    const respond = (response: unknown) => primary.send({ countersign: 'response', n, response });
    if (peerRequest.type === 'find') respond(localStore?.find(peerRequest.owner, peerRequest.id) ?? null);
    // A worker that cannot read its metrics sends no response.
    if (peerRequest.type === 'metrics') localRegistry?.getMetricsAsJSON().then(respond, () => {});
  });

  return {
    store(memory) {
      localStore = memory;
      return {
        begin: (owner, id) => memory.begin(owner, id),
        name: (owner, id, completionId) => memory.name(owner, id, completionId),
        keep: (owner, id, completionId, attestation) => memory.keep(owner, id, completionId, attestation),
        drop: (owner, id) => memory.drop(owner, id),
        find: (owner, id) =>
          memory.find(owner, id) ??
          requests.send(primary, { type: 'find', owner, id }, REQUEST_TIMEOUT_MS).then(foundByPeer),
        get usage() {
          return memory.usage;
        },
        reachable: null,
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
    book: {
      add: (key, model, amounts) => primary.send({ countersign: 'used', key, model, amounts }),
      async records(key) {
        const records = await requests.send(primary, { type: 'usage', key }, REQUEST_TIMEOUT_MS);
        if (records === undefined) throw new Problem('store_unavailable', USAGE_TIMEOUT, { retryAfterSeconds: 1 });
        return records;
      },
      tokensToday: async (key) => (await requests.send(primary, { type: 'tokens', key }, REQUEST_TIMEOUT_MS)) ?? 0,
      close() {},
    },
    audit: {
      add: (entry) => primary.send({ countersign: 'audit', entry }),
      state: () => requests.send(primary, { type: 'audit' }, STATE_TIMEOUT_MS),
      close() {},
    },
    seeds: {
      start(changed) {
        seedsChanged = changed;
        const requestSeeds = async () => {
          const seeds = await requests.send(primary, { type: 'seeds' }, REQUEST_TIMEOUT_MS);
          if (seeds === undefined) return requestSeeds();
          changed(seeds);
        };
        void requestSeeds();
      },
      named: (n) => primary.send({ countersign: 'named', n }),
      admit: async (n, enc) => (await requests.send(primary, { type: 'admit', n, enc }, REQUEST_TIMEOUT_MS)) ?? null,
    },
    limiter: (options) => new RateLimiterCluster({ ...options, timeoutMs: RATE_TIMEOUT_MS }),
    metrics(registry) {
      localRegistry = registry;
    },
  };
}

/** The primary counts limits that are set per key, so they are 0 (no limit) here. null stays: half of this worker's share. */
const countedByPrimary = (limit: number | null) => (limit === null ? null : 0);

/** Restores the Buffer, which arrives from another process as a Uint8Array. */
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
    let copy = unlimited.get(caller);
    if (copy === undefined) {
      const { concurrent, streams, tee } = caller.limits;
      const limits = {
        ...caller.limits,
        concurrent: countedByPrimary(concurrent),
        streams: countedByPrimary(streams),
        tee: countedByPrimary(tee),
      };
      copy = { ...caller, limits };
      unlimited.set(caller, copy);
    }
    return copy;
  };

  function counted(permit: ConcurrencyPermit, key: string, limited: Record<Counted, number>): ConcurrencyPermit {
    const acquired: Counted[] = [];
    let released = false;
    const uncount = (what: Counted) => primary.send({ countersign: 'uncount', key, counted: what });
    async function count(what: Counted): Promise<void> {
      if (limited[what] === 0) return;
      const request = { type: 'count', key, counted: what, limit: limited[what] } as const;
      // A count that is allowed after the timeout is subtracted again.
      const allowed = await requests.send(primary, request, REQUEST_TIMEOUT_MS, (counted) => counted && uncount(what));
      if (allowed === undefined)
        throw new Problem('overloaded', 'Requests cannot be counted now.', { retryAfterSeconds: 1 });
      if (!allowed) throw tooMany(limited[what], what);
      // The request was released during the wait.
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
  /** Handles the primary's response to request `n`. */
  settle(n: number, granted: boolean): void;
}

/**
 * The worker's end of a queue that the primary keeps for all workers. Nothing starts without the primary's permit, however long that takes:
 * a worker does not outlive its primary.
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
      // A request that was released during the wait is absent here: its release has been sent to the primary.
      if (granted) request?.start();
      else request?.refused();
    },
  };
}
