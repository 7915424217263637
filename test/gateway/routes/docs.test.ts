// GET /docs and /openapi.json as the gateway serves them: headers, caching, sizes.
import { createHash } from 'node:crypto';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../../support/client.ts';
import { type Service, startService } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';

/** gzipped, of each: what a visitor loads. */
const MAX_GZIPPED_BYTES = 64 * 1024;

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

const get = (path: string, headers = {}) => ask(service.gateway.url + path, { method: 'GET', headers });

describe.each([
  ['/docs', 'text/html; charset=utf-8'],
  ['/openapi.json', 'application/json'],
])('%s', (path, type) => {
  it('is sent once: 304 to who has it, gzipped to who can', async () => {
    const whole = await get(path);
    expect([whole.status, whole.headers['content-type'], whole.headers['cache-control'], whole.headers.vary]).toEqual([
      200,
      type,
      'no-cache',
      'origin, accept-encoding',
    ]);
    const again = await get(path, { 'if-none-match': whole.headers.etag ?? '' });
    expect([again.status, again.text]).toEqual([304, '']);
    expect((await get(path, { 'if-none-match': '"another"' })).status).toBe(200);
    const zipped = await get(path, { 'accept-encoding': 'gzip, br' });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(zipped.body).equals(whole.body)).toBe(true);
    console.log(`${path}: ${whole.body.length} bytes, ${zipped.body.length} gzipped`);
    expect(zipped.body.length).toBeLessThan(MAX_GZIPPED_BYTES);
    expect(gzipSync(whole.body, { level: 9 }).length).toBe(zipped.body.length);
  });

  it('answers HEAD, and no other method', async () => {
    expect((await ask(service.gateway.url + path, { method: 'HEAD' })).status).toBe(200);
    const got = await ask(service.gateway.url + path, { body: '{}' });
    expectError(got, 405, 'method_not_allowed');
    expect(got.headers.allow).toBe('GET');
  });

  it('is for nobody from a foreign web page without API keys', async () => {
    expectError(await get(path, { origin: 'https://example.com' }), 403, 'origin_not_allowed');
  });
});

describe('/docs', () => {
  it('runs no script and loads nothing: its policy allows its own style alone', async () => {
    const { headers, text } = await get('/docs');
    const style = /<style>([\s\S]*?)<\/style>/.exec(text)?.[1] ?? '';
    expect(style.length).toBeGreaterThan(1_000);
    expect(String(headers['content-security-policy']).split('; ')).toEqual([
      "default-src 'none'",
      `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ]);
    expect([headers['x-content-type-options'], headers['referrer-policy']]).toEqual(['nosniff', 'no-referrer']);
    expect(text).not.toMatch(/<script|<iframe|<img|<form| style=| on\w+=|@import|url\(/);
    expect(text).not.toMatch(/(src|href)="(https?:)?\/\//);
  });

  it('shows what the document says as text, never as markup', async () => {
    const { text } = await get('/docs');
    expect(text).toContain('&lt;!doctype html&gt;&lt;html lang=&quot;en&quot;&gt;');
    expect(text.match(/<html/g)).toHaveLength(1);
  });

  it('is what the document names as its page', async () => {
    const { externalDocs } = (await get('/openapi.json')).json();
    expect((await get(externalDocs.url)).status).toBe(200);
  });

  it('has a label of its own in the metrics', async () => {
    await get('/docs');
    expect((await get('/metrics')).text).toMatch(/http_route="\/docs",http_response_status_code="200"/);
  });
});
