// One of several backends: its client with its key, and its state, which its connections, probes, requests and trials show.
import type { Logger } from 'pino';
import { delayAfter } from '../base/backoff.ts';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { BackendCall, BackendName, BackendRequest, Model, ResponseHandler } from './backend.ts';
import type { BackendEntry } from './backends-file.ts';
import { type Client, createBackend } from './client.ts';
import { FAILURES, type Failure, Observation, tryBackend } from './health.ts';
import { collect, modelsIn } from './probe.ts';

/** How often a backend that is up is probed. */
const PROBE_MS = 5_000;
const PROBE = { max_bytes: 1024 * 1024, timeout_ms: 5_000 };
/** Probes within this time share one request. */
const PROBE_CACHE_MS = 1_000;
/** The wait before a backend that is down is probed again. */
const BACKOFF = { min_ms: 1_000, max_ms: 10_000 };
/** After this time up, a backend's backoff begins again at the shortest wait. */
const STEADY_MS = 30_000;
/** After so many failures, with no success between them, the gateway tries the backend itself. */
const SUSPECT_FAILURES = 3;
/** The wait before a backend that failed its trial is tried again. */
const TRIAL_BACKOFF = { min_ms: 1_000, max_ms: 30_000 };

interface Probe {
  /** null: it sent its list. */
  readonly error: string | null;
  /** It responded, with a list or without. */
  readonly answered: boolean;
  /** null: it sent no list. */
  readonly models: readonly Model[] | null;
}

/** `unlisted`: it responds, without a list of models. `failing`: requests fail, and so did a trial. All but `up` are down. */
type State = 'up' | 'unreachable' | 'unlisted' | 'failing';

/** One of several backends. */
export class Replica implements BackendName {
  readonly url: URL;
  readonly client: Client;
  /** Settles when the first probe has ended. */
  readonly ready: Promise<unknown>;
  /** The failures of clients' requests since the start. */
  readonly failures = new Map<Failure, number>(FAILURES.map((reason) => [reason, 0]));
  entry: BackendEntry;
  readonly #log: Logger;
  #state: State = 'up';
  /** Times that it was down or its probe failed, until it is up for a while. */
  #downs = 0;
  #changed_ms = Number.NEGATIVE_INFINITY;
  #probe: Promise<Probe> | null = null;
  #probed_ms = 0;
  /** The first model of its last list that its requests may name. */
  #model: string | undefined;
  /** Requests that failed since the last success. */
  #failed = 0;
  #trying = false;
  /** Trials that failed since the last success. */
  #failedTrials = 0;
  #timer: NodeJS.Timeout | null = null;
  #retired = false;

  constructor(entry: BackendEntry, config: GatewayConfig, log: Logger) {
    this.entry = entry;
    this.url = new URL(entry.url);
    this.client = createBackend({ ...config, backend_url: entry.url });
    this.#log = log;
    this.ready = this.probe();
  }

  get name(): string {
    return this.entry.name;
  }

  get up(): boolean {
    return this.#state === 'up';
  }

  isFor({ url, api_key }: BackendEntry): boolean {
    return url === this.entry.url && api_key === this.entry.api_key;
  }

  call(request: BackendRequest, handler: ResponseHandler): BackendCall {
    const { api_key } = this.entry;
    const key = api_key === null ? {} : { authorization: `Bearer ${api_key}` };
    return this.client.call({ ...request, headers: { ...request.headers, ...key } }, handler);
  }

  /** Requests the list of models. Calls within a second share one probe. */
  probe(): Promise<Probe> {
    const now_ms = performance.now();
    if (this.#probe !== null && now_ms - this.#probed_ms < PROBE_CACHE_MS) return this.#probe;
    this.#probed_ms = now_ms;
    this.#probe = this.#requestModels().then((probe) => {
      const { error, answered } = probe;
      if (error !== null) this.#lost(answered ? 'unlisted' : 'unreachable', error, true);
      else if (this.#state !== 'failing') this.#rise();
      if (this.#state !== 'failing') this.#schedule();
      return probe;
    });
    return this.#probe;
  }

  async #requestModels(): Promise<Probe> {
    const headers = { accept: 'application/json', 'accept-encoding': 'identity' };
    const { status, body, fault } = await collect(this, { path: '/models', headers, body: null }, PROBE);
    const models = body === null ? null : modelsIn(body);
    if (fault instanceof Problem) return { error: reasonOf(fault), answered: false, models };
    if (fault === 'timeout') return { error: 'backend_timeout', answered: false, models };
    if (status !== 200) return { error: `http_${status}`, answered: true, models };
    if (models === null) return { error: 'no_model_list', answered: true, models };
    const { models: named } = this.entry;
    this.#model = models.find(({ id }) => named?.has(id) ?? true)?.id ?? named?.values().next().value;
    return { error: null, answered: true, models };
  }

  /** Plans the next probe; of a backend that failed its trial, the next trial. */
  #schedule(): void {
    clearTimeout(this.#timer ?? undefined);
    if (this.#retired) return;
    const [after_ms, check] =
      this.#state === 'failing'
        ? [delayAfter(this.#failedTrials, TRIAL_BACKOFF), () => this.#try()]
        : [this.up ? PROBE_MS : delayAfter(this.#downs, BACKOFF), () => this.probe()];
    this.#timer = setTimeout(() => void check(), after_ms).unref();
  }

  /** Observes a request of a client. */
  observe(request: BackendRequest): Observation {
    return new Observation(request, (failure) => (failure === null ? this.#succeeded() : this.#failedBy(failure)));
  }

  #succeeded(): void {
    this.#failed = 0;
    this.#failedTrials = 0;
    // Probes would take it out again at once.
    if (this.#state !== 'unlisted') this.#rise();
  }

  #failedBy(failure: Failure): void {
    this.failures.set(failure, (this.failures.get(failure) ?? 0) + 1);
    this.#failed++;
    if (this.up && this.#failed >= SUSPECT_FAILURES && !this.#trying) void this.#try();
  }

  /** Requests that fail may be the clients' own fault. So the backend is tried, unless a request succeeds meanwhile. */
  async #try(): Promise<void> {
    if (this.#retired) return;
    this.#trying = true;
    const returns = this.#state === 'failing';
    const { reason, inconclusive } = await tryBackend(this, this.#model);
    this.#trying = false;
    if (this.#retired || this.#failed < SUSPECT_FAILURES) return;
    if (reason === null) this.#failed = this.#failedTrials = 0;
    if (reason === null || (returns && inconclusive)) return this.#rise();
    this.#failedTrials++;
    this.#fall('failing', reason);
    this.#schedule();
  }

  /** No connection was established. */
  unreachable(problem: Problem): void {
    this.#lost('unreachable', reasonOf(problem), false);
  }

  /** `probed`: a probe failed, which counts even while the backend is down, so that it is probed less often. */
  #lost(state: State, reason: string, probed: boolean): void {
    if (this.#retired || this.#state === 'failing') return;
    if (this.up) {
      this.#downs = performance.now() - this.#changed_ms > STEADY_MS ? 1 : this.#downs + 1;
      this.#fall(state, reason);
      this.#schedule();
    } else if (probed) {
      this.#downs++;
      this.#state = state;
    }
  }

  #fall(state: State, reason: string): void {
    if (this.up) {
      this.#changed_ms = performance.now();
      this.#log.warn({ backend: this.name, reason }, 'a backend is down');
    }
    this.#state = state;
  }

  #rise(): void {
    if (this.up) return;
    this.#state = 'up';
    this.#failed = 0;
    this.#changed_ms = performance.now();
    this.#log.info({ backend: this.name }, 'a backend is up again');
    this.#schedule();
  }

  retire(): Promise<void> {
    this.#retired = true;
    clearTimeout(this.#timer ?? undefined);
    return this.client.retire();
  }

  close(): Promise<void> {
    this.#retired = true;
    clearTimeout(this.#timer ?? undefined);
    return this.client.close();
  }
}

/** The reason for the log: the system's code of a failed connection, or the problem's code. */
function reasonOf({ cause, code }: Problem): string {
  const system = (cause as NodeJS.ErrnoException | undefined)?.code;
  return typeof system === 'string' ? system : code;
}
