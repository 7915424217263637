// GET /health for operators and load balancers: 200 while chat without tee works and new requests are accepted.
import type * as z from 'zod';
import type { Backend } from '../backend/backend.ts';
import type { Context, Deps } from '../http/context.ts';
import { sendDocument } from '../http/document.ts';
import { Problem } from '../http/problem.ts';
import type { AuditLog } from '../usage/audit-log.ts';
import { openapiDocument } from './openapi.ts';
import type { healthSchema } from './openapi-schemas.ts';

const PROBE_TIMEOUT_MS = 2_000;
/** Probes within this time share one result, so that health checks put no load on the backend. */
const PROBE_CACHE_MS = 1_000;

type Health = z.infer<typeof healthSchema>;

/** How the backend is, asked at most once a second. */
export type BackendProbe = () => Promise<BackendHealth>;

export function createProbe({ backends, backend, config }: Deps): BackendProbe {
  return backends === null ? cached(() => probeBackend(backend, config.backend_api_key)) : () => backends.health();
}

export function health(deps: Deps, probe: BackendProbe) {
  const { sidecar, version, draining } = deps;
  return async (c: Context): Promise<Response> => {
    const [probed, audit] = await Promise.all([probe(), auditHealth(deps.audit)]);
    const { state, hello, unavailable, refused } = sidecar;
    const backend = { ...probed, canary: deps.canary.result };
    const whole = state === 'connected' && unavailable === null && backend.canary.state !== 'wrong';
    const serves = backend.status === 'ok' && !whole ? 'degraded' : backend.status;
    const { reachable } = deps.store;
    const status = draining() ? 'draining' : serves;
    const body: Health = {
      status,
      backend,
      sidecar: {
        status: state,
        attester: hello?.attester ?? null,
        devices: hello?.devices ?? [],
        simulated: hello === null ? null : hello.simulated !== null,
        cpu: hello?.cpu?.type ?? null,
        trouble: unavailable,
        refused: refused === null ? null : { code: refused.code, message: refused.message },
      },
      store: reachable === null ? null : { status: reachable ? 'connected' : 'away' },
      audit,
      version,
    };
    return c.json(body, status === 'down' || status === 'draining' ? 503 : 200);
  };
}

type BackendHealth = Omit<Health['backend'], 'canary'>;

async function auditHealth(audit: AuditLog | null): Promise<Health['audit']> {
  if (audit === null) return null;
  const state = await audit.state();
  if (state === undefined) return { status: 'unknown', lost: 0 };
  const { failing, lost } = state;
  return failing === null ? { status: 'ok', lost } : { status: 'failing', code: failing, lost };
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

// GET /metrics: Prometheus text, on the main port when no API keys are set. With API keys it has a port of its own.

export function metrics({ config, telemetry }: Deps) {
  return async (c: Context): Promise<Response> => {
    if (config.metrics_port !== null)
      throw new Problem('not_found', `Metrics are served on port ${config.metrics_port} (METRICS_PORT) alone.`);
    if (config.workers > 1)
      throw new Problem(
        'not_found',
        'With several workers, metrics are served on a port of their own: set METRICS_PORT.',
      );
    if (config.api_keys_file !== null)
      throw new Problem('not_found', 'With API keys, metrics are served on a port of their own: set METRICS_PORT.');
    return c.body(await telemetry.text(), 200, { 'content-type': telemetry.registry.contentType });
  };
}

// GET /openapi.json returns the service's own description.

export function openapi(c: Context): Response {
  return sendDocument(c, openapiDocument());
}
