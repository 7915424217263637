// Requests of the gateway's own to a backend, above all for its list of models, which shows that it is up.
import * as z from 'zod';
import { Problem } from '../base/problem.ts';
import type { Backend, Backends, BackendsHealth, Headers, Model } from './backend.ts';

interface OwnRequest {
  readonly path: string;
  readonly headers: Headers;
  /** null: a GET. Otherwise a POST. */
  readonly body: string | null;
}

interface Limits {
  /** 0: the body is not read. */
  readonly max_bytes: number;
  readonly timeout_ms: number;
}

/** The response as far as it arrived. */
interface Collected {
  /** null: no head arrived. */
  readonly status: number | null;
  /** Content-Type; empty where there is none. */
  readonly type: string;
  /** The whole body of a 200 within the limit; null otherwise. */
  readonly body: Buffer | null;
  /** The fault that ended the call; null: a response ended it, or its limit in bytes. */
  readonly fault: Problem | 'timeout' | null;
}

/** Calls the backend and collects the body of a 200. @throws {Problem} where the call cannot be made. */
export function collect(
  backend: Pick<Backend, 'call'>,
  request: OwnRequest,
  { max_bytes, timeout_ms }: Limits,
): Promise<Collected> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    let status: number | null = null;
    let type = '';
    const finish = (body: Buffer | null, fault: Collected['fault'] = null) => {
      clearTimeout(timer);
      call.cancel();
      resolve({ status, type, body, fault });
    };
    const method = request.body === null ? 'GET' : 'POST';
    const call = backend.call(
      { ...request, method, repeatable: true, owner: null },
      {
        head(head) {
          status = head.status;
          type = head.headers['content-type'] ?? '';
          if (status !== 200 || max_bytes === 0) finish(null);
        },
        data(chunk) {
          bytes += chunk.length;
          chunks.push(chunk);
          if (bytes > max_bytes) finish(null);
        },
        end: () => finish(Buffer.concat(chunks)),
        fail: (problem) => finish(null, problem),
      },
    );
    const timer = setTimeout(() => finish(null, 'timeout'), timeout_ms).unref();
  });
}

export const modelListSchema = z.looseObject({ data: z.array(z.looseObject({ id: z.string() })) });

/** Returns null for a body that is no list. */
export function modelsIn(body: Buffer): readonly Model[] | null {
  try {
    return modelListSchema.parse(JSON.parse(body.toString('utf8'))).data.map((model) => ({
      id: model.id,
      json: JSON.stringify(model),
    }));
  } catch {
    return null;
  }
}

// The names of the models that the backend lists. Only these become labels of metrics, or stand in a log: a request may name any text.

/** A name that is not in the list may be new, so the list is read again, but not more often than this. */
const READ_NAMES_MS = 10_000;
const NAMES = { max_bytes: 4 * 1024 * 1024, timeout_ms: 5_000 };
const MAX_NAMES = 10_000;
const MAX_NAME = 128;

interface ModelNames {
  has(name: string): boolean;
}

interface ModelNamesOptions {
  /** null: there is one backend. */
  readonly backends: Pick<Backends, 'models'> | null;
  readonly backend: Pick<Backend, 'call'>;
  readonly backend_api_key: string | null;
}

export function createModelNames({ backends, backend, backend_api_key }: ModelNamesOptions): ModelNames {
  let names: ReadonlySet<string> = new Set();
  let read_ms = 0;

  async function list(): Promise<readonly string[]> {
    if (backends !== null) return (await backends.models()).map(({ id }) => id);
    const headers: Headers = { accept: 'application/json', 'accept-encoding': 'identity' };
    if (backend_api_key !== null) headers.authorization = `Bearer ${backend_api_key}`;
    const { body } = await collect(backend, { path: '/models', headers, body: null }, NAMES);
    return ((body === null ? null : modelsIn(body)) ?? []).map(({ id }) => id);
  }

  function read(): void {
    read_ms = performance.now();
    list()
      .then((ids) => {
        if (ids.length > 0) names = new Set(ids.filter(({ length }) => length <= MAX_NAME).slice(0, MAX_NAMES));
      })
      // The names from before stay.
      .catch(() => {});
  }

  read();
  return {
    has(name) {
      const known = names.has(name);
      if (!known && performance.now() - read_ms > READ_NAMES_MS) read();
      return known;
    },
  };
}

// Whether the backend is up, for /health and the page.

const PROBE = { max_bytes: 0, timeout_ms: 2_000 };
/** Probes within this time share one result, so that health checks put no load on the backend. */
const PROBE_CACHE_MS = 1_000;

type BackendHealth = BackendsHealth | { readonly status: 'ok' } | { readonly status: 'down'; readonly code: string };

/** The backend's health, probed at most once a second. */
export type BackendProbe = () => Promise<BackendHealth>;

interface ProbeOptions {
  readonly backends: Backends | null;
  readonly backend: Backend;
  readonly config: { readonly backend_api_key: string | null };
}

export function createProbe({ backends, backend, config }: ProbeOptions): BackendProbe {
  return backends === null ? cached(() => probeBackend(backend, config.backend_api_key)) : () => backends.health();
}

/** The backend is up when it responds to a request for its models, even with a 401 or a 404. */
async function probeBackend(backend: Backend, apiKey: string | null): Promise<BackendHealth> {
  const headers: Headers = { accept: 'application/json' };
  if (apiKey !== null) headers.authorization = `Bearer ${apiKey}`;
  const { status, fault } = await collect(backend, { path: '/models', headers, body: null }, PROBE);
  if (fault instanceof Problem) return { status: 'down', code: fault.code };
  if (status === null) return { status: 'down', code: 'backend_timeout' };
  return status < 500 ? { status: 'ok' } : { status: 'down', code: 'backend_bad_response' };
}

function cached<T>(make: () => Promise<T>): () => Promise<T> {
  let made_ms = Number.NEGATIVE_INFINITY;
  let value: Promise<T> | null = null;
  return () => {
    if (value === null || performance.now() - made_ms > PROBE_CACHE_MS) {
      made_ms = performance.now();
      value = make();
    }
    return value;
  };
}
