// The page as the gateway serves it: headers, caching, what it is made of, and the collateral it may ask for.
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Hono } from 'hono';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildApp } from '../../../gateway/app.ts';
import { loadConfig } from '../../../gateway/config.ts';
import type { Env } from '../../../gateway/http/context.ts';
import { asProblem, Problem } from '../../../gateway/http/problem.ts';
import { createPage } from '../../../gateway/routes/page.ts';
import { ask } from '../../support/client.ts';
import { type Service, SILENT, startService } from '../../support/harness.ts';

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

describe('GET /', () => {
  it('is a document under a policy by which it reaches nobody but its gateway', async () => {
    const { status, headers, text } = await get('/');
    expect([status, headers['content-type'], headers['cache-control']]).toEqual([
      200,
      'text/html; charset=utf-8',
      'no-cache',
    ]);
    const policy = String(headers['content-security-policy']);
    for (const rule of [
      "default-src 'none'",
      "script-src 'self'",
      "connect-src 'self'",
      "frame-ancestors 'none'",
      "form-action 'none'",
    ])
      expect(policy.split('; ')).toContain(rule);
    expect(policy).not.toMatch(/unsafe|\*|http|data:/);
    expect([headers['x-content-type-options'], headers['referrer-policy']]).toEqual(['nosniff', 'no-referrer']);
    expect(text).not.toMatch(/style="|onclick|<style|<script(?! type="module" src="\/page\/assets\/main-\w+\.js")/);
    // Links that a visitor may follow are all that leads elsewhere.
    expect(text.replace(/<a href="https:\/\/[^"]*" rel="noopener noreferrer">/g, '')).not.toMatch(
      /(src|href)="(https?:)?\/\//,
    );
  });

  it('names parts that may be kept for ever, and that are there', async () => {
    const { text } = await get('/');
    const parts = [...text.matchAll(/"(\/page\/[^"]+)"/g)].map(([, path]) => path ?? '');
    expect(parts.map((path) => path.replace(/-\w+\./, '-HASH.'))).toEqual([
      '/page/assets/icon-HASH.svg',
      '/page/assets/style-HASH.css',
      '/page/assets/main-HASH.js',
    ]);
    for (const path of parts) {
      const { status, headers } = await get(path);
      expect([status, headers['cache-control'], headers['x-content-type-options']]).toEqual([
        200,
        'public, max-age=31536000, immutable',
        'nosniff',
      ]);
    }
  });

  it('is sent once: 304 to who has it, gzipped to who can', async () => {
    const whole = await get('/');
    const again = await get('/', { 'if-none-match': whole.headers.etag ?? '' });
    expect([again.status, again.text]).toEqual([304, '']);
    const zipped = await get('/', { 'accept-encoding': 'gzip, br' });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(zipped.body).equals(whole.body)).toBe(true);
  });

  it('answers HEAD, and 404 for a part that is not one', async () => {
    expect((await ask(`${url}/`, { method: 'HEAD' })).status).toBe(200);
    for (const path of [
      '/page/assets/index.html',
      '/page/assets/x.js',
      '/page/assets/..%2f..%2fpackage.json',
      '/page/',
    ])
      expect((await get(path)).json().error.code, path).toBe('not_found');
  });

  it('says what to do where it was not built, and looks again the next time', async () => {
    let tries = 0;
    const page = createPage(() => {
      tries++;
      return Promise.reject(new Problem('page_unavailable', 'not built'));
    });
    const app = new Hono<Env>().get('/', page.document);
    app.onError((error, c) => c.json(asProblem(error).body, asProblem(error).status as 503));
    for (let i = 0; i < 2; i++) expect((await app.request('/')).status).toBe(503);
    expect(tries).toBe(2);
  });
});

describe('beside the API', () => {
  it('leaves the way of a request as short as it was: one regular expression finds every route', async () => {
    const config = loadConfig({
      BACKEND_URL: 'http://127.0.0.1:1/v1',
      SIDECAR_SOCKET: join(service.folder.path, 'none'),
    });
    const { app, close } = buildApp(config, SILENT);
    app.router.match('POST', '/v1/chat/completions');
    expect(app.router.name).toBe('SmartRouter + RegExpRouter');
    await close();
  });
});

describe('GET /page/service', () => {
  it('names the simulated root, and whether a key is needed', async () => {
    const { headers, ...answer } = await get('/page/service');
    const body = answer.json();
    expect(headers['cache-control']).toBe('no-store');
    expect(body).toMatchObject({
      key_required: false,
      sidecar: { status: 'connected', attester: 'simulated', trouble: null },
    });
    expect(body.simulated_root).toMatch(/^-----BEGIN CERTIFICATE-----/);
  });
});

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
