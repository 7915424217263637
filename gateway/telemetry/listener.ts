// The server of METRICS_PORT: /metrics and nothing else, for whoever the operator lets near that port.
import { createServer, type Server } from 'node:http';
import type { Logger } from 'pino';
import type { GatewayConfig } from '../config.ts';
import type { Telemetry } from './telemetry.ts';

/** Listens where the configuration says so; a port that cannot be had ends the process, as the main one does. */
export function listenForMetrics(telemetry: Telemetry, config: GatewayConfig, log: Logger): void {
  const { metrics_host: host, metrics_port: port } = config;
  if (port === null) return;
  const server = createMetricsServer(telemetry);
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: METRICS_PORT: cannot listen on ${host}:${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen(port, host, () => log.info({ address: server.address() }, 'metrics'));
}

function createMetricsServer(telemetry: Telemetry): Server {
  return createServer(
    { maxHeaderSize: 8 * 1024, headersTimeout: 5_000, requestTimeout: 5_000 },
    (request, response) => {
      const path = request.url?.split('?', 1)[0];
      if (path !== '/metrics' || (request.method !== 'GET' && request.method !== 'HEAD'))
        return void response.writeHead(404, { 'content-type': 'text/plain' }).end('Only GET /metrics is here.\n');
      telemetry.text().then(
        (text) => response.writeHead(200, { 'content-type': telemetry.registry.contentType }).end(text),
        () => response.writeHead(500).end(),
      );
    },
  );
}
