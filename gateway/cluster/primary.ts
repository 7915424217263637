// The primary process of several workers: starts, restarts and ends them, and keeps their shared state.

import type { Worker } from 'node:cluster';
import cluster from 'node:cluster';
import type { Logger } from 'pino';
import { AggregatorRegistry, Registry } from 'prom-client';
import { RateLimiterClusterMaster } from 'rate-limiter-flexible';
import { delayAfter } from '../base/backoff.ts';
import { WORKER_HEAP_MB } from '../base/bounds.ts';
import type { GatewayConfig } from '../base/config.ts';
import type { Counted } from '../limits/concurrency.ts';
import { createPermits, type Permits } from '../limits/permits.ts';
import { createSeeds, type Seeds } from '../sealing/seeds.ts';
import { serveMetrics } from '../telemetry/metrics-server.ts';
import { auditLogOf } from '../usage/audit-log.ts';
import { createMemoryBook } from '../usage/usage.ts';
import { isMessage, type Message, type Peer, type PeerRequest, PeerRequests, type PeerResponses } from './messages.ts';

const FIND_MS = 2_000;
const METRICS_MS = 2_000;
/** The types of metrics that only grow. */
const COUNTER_TYPES = new Set(['counter', 'histogram']);
const RESTART = { min_ms: 250, max_ms: 10_000 };
/** A worker that ran for this long did not fail at its start. */
const STEADY_MS = 30_000;

/** Runs the primary. Its process ends with its workers. @throws {ConfigError} */
export function runPrimary(config: GatewayConfig, log: Logger): void {
  const { workers } = config;
  // The default serialization is JSON, which cannot carry bytes.
  cluster.setupPrimary({
    serialization: 'advanced',
    execArgv: [...process.execArgv, `--max-old-space-size=${WORKER_HEAP_MB}`],
  });
  new RateLimiterClusterMaster();
  const requests = new PeerRequests();
  const book = createMemoryBook();
  const audit = auditLogOf(config, log);
  /** Made on the first worker's request, which means that its sidecar has a processor. */
  let seeds: Seeds | null = null;
  const ownSeeds = () => {
    seeds ??= createSeeds((changed) => {
      for (const worker of countsOf.keys()) peerOf(worker).send({ countersign: 'seeds', seeds: changed });
    });
    return seeds;
  };
  /** What each worker's requests count towards limits that are set per key. Every worker that runs has an entry. */
  const countsOf = new Map<Worker, Map<string, number>>();
  const queues = new Map<string, Permits>();
  /** Functions that release the permits that each worker waits for or holds. All are called when the worker ends. */
  const acquired = new Map<Worker, Map<string, () => void>>();
  /** Workers that serve. A worker that is still starting keeps no attestations, and needs no SIGHUP: it reads its files anyway. */
  const serving = new Set<Worker>();
  let stopping = false;
  let listened = false;
  let failures = 0;

  function start(): void {
    const worker = cluster.fork();
    const started_ms = performance.now();
    countsOf.set(worker, new Map());
    acquired.set(worker, new Map());
    worker.on('message', (message: unknown) => receive(worker, message));
    worker.once('listening', () => {
      listened = true;
      serving.add(worker);
    });
    worker.once('exit', (code, signal) => {
      countsOf.delete(worker);
      releaseAll(worker);
      serving.delete(worker);
      keepCounters(worker);
      if (stopping) return exitWhenEmpty();
      // An error of the first workers, such as an invalid configuration or a port in use, would repeat in later ones.
      if (!listened) return end(code || 1);
      log.error({ worker: worker.id, code, signal }, 'a worker ended');
      failures = performance.now() - started_ms > STEADY_MS ? 1 : failures + 1;
      setTimeout(() => void (stopping || start()), delayAfter(failures, RESTART));
    });
  }

  function receive(worker: Worker, message: unknown): void {
    if (!isMessage(message)) return;
    if (message.countersign === 'response') requests.settle(message.n, message.response);
    else if (message.countersign === 'uncount') count(worker, message.key, message.counted, -1);
    else if (message.countersign === 'acquire') acquire(worker, message);
    else if (message.countersign === 'release') release(worker, `${message.name} ${message.n}`);
    else if (message.countersign === 'used') book.add(message.key, message.model, message.amounts);
    else if (message.countersign === 'audit') audit?.add(message.entry);
    else if (message.countersign === 'named') seeds?.named(message.n);
    else if (message.countersign === 'permit' || message.countersign === 'seeds') return;
    else
      void respond(worker, message.request).then((response) =>
        peerOf(worker).send({ countersign: 'response', n: message.n, response }),
      );
  }

  function acquire(worker: Worker, { name, n, owner, limits }: Extract<Message, { countersign: 'acquire' }>): void {
    const permits = queues.get(name) ?? createPermits(limits);
    queues.set(name, permits);
    const reply = (granted: boolean) => () => peerOf(worker).send({ countersign: 'permit', name, n, granted });
    acquired.get(worker)?.set(`${name} ${n}`, permits.acquire(owner, reply(true), reply(false)));
  }

  function release(worker: Worker, id: string): void {
    const releases = acquired.get(worker);
    const releasePermit = releases?.get(id);
    releases?.delete(id);
    releasePermit?.();
  }

  function releaseAll(worker: Worker): void {
    const releases = acquired.get(worker) ?? new Map<string, () => void>();
    acquired.delete(worker);
    for (const releasePermit of releases.values()) releasePermit();
  }

  async function respond(worker: Worker, request: PeerRequest): Promise<unknown> {
    if (request.type === 'find') return findElsewhere(worker, request);
    if (request.type === 'usage') return book.records(request.key);
    if (request.type === 'tokens') return book.tokensToday(request.key);
    if (request.type === 'audit') return audit?.state();
    if (request.type === 'seeds') return ownSeeds().current;
    if (request.type === 'admit') return ownSeeds().admit(request.n, request.enc);
    if (request.type !== 'count') return undefined;
    const { key, counted, limit } = request;
    let taken = 0;
    for (const counts of countsOf.values()) taken += counts.get(`${counted} ${key}`) ?? 0;
    if (limit > 0 && taken >= limit) return false;
    count(worker, key, counted, 1);
    return true;
  }

  /** Resolves as soon as one worker returns the attestation. undefined: no worker that responded has it, and not all responded. */
  function findElsewhere(worker: Worker, request: PeerRequest & { type: 'find' }): Promise<PeerResponses['find']> {
    const others = [...serving].filter((other) => other !== worker);
    const responses = others.map((other) => requests.send(peerOf(other), request, FIND_MS));
    return new Promise((resolve) => {
      for (const one of responses) void one.then((kept) => kept?.state === 'ready' && resolve(kept));
      void Promise.all(responses).then((all) =>
        resolve(all.find((kept) => kept) ?? (all.includes(undefined) ? undefined : null)),
      );
    });
  }

  const lastMetrics = new WeakMap<Worker, PeerResponses['metrics']>();
  /** The sums of the counters and histograms of workers that have ended. */
  let endedMetrics: Promise<PeerResponses['metrics']> = Promise.resolve([]);
  /** Uses the last metrics of a worker that does not respond: without them the sums would decrease, which looks like a restart. */
  async function metrics(): Promise<string> {
    const responses = [...serving].map(async (worker) => {
      const now = await requests.send(peerOf(worker), { type: 'metrics' }, METRICS_MS);
      if (!serving.has(worker)) return;
      if (now === undefined) log.warn({ worker: worker.id }, 'a worker does not answer');
      else lastMetrics.set(worker, now);
    });
    await Promise.all(responses);
    // Each worker counts once: one that ended during the wait is only in `endedMetrics`.
    return AggregatorRegistry.aggregate([
      await endedMetrics,
      ...[...serving].map((worker) => lastMetrics.get(worker) ?? []),
    ]).metrics();
  }

  /** Keeps the last known counters of a worker that ended: Prometheus takes a counter that decreases for a restart. */
  function keepCounters(worker: Worker): void {
    const last = lastMetrics.get(worker)?.filter(({ type }) => COUNTER_TYPES.has(String(type))) ?? [];
    lastMetrics.delete(worker);
    endedMetrics = endedMetrics.then((before) => AggregatorRegistry.aggregate([before, last]).getMetricsAsJSON());
  }

  function count(worker: Worker, key: string, counted: Counted, by: number): void {
    const counts = countsOf.get(worker);
    if (counts === undefined) return;
    const name = `${counted} ${key}`;
    const now = (counts.get(name) ?? 0) + by;
    if (now > 0) counts.set(name, now);
    else counts.delete(name);
  }

  function exitWhenEmpty(): void {
    if (countsOf.size === 0) process.exit(process.exitCode ?? 0);
  }

  function end(code: number): void {
    stopping = true;
    process.exitCode = code;
    for (const worker of countsOf.keys()) worker.kill();
    exitWhenEmpty();
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => {
      stopping = true;
      for (const worker of countsOf.keys()) worker.process.kill(signal);
      exitWhenEmpty();
    });
  process.on('SIGHUP', () => {
    for (const worker of serving) worker.process.kill('SIGHUP');
  });
  // The launcher that started this process has ended.
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  serveMetrics(config, { text: metrics, contentType: Registry.PROMETHEUS_CONTENT_TYPE }, log);
  log.info({ workers }, 'primary');
  for (let i = 0; i < workers; i++) start();
}

function peerOf(worker: Worker): Peer {
  return { send: (message) => void (worker.isConnected() && worker.send(message)) };
}
