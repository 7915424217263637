// The server of METRICS_PORT: /metrics and nothing else, for whoever the operator lets near that port.
import { createServer, type Server } from 'node:http';
import type { Logger } from 'pino';
import type { GatewayConfig } from '../config.ts';
import { createOwnHosts } from '../http/origins.ts';

/** Whose numbers: those of one process, or of all workers together. */
export interface Numbers {
  /** The Prometheus text. */
  text(): Promise<string>;
  readonly contentType: string;
}

function createMetricsServer(numbers: Numbers, ownHost: (host: string | undefined) => boolean): Server {
  return createServer(
    { maxHeaderSize: 8 * 1024, headersTimeout: 5_000, requestTimeout: 5_000 },
    (request, response) => {
      // It asks for no key: a web page must not read it by a name of its own that was made to mean this machine (DNS rebinding).
      if (!ownHost(request.headers.host))
        return void response
          .writeHead(403, { 'content-type': 'text/plain' })
          .end('This service has no such name: ask by an address, or name it in CORS_ORIGINS.\n');
      const path = request.url?.split('?', 1)[0];
      if (path !== '/metrics' || (request.method !== 'GET' && request.method !== 'HEAD'))
        return void response.writeHead(404, { 'content-type': 'text/plain' }).end('Only GET /metrics is here.\n');
      numbers.text().then(
        (text) => response.writeHead(200, { 'content-type': numbers.contentType }).end(text),
        () => response.writeHead(500).end(),
      );
    },
  );
}

/** Listens where METRICS_PORT says, if it says so. A port that cannot be had ends the process. */
export function serveMetrics(
  {
    metrics_host: host,
    metrics_port: port,
    cors_origins,
  }: Pick<GatewayConfig, 'metrics_host' | 'metrics_port' | 'cors_origins'>,
  numbers: Numbers,
  log: Logger,
): void {
  if (port === null) return;
  const server = createMetricsServer(numbers, createOwnHosts(cors_origins));
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: METRICS_PORT: cannot listen on ${host}:${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen(port, host, () => log.info({ address: server.address() }, 'metrics'));
}
