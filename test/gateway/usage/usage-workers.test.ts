import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, freePort, type Service, startService } from '../../support/harness.ts';
import { bearer, keyLine } from '../limits/limits-stage.ts';

let service: Service;
let gateway: GatewayProcess;
let metrics: string;

beforeEach(async () => {
  service = await startService();
  service.backend.script = chatAnswer('Hello.');
  const keys = join(service.folder.path, 'keys');
  writeFileSync(keys, ['a', 'b tokens-per-day=8'].map(keyLine).join('\n'));
  const port = await freePort();
  metrics = `http://127.0.0.1:${port}`;
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    API_KEYS_FILE: keys,
    AUDIT_LOG: join(service.folder.path, 'audit.log'),
    METRICS_PORT: String(port),
    WORKERS: '2',
  });
});
afterEach(async () => {
  await gateway.stop('SIGTERM');
  await service.close();
});

/** On a connection of its own: they are dealt out in turn. */
const usage = async () => (await ask(`${gateway.url}/usage`, { method: 'GET', headers: bearer('a') })).json();

describe('two workers', () => {
  it('count together: usage, budgets, metrics, and one audit log without a gap', async () => {
    for (let i = 0; i < 6; i++) await chat(gateway.url, { ...CHAT, tee: i % 2 === 0 }, bearer('a'));
    for (let i = 0; i < 4; i++)
      await eventually(async () => {
        const { total } = await usage();
        return total.requests === 6 && total.attested === 3 && total.input_tokens === 18;
      });
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) {
      statuses.push((await chat(gateway.url, CHAT, bearer('b'))).status);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(statuses).toEqual([200, 200, 429, 429]);
    const { text } = await ask(`${metrics}/metrics`, { method: 'GET' });
    expect(text).toMatch(/countersign_key_requests_total\{key="a",model="scripted",counted="backend"\} 6\n/);
    expect(text).toMatch(/countersign_key_tokens_total\{key="b",model="scripted",direction="output"\} 4\n/);
    expect(text).toMatch(/countersign_key_attested_total\{key="a",model="scripted"\} 3\n/);
    expect(text).toMatch(/countersign_audit_lines 8\n/);
    expect((await ask(`${gateway.url}/health`, { method: 'GET' })).json().audit).toEqual({ status: 'ok', lost: 0 });
  });

  it('show the backend’s own metrics where ours are', async () => {
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
});
