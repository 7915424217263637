// The collateral that the page may ask for.
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../../support/client.ts';
import { type Service, startService } from '../../support/harness.ts';

let service: Service;
let url: string;
const seen: { request: IncomingMessage; body: Buffer }[] = [];
const nvidia = createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  seen.push({ request, body: Buffer.concat(parts) });
  if (request.url === '/v1/rim/NV_GPU_DRIVER_GH100_1.0') response.end(JSON.stringify({ id: 'x', rim: 'PHJpbS8+' }));
  else if (request.url === '/ocsp' && parts[0]?.[1] === 1) response.end(Buffer.alloc(70_000));
  else if (request.url === '/ocsp') response.end(Buffer.from([0x30, 3, 10, 1, 0]));
  else response.writeHead(request.url?.endsWith('BROKEN') ? 500 : 404).end();
});

beforeAll(async () => {
  await new Promise<void>((resolve) => nvidia.listen(0, '127.0.0.1', resolve));
  const at = `http://127.0.0.1:${(nvidia.address() as AddressInfo).port}`;
  service = await startService({ RIM_URL: at, OCSP_URL: `${at}/ocsp` });
  url = service.gateway.url;
});
afterAll(async () => {
  await service.close();
  nvidia.close();
});

const get = (path: string, headers = {}) => ask(url + path, { method: 'GET', headers });

describe('/page/collateral', () => {
  it('hands over a RIM by its name and asks its service once', async () => {
    const path = '/page/collateral/v1/rim/NV_GPU_DRIVER_GH100_1.0';
    for (let i = 0; i < 2; i++)
      expect((await get(path)).json()).toEqual({ id: 'NV_GPU_DRIVER_GH100_1.0', rim: 'PHJpbS8+' });
    expect(seen.filter(({ request }) => request.url === '/v1/rim/NV_GPU_DRIVER_GH100_1.0').length).toBe(1);
  });

  it.each(['../../secret', 'http:%2f%2fexample.com', 'x', `NV_${'a'.repeat(200)}`, 'NV_%0d%0aX'])(
    'refuses the name %s',
    async (id) => {
      const before = seen.length;
      expect((await get(`/page/collateral/v1/rim/${id}`)).status).toBeGreaterThanOrEqual(400);
      expect(seen.length).toBe(before);
    },
  );

  it('says when a RIM is unknown, and when its service does not answer', async () => {
    expect((await get('/page/collateral/v1/rim/NV_UNKNOWN')).json().error.code).toBe('not_found');
    const broken = await get('/page/collateral/v1/rim/NV_BROKEN');
    expect([broken.status, broken.json().error.code]).toEqual([502, 'collateral_unavailable']);
  });

  it('hands an OCSP request to its service, and nothing of the visitor', async () => {
    const body = Buffer.from([0x30, 2, 5, 0]);
    const headers = { 'content-type': 'application/ocsp-request', cookie: 'a=b', authorization: 'Bearer secret' };
    const answer = await ask(`${url}/page/collateral/ocsp`, { body, headers });
    expect([answer.status, answer.headers['content-type'], answer.body.toString('hex')]).toEqual([
      200,
      'application/ocsp-response',
      '30030a0100',
    ]);
    const last = seen.at(-1);
    expect(last?.body.equals(body)).toBe(true);
    expect([last?.request.headers.cookie, last?.request.headers.authorization]).toEqual([undefined, undefined]);
  });

  it('limits what goes in and what comes out', async () => {
    const post = async (body: Buffer) => (await ask(`${url}/page/collateral/ocsp`, { body })).json().error.code;
    expect(await post(Buffer.alloc(2000, 0x30))).toBe('body_too_large');
    expect(await post(Buffer.from('hello'))).toBe('invalid_request');
    expect(await post(Buffer.from([0x30, 1]))).toBe('collateral_unavailable');
  });

  it('asks for a key where the service does; the page itself does not', async () => {
    const file = join(service.folder.path, 'keys');
    writeFileSync(file, 'sesame\n');
    const guarded = await startService({ API_KEYS_FILE: file });
    const status = async (path: string, headers = {}) =>
      (await ask(guarded.gateway.url + path, { method: 'GET', headers })).status;
    expect(await status('/page/collateral/v1/rim/NV_X')).toBe(401);
    expect(await status('/')).toBe(200);
    expect((await ask(`${guarded.gateway.url}/page/service`, { method: 'GET' })).json().key_required).toBe(true);
    await guarded.close();
  });
});
