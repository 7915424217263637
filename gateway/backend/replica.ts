// One of several backends: its client with its key, and its state, up or down, which its connections and probes show.
import type { Logger } from 'pino';
import { delayAfter } from '../base/backoff.ts';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { BackendCall, BackendName, BackendRequest, Model, ResponseHandler } from './backend.ts';
import type { BackendEntry } from './backends-file.ts';
import { type Client, createBackend } from './client.ts';
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

interface Probe {
  /** null: up. */
  readonly error: string | null;
  /** null: it sent no list. */
  readonly models: readonly Model[] | null;
}

/** One of several backends. */
export class Replica implements BackendName {
  readonly url: URL;
  readonly client: Client;
  /** Settles when the first probe has ended. */
  readonly ready: Promise<unknown>;
  entry: BackendEntry;
  up = true;
  readonly #log: Logger;
  #failures = 0;
  #changed_ms = Number.NEGATIVE_INFINITY;
  #probe: Promise<Probe> | null = null;
  #probed_ms = 0;
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
      if (probe.error === null) this.succeeded();
      else this.failed(probe.error, true);
      this.#schedule();
      return probe;
    });
    return this.#probe;
  }

  async #requestModels(): Promise<Probe> {
    const headers = { accept: 'application/json', 'accept-encoding': 'identity' };
    const { status, body, fault } = await collect(this, { path: '/models', headers, body: null }, PROBE);
    const models = body === null ? null : modelsIn(body);
    if (fault instanceof Problem) return { error: reasonOf(fault), models };
    if (status === null) return { error: 'backend_timeout', models };
    return { error: status < 500 ? null : `http_${status}`, models };
  }

  #schedule(): void {
    clearTimeout(this.#timer ?? undefined);
    if (this.#retired) return;
    const after_ms = this.up ? PROBE_MS : delayAfter(this.#failures, BACKOFF);
    this.#timer = setTimeout(() => void this.probe(), after_ms).unref();
  }

  /** Records a response, after which the backend is up. */
  succeeded(): void {
    if (this.up) return;
    this.up = true;
    this.#changed_ms = performance.now();
    this.#log.info({ backend: this.name }, 'a backend is up again');
  }

  /** Records a failure. `probed`: a probe failed, which counts even while the backend is down, so that it is probed less often. */
  failed(reason: string, probed = false): void {
    if (this.#retired) return;
    const now_ms = performance.now();
    if (this.up) {
      this.#failures = now_ms - this.#changed_ms > STEADY_MS ? 1 : this.#failures + 1;
      this.up = false;
      this.#changed_ms = now_ms;
      this.#schedule();
      this.#log.warn({ backend: this.name, reason }, 'a backend is down');
    } else if (probed) this.#failures++;
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
export function reasonOf({ cause, code }: Problem): string {
  const system = (cause as NodeJS.ErrnoException | undefined)?.code;
  return typeof system === 'string' ? system : code;
}
