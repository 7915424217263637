// Probes whether the backend is up, for /health and the page.
import type { Backend, Backends, BackendsHealth } from './backend.ts';

const PROBE_TIMEOUT_MS = 2_000;
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
function probeBackend(backend: Backend, apiKey: string | null): Promise<BackendHealth> {
  return new Promise((resolve) => {
    const headers: Record<string, string> = { accept: 'application/json' };
    if (apiKey !== null) headers.authorization = `Bearer ${apiKey}`;
    const finish = (result: BackendHealth) => {
      clearTimeout(timer);
      call.cancel();
      resolve(result);
    };
    const call = backend.call(
      { method: 'GET', path: '/models', headers, body: null, repeatable: true, owner: null },
      {
        head: ({ status }) =>
          finish(status < 500 ? { status: 'ok' } : { status: 'down', code: 'backend_bad_response' }),
        data: () => {},
        end: () => {},
        fail: (problem) => finish({ status: 'down', code: problem.code }),
      },
    );
    const timer = setTimeout(() => finish({ status: 'down', code: 'backend_timeout' }), PROBE_TIMEOUT_MS);
  });
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
