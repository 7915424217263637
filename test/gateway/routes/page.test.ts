// The page as the gateway serves it: headers, caching, and what it is made of.
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Hono } from 'hono';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildApp } from '../../../gateway/app.ts';
import { loadConfig } from '../../../gateway/base/config.ts';
import { asProblem, Problem } from '../../../gateway/base/problem.ts';
import type { Env } from '../../../gateway/http/context.ts';
import { createPage } from '../../../gateway/routes/page.ts';
import { ask } from '../../support/client.ts';
import { type Service, SILENT, startService } from '../../support/harness.ts';

let service: Service;
let url: string;

beforeAll(async () => {
  service = await startService();
  url = service.gateway.url;
});
afterAll(() => service.close());

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
