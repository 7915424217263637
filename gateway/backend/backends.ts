// Several backends on one node (BACKENDS_FILE): chooses one for each request, tries another when that one cannot be reached, and follows
// changes of the file.
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { ConfigError, type GatewayConfig } from '../base/config.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { followFiles, type ReadFollowed } from '../keys/followed-files.ts';
import { noSuchModel } from '../keys/models.ts';
import type {
  BackendCall,
  BackendRequest,
  Backends,
  BackendsHealth,
  Model,
  ResponseHandler,
  ResponseHead,
} from './backend.ts';
import { type BackendEntry, BackendsFileError, readBackendsFile } from './backends-file.ts';
import { canaryProblem } from './canary.ts';
import type { Observation } from './health.ts';
import { Replica } from './replica.ts';

// Load balancing: the backends that serve a model, and the next one of them.

interface Member {
  readonly replica: Replica;
  /** Its current weight in the round robin. */
  current: number;
}

/**
 * Backends that serve the same models, chosen by smooth weighted round robin: each choice adds every backend's weight to its current
 * weight, takes the backend with the highest, and reduces that by the sum of all weights. Unlike least connections, it needs no count of
 * running requests, and does not prefer a backend that fails at once.
 */
class Group {
  readonly #members: readonly Member[];

  constructor(replicas: readonly Replica[]) {
    this.#members = replicas.map((replica) => ({ replica, current: 0 }));
  }

  /**
   * Returns a backend that was not tried and may be used: one that is up, or else, as the last resort, one that is down. null: there is
   * none.
   */
  next(tried: ReadonlySet<Replica>, mayUse: (replica: Replica) => boolean): Replica | null {
    const untried = this.#members.filter(({ replica }) => !tried.has(replica) && mayUse(replica));
    const up = untried.filter(({ replica }) => replica.up);
    return this.#choose(up.length === 0 ? untried : up);
  }

  #choose(members: readonly Member[]): Replica | null {
    let total = 0;
    let best: Member | null = null;
    for (const member of members) {
      const { weight } = member.replica.entry;
      total += weight;
      member.current += weight;
      if (best === null || member.current > best.current) best = member;
    }
    if (best === null) return null;
    best.current -= total;
    return best.replica;
  }
}

/** The routing table of one version of the file. */
class Table {
  readonly replicas: readonly Replica[];
  readonly #byModel: ReadonlyMap<string, Group>;
  /** The backends that serve every model that no other names, and the first of them. null: there are none. */
  readonly #others: Group | null;
  readonly #first: Group | null;

  constructor(replicas: readonly Replica[]) {
    this.replicas = replicas;
    const names = new Set(replicas.flatMap(({ entry }) => [...(entry.models ?? [])]));
    const naming = (model: string) => replicas.filter(({ entry }) => entry.models?.has(model));
    this.#byModel = new Map([...names].map((model) => [model, new Group(naming(model))]));
    const others = replicas.filter(({ entry }) => entry.models === null);
    this.#others = others.length === 0 ? null : new Group(others);
    this.#first = others.length === 0 ? null : new Group(others.slice(0, 1));
  }

  groupOf(model: string | null | undefined): Group | null {
    if (model === null) return this.#first;
    return (model === undefined ? undefined : this.#byModel.get(model)) ?? this.#others;
  }

  /** Whether the file lets a backend serve this model. */
  allows({ entry }: Replica, model: string): boolean {
    return entry.models === null ? !this.#byModel.has(model) : entry.models.has(model);
  }
}

// Failover: one request is sent to one backend after another until a connection is established.

/** No further backend is tried after this time. An attempt to connect may take 5 s. */
const FAILOVER_MS = 10_000;

/** How long /health waits for the first probe of a backend. */
const FIRST_PROBE_MS = 1_000;

interface Chooser {
  /** @throws {Problem} where no backend serves the request */
  next(request: BackendRequest, tried: ReadonlySet<Replica>): Replica | null;
  readonly closed: boolean;
  failedOver(): void;
}

class RoutedCall implements ResponseHandler, BackendCall {
  readonly #chooser: Chooser;
  readonly #request: BackendRequest;
  readonly #handler: ResponseHandler;
  readonly #began_ms = performance.now();
  readonly #tried = new Set<Replica>();
  #replica: Replica;
  #observation: Observation;
  #call: BackendCall;
  #cancelled = false;

  /** @throws {Problem} */
  constructor(chooser: Chooser, request: BackendRequest, handler: ResponseHandler) {
    this.#chooser = chooser;
    this.#request = request;
    this.#handler = handler;
    this.#replica = chooser.next(request, this.#tried) as Replica;
    this.#observation = this.#replica.observe(request);
    this.#call = this.#send();
  }

  #send(): BackendCall {
    this.#tried.add(this.#replica);
    this.#handler.sentTo?.(this.#replica);
    return this.#replica.call(this.#request, this);
  }

  head(head: ResponseHead): void {
    this.#observation.head(head);
    this.#handler.head(head);
  }

  data(chunk: Buffer): void {
    this.#observation.data();
    this.#handler.data(chunk);
  }

  end(): void {
    this.#handler.end();
    this.#observation.end();
  }

  /** Tries another backend only if no byte of the request was sent, because a response must not be computed twice. */
  fail(problem: Problem, unsent = false): void {
    this.#observation.fail(problem);
    // A request that cannot be sent at all is no fault of the backend.
    const unreachable = unsent && problem.code === 'backend_unreachable';
    if (!unreachable || this.#chooser.closed || this.#cancelled) return this.#handler.fail(problem);
    this.#replica.unreachable(problem);
    if (performance.now() - this.#began_ms > FAILOVER_MS) return this.#handler.fail(problem);
    try {
      const next = this.#chooser.next(this.#request, this.#tried);
      if (next === null) return this.#handler.fail(problem);
      this.#chooser.failedOver();
      this.#replica = next;
      this.#observation = next.observe(this.#request);
      this.#call = this.#send();
    } catch (error) {
      this.#handler.fail(asProblem(error));
    }
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  cancel(): void {
    this.#cancelled = true;
    this.#observation.cancel();
    this.#call.cancel();
  }
}

/**
 * `isWrong`: whether a backend's canary is wrong, so that nothing of it is attested.
 * @throws {ConfigError} when the file cannot be used.
 */
export function createBackends(
  file: string,
  config: GatewayConfig,
  log: Logger,
  isWrong: (backend: string) => boolean = () => false,
): Backends {
  const path = resolve(file);
  let table: Table | null = null;
  let file_error: string | null = null;
  let failovers = 0;
  let closed = false;
  /** Backends that are no longer in the file and still have running requests. */
  const retired = new Set<Replica>();

  function load(read: ReadFollowed): void {
    let entries: BackendEntry[];
    try {
      entries = readBackendsFile(path, read);
    } catch (error) {
      if (!(error instanceof BackendsFileError)) throw error;
      if (table === null) throw new ConfigError(`BACKENDS_FILE ${error.message}`, { cause: error });
      file_error = error.message;
      return log.error(`BACKENDS_FILE ${error.message}: the backends from before stay`);
    }
    const before = table?.replicas ?? [];
    const replicas = entries.map((entry) => {
      const kept = before.find((replica) => replica.isFor(entry));
      if (kept === undefined) return new Replica(entry, config, log);
      kept.entry = entry;
      return kept;
    });
    table = new Table(replicas);
    file_error = null;
    for (const replica of before) {
      if (replicas.includes(replica)) continue;
      retired.add(replica);
      void replica.retire().then(() => retired.delete(replica));
    }
    const backends = entries.map(({ name, url, weight, models }) => ({ name, url, weight, models: models?.size }));
    log.info({ backends }, before.length === 0 ? 'BACKENDS_FILE was read' : 'BACKENDS_FILE was read again');
  }

  const stop = followFiles(load);
  const current = () => table as Table;
  const chooser: Chooser = {
    next(request, tried) {
      const group = current().groupOf(request.model);
      if (group === null) throw noBackendFor(request);
      const next = group.next(tried, ({ name }) => request.attested !== true || !isWrong(name));
      if (next === null && tried.size === 0) throw canaryProblem();
      return next;
    },
    get closed() {
      return closed;
    },
    failedOver: () => void failovers++,
  };
  return {
    call: (request, handler) => new RoutedCall(chooser, request, handler),
    models: () => modelsOf(current()),
    async health() {
      const { replicas } = current();
      // A silent backend is not waited for, because a health check has only seconds.
      await Promise.race([
        Promise.all(replicas.map(({ ready }) => ready)),
        sleep(FIRST_PROBE_MS, undefined, { ref: false }),
      ]);
      return healthOf(replicas, file_error);
    },
    get each() {
      const table = current();
      return table.replicas.map((replica) => ({
        name: replica.name,
        call: (request: BackendRequest, handler: ResponseHandler) => replica.call(request, handler),
        serves: (model: string) => table.allows(replica, model),
      }));
    },
    get states() {
      return current().replicas.map(({ name, up }) => [name, up] as const);
    },
    get failures() {
      return current().replicas.flatMap(({ name, failures }) =>
        [...failures].map(([reason, count]) => [name, reason, count] as const),
      );
    },
    get failovers() {
      return failovers;
    },
    async close() {
      closed = true;
      stop();
      await Promise.all([...current().replicas, ...retired].map((replica) => replica.close()));
    },
  };
}

function noBackendFor({ model, method }: BackendRequest): Problem {
  if (typeof model === 'string') return noSuchModel(model);
  if (method !== 'POST') return new Problem('not_found', 'No backend here serves requests that name no model.');
  return new Problem('invalid_request', 'model: must be given, because it chooses the backend.', { param: 'model' });
}

async function modelsOf(table: Table): Promise<readonly Model[]> {
  const up = table.replicas.filter((replica) => replica.up);
  const probed = up.length === 0 ? table.replicas : up;
  const probes = await Promise.all(probed.map((replica) => replica.probe()));
  if (probes.every(({ models }) => models === null)) {
    if (probes.some(({ answered }) => answered))
      throw new Problem('backend_bad_response', 'No backend answered with a list of models.');
    throw new Problem('backend_unreachable', 'No backend can be reached.', { retryAfterSeconds: 1 });
  }
  const merged = new Map<string, Model>();
  for (const [i, replica] of probed.entries())
    for (const model of probes[i]?.models ?? [])
      if (!merged.has(model.id) && table.allows(replica, model.id)) merged.set(model.id, model);
  return [...merged.values()];
}

function healthOf(replicas: readonly Replica[], file_error: string | null): BackendsHealth {
  const up = replicas.filter((replica) => replica.up).length;
  return {
    status: up === replicas.length ? 'ok' : up === 0 ? 'down' : 'degraded',
    backends: replicas.map((replica) => ({ name: replica.name, state: replica.up ? 'up' : 'down' })),
    ...(file_error === null ? {} : { file_error }),
  };
}
