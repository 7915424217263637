// Metrics as they are served: on the main port, or by the server on METRICS_PORT, for clients that the operator lets connect. That one also
// has at /backend/metrics those of the backend, which may be reachable from the gateway only.

import { createServer, type Server } from 'node:http';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import { createOwnHosts, withoutQuery } from '../base/target.ts';

/** What an endpoint picker scores, which it reads many times a second. */
export const PICKER_METRICS = [
  'http_server_active_requests',
  'countersign_signing_queue_depth',
  'countersign_signing_queue_age_seconds',
] as const;

const zip = promisify(gzip);

interface Exposition {
  readonly body: string | Buffer<ArrayBuffer>;
  readonly headers: Readonly<Record<string, string>>;
}

/** The Prometheus text of /metrics or of /metrics/picker, gzipped for a client that accepts it. */
export async function expositionOf(registry: Registry, path: string, accepted = ''): Promise<Exposition> {
  const text =
    path === '/metrics/picker'
      ? `${(await Promise.all(PICKER_METRICS.map((name) => registry.getSingleMetricAsString(name)))).join('\n\n')}\n`
      : await registry.metrics();
  const headers = { 'content-type': registry.contentType, vary: 'origin, accept-encoding' };
  if (!/\bgzip\b(?!;q=0(\.0+)?\b)/.test(accepted)) return { body: text, headers };
  return { body: await zip(text), headers: { ...headers, 'content-encoding': 'gzip' } };
}

/** Limit for the backend's metrics. vLLM's are at `/metrics`, beside `/v1`, and hold no content: their labels are models and reasons. */
const MAX_BACKEND_METRICS = 16 * 1024 * 1024;
const BACKEND_METRICS_MS = 5_000;

/** Returns null if the backend has no metrics, too many, or does not respond. */
async function backendMetrics(backend_url: string | null): Promise<string | null> {
  // Each of several backends must be scraped by itself.
  if (backend_url === null) return null;
  try {
    const response = await fetch(new URL('/metrics', backend_url), { signal: AbortSignal.timeout(BACKEND_METRICS_MS) });
    if (!response.ok || response.body === null) return null;
    const decoder = new TextDecoder();
    let text = '';
    for await (const chunk of response.body) {
      text += decoder.decode(chunk, { stream: true });
      if (text.length > MAX_BACKEND_METRICS) return null;
    }
    return text;
  } catch {
    return null;
  }
}

function createMetricsServer(
  registry: Registry,
  backend_url: string | null,
  ownHost: (host: string | undefined) => boolean,
): Server {
  return createServer(
    { maxHeaderSize: 8 * 1024, headersTimeout: 5_000, requestTimeout: 5_000 },
    (request, response) => {
      // The port needs no key, so the host name is checked: a web page must not read it by DNS rebinding.
      if (!ownHost(request.headers.host))
        return void response
          .writeHead(403, { 'content-type': 'text/plain' })
          .end('This service has no such name: ask by an address, or name it in CORS_ORIGINS.\n');
      const path = withoutQuery(request.url ?? '');
      const ours = path === '/metrics' || path === '/metrics/picker';
      if ((!ours && path !== '/backend/metrics') || (request.method !== 'GET' && request.method !== 'HEAD'))
        return void response
          .writeHead(404, { 'content-type': 'text/plain' })
          .end('Only GET /metrics, GET /metrics/picker and GET /backend/metrics are here.\n');
      if (!ours)
        return void backendMetrics(backend_url).then((text) => {
          if (text === null)
            response
              .writeHead(502, { 'content-type': 'text/plain' })
              .end('The backend has no metrics, or there are several: scrape each by itself.\n');
          else response.writeHead(200, { 'content-type': registry.contentType }).end(text);
        });
      expositionOf(registry, path, String(request.headers['accept-encoding'] ?? '')).then(
        ({ body, headers }) => response.writeHead(200, headers).end(body),
        () => response.writeHead(500).end(),
      );
    },
  );
}

interface MetricsSettings {
  /** null: there are several backends. */
  readonly backend_url: string | null;
  readonly metrics_host: string;
  /** null: no server. */
  readonly metrics_port: number | null;
  readonly cors_origins: readonly string[] | null;
}

/** Listens on METRICS_PORT if it is set. The process ends when the port is not available. */
export function serveMetrics(
  { backend_url, metrics_host: host, metrics_port: port, cors_origins }: MetricsSettings,
  registry: Registry,
  log: Logger,
): void {
  if (port === null) return;
  const server = createMetricsServer(registry, backend_url, createOwnHosts(cors_origins));
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: METRICS_PORT: cannot listen on ${host}:${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen(port, host, () => log.info({ address: server.address() }, 'metrics'));
}
