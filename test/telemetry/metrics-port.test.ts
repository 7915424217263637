// METRICS_PORT: our metrics, and the backend's own beside them.
import { request } from 'node:http';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ask } from '../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { freePort, type Service, startService } from '../support/harness.ts';

let service: Service;
let gateway: GatewayProcess;
let metrics: string;

beforeEach(async () => {
  service = await startService();
  const port = await freePort();
  metrics = `http://127.0.0.1:${port}`;
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    METRICS_PORT: String(port),
  });
});
afterEach(async () => {
  await gateway.stop('SIGTERM');
  await service.close();
});

it('the backend’s own metrics are where ours are', async () => {
  service.backend.script = ({ url }, response) => {
    response.writeHead(url === '/metrics' ? 200 : 404).end('vllm:num_requests_running 3\n');
  };
  expect(await ask(`${metrics}/backend/metrics`, { method: 'GET' })).toMatchObject({
    status: 200,
    text: 'vllm:num_requests_running 3\n',
  });
  service.backend.script = (_request, response) => void response.writeHead(404).end();
  expect((await ask(`${metrics}/backend/metrics`, { method: 'GET' })).status).toBe(502);
  expect((await ask(`${metrics}/other`, { method: 'GET' })).status).toBe(404);
  // A page of another name may not read it by DNS rebinding.
  const status = await new Promise((resolve, reject) => {
    const other = request(`${metrics}/backend/metrics`, { headers: { host: 'evil.example' } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    other.on('error', reject).end();
  });
  expect(status).toBe(403);
});
