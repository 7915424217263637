// What browsers and caches are told, and which sites' pages may ask.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ask, CHAT, chat } from '../../support/client.ts';
import { startGateway } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const BODY = JSON.stringify(CHAT);

describe('what every answer says to browsers and caches', () => {
  it.each([
    ['GET', '/health', 200],
    ['GET', '/nothing', 404],
    ['POST', '/v1/chat/completions', 200],
    ['GET', '/v1/models', 200],
    ['PUT', '/v1/completions', 405],
    ['POST', '/~sev_gpu@1.0/verify', 400],
  ])('%s %s: nothing is stored, sniffed or run', async (method, path, status) => {
    const got = await ask(service.url + path, { method, ...(method === 'POST' ? { body: BODY } : {}) });
    expect(got.status).toBe(status);
    expect(got.headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'content-security-policy': expect.stringContaining("default-src 'none'"),
    });
    expect(got.headers).not.toHaveProperty(['x-powered-by']);
  });

  it("without keys, only this machine's pages may ask: no other site that its user visits", async () => {
    for (const origin of [
      'https://evil.example',
      'null',
      'http://127.0.0.1.evil.example',
      'http://localhost.evil.example',
    ]) {
      const got = await chat(service.url, CHAT, { origin });
      expect([got.status, got.json().error.code]).toEqual([403, 'origin_not_allowed']);
      expect(got.headers).not.toHaveProperty(['access-control-allow-origin']);
    }
    expect(service.backend.seen).toHaveLength(0);
    for (const origin of ['http://localhost:3000', 'http://127.0.0.1:8080', 'http://[::1]'])
      expect((await chat(service.url, CHAT, { origin })).headers['access-control-allow-origin']).toBe(origin);
  });

  it('without keys, another site asks nothing without an origin either, as for an image; its links and frames show the page', async () => {
    const from = (path: string, site: string, mode: string, url = service.url) =>
      ask(url + path, { method: 'GET', headers: { 'sec-fetch-site': site, 'sec-fetch-mode': mode } });
    for (const site of ['cross-site', 'same-site'])
      for (const [path, mode] of [
        ['/v1/models', 'no-cors'],
        ['/v1/models', 'navigate'],
        ['/%761/models', 'navigate'],
        ['/v1/chat/completions/some/attestation', 'navigate'],
        ['/health', 'no-cors'],
      ] as const) {
        const got = await from(path, site, mode);
        expect([path, got.status, got.json().error.code]).toEqual([path, 403, 'origin_not_allowed']);
      }
    expect(service.backend.seen).toHaveLength(0);
    for (const site of ['cross-site', 'same-site', 'none'])
      expect((await from('/openapi.json', site, 'navigate')).status).toBe(200);
    for (const [site, mode] of [
      ['none', 'navigate'],
      ['same-origin', 'cors'],
    ] as const)
      expect((await from('/v1/models', site, mode)).status).toBe(200);
    const base = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
    const file = join(service.folder.path, 'site-keys');
    writeFileSync(file, 'key-one\n');
    const keyed = await startGateway({ ...base, API_KEYS_FILE: file });
    const open = await startGateway({ ...base, CORS_ORIGINS: '*' });
    expect((await from('/v1/models', 'cross-site', 'no-cors', keyed.url)).status).toBe(401);
    expect((await from('/v1/models', 'cross-site', 'no-cors', open.url)).status).toBe(200);
    await keyed.close();
    await open.close();
  });

  it('without keys, a name that its owner could make to mean this machine is refused, with whatever method', async () => {
    const named = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.sidecar.socket,
      CORS_ORIGINS: 'https://gateway.example:8443',
    });
    service.backend.seen.length = 0;
    for (const [path, method] of [
      ['/v1/models', 'GET'],
      ['/v1/chat/completions', 'POST'],
      ['/v1/chat/completions/some/attestation', 'GET'],
      ['/', 'GET'],
    ] as const)
      for (const host of [
        'evil.example:8080',
        '127.0.0.1.evil.example',
        'localhost.evil.example',
        'host.internal.example',
      ]) {
        const got = await ask(service.url + path, {
          method,
          headers: { host },
          ...(method === 'POST' ? { body: JSON.stringify(CHAT) } : {}),
        });
        expect([host, got.status, got.json().error.code]).toEqual([host, 403, 'origin_not_allowed']);
      }
    expect(service.backend.seen).toHaveLength(0);
    for (const host of ['localhost', '127.0.0.1:1', '[::1]:80', 'gpu-node', 'host.docker.internal:8080', 'a.localhost'])
      expect((await ask(`${service.url}/v1/models`, { method: 'GET', headers: { host } })).status).toBe(200);
    for (const [host, status] of [
      ['gateway.example:8443', 200],
      ['Gateway.Example:8443', 200],
      ['gateway.example', 403],
    ] as const)
      expect((await ask(`${named.url}/v1/models`, { method: 'GET', headers: { host } })).status).toBe(status);
    await named.close();
  });

  it('with keys every page may, which must know one; CORS_ORIGINS names those that may', async () => {
    const file = join(service.folder.path, 'cors-keys');
    writeFileSync(file, 'key-one\n');
    const base = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
    const keyed = await startGateway({ ...base, API_KEYS_FILE: file });
    const named = await startGateway({ ...base, CORS_ORIGINS: 'HTTPS://A.Example:443/, https://b.example' });
    const origin = 'https://a.example';
    const got = await chat(keyed.url, CHAT, { origin, authorization: 'Bearer key-one' });
    expect([got.status, got.headers['access-control-allow-origin'], got.headers.vary]).toEqual([200, origin, 'origin']);
    const refused = await chat(keyed.url, CHAT, { origin });
    expect([refused.status, refused.headers['access-control-allow-origin']]).toEqual([401, origin]);
    expect((await chat(named.url, CHAT, { origin })).status).toBe(200);
    expect((await chat(named.url, CHAT, { origin: 'https://c.example' })).status).toBe(403);
    expect((await chat(named.url, CHAT, { origin: 'http://localhost' })).status).toBe(403);
    // Its own page is one more, where keys say who asks.
    const both = await startGateway({ ...base, API_KEYS_FILE: file, CORS_ORIGINS: 'https://a.example' });
    const own = { host: 'gateway.example', origin: 'https://gateway.example', authorization: 'Bearer key-one' };
    expect((await chat(both.url, CHAT, own)).status).toBe(200);
    expect((await chat(both.url, CHAT, { ...own, origin: 'https://c.example' })).status).toBe(403);
    const rebound = { host: 'evil.example', origin: 'http://evil.example' };
    expect((await chat(named.url, CHAT, rebound)).status).toBe(403);
    await both.close();
    await keyed.close();
    await named.close();
  });
});
