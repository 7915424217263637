// The server on METRICS_PORT, for clients that the operator lets connect: /metrics, and at /backend/metrics those of the backend, which may
// be reachable from the gateway only.

import { createServer, type Server } from 'node:http';
import type { Logger } from 'pino';
import { createOwnHosts, withoutQuery } from '../base/target.ts';

interface MetricsSource {
  /** The Prometheus text. */
  text(): Promise<string>;
  readonly contentType: string;
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
  source: MetricsSource,
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
      const ours = path === '/metrics';
      if ((!ours && path !== '/backend/metrics') || (request.method !== 'GET' && request.method !== 'HEAD'))
        return void response
          .writeHead(404, { 'content-type': 'text/plain' })
          .end('Only GET /metrics and GET /backend/metrics are here.\n');
      if (!ours)
        return void backendMetrics(backend_url).then((text) => {
          if (text === null)
            response
              .writeHead(502, { 'content-type': 'text/plain' })
              .end('The backend has no metrics, or there are several: scrape each by itself.\n');
          else response.writeHead(200, { 'content-type': source.contentType }).end(text);
        });
      source.text().then(
        (text) => response.writeHead(200, { 'content-type': source.contentType }).end(text),
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
  source: MetricsSource,
  log: Logger,
): void {
  if (port === null) return;
  const server = createMetricsServer(source, backend_url, createOwnHosts(cors_origins));
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: METRICS_PORT: cannot listen on ${host}:${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen(port, host, () => log.info({ address: server.address() }, 'metrics'));
}
