// The server of METRICS_PORT: /metrics and nothing else, for whoever the operator lets near that port.
import { createServer, type Server } from 'node:http';
import type { Telemetry } from './telemetry.ts';

/** It never listens by itself: main.ts does. */
export function createMetricsServer(telemetry: Telemetry): Server {
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
