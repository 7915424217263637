import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { ConfigError, loadConfig } from '../../../gateway/base/config.ts';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, startGateway } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';
import { expectError } from '../expect-error.ts';

const service = useService({ MAX_BODY_BYTES: '4096', BACKEND_TIMEOUT_MS: '400' });

describe('who may ask', () => {
  it('is decided by a key from the file; an attestation is only for the key that asked', async () => {
    const file = join(service.folder.path, 'keys');
    writeFileSync(file, '# team\nkey-one\n\n  key-two \n');
    const locked = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.sidecar.socket,
      API_KEYS_FILE: file,
    });
    for (const headers of [
      {},
      { authorization: 'Bearer nobody' },
      { authorization: 'Basic a2V5LW9uZQ==' },
      { authorization: 'Bearer # team' },
    ]) {
      const got = await chat(locked.url, CHAT, headers);
      expectError(got, 401, 'invalid_api_key');
      expect(got.headers['www-authenticate']).toBe('Bearer');
    }
    expect(service.backend.seen).toHaveLength(0);
    const mine = await chat(locked.url, { ...CHAT, tee: true }, { authorization: 'Bearer key-one' });
    expect(mine.status).toBe(200);
    const url = `${locked.url}/v1/chat/completions/${mine.headers['x-attestation-id']}/attestation`;
    expect((await ask(url, { method: 'GET', headers: { authorization: 'Bearer key-one' } })).status).toBe(200);
    expect((await ask(url, { method: 'GET', headers: { authorization: 'Bearer key-two' } })).status).toBe(404);
    expect((await ask(`${locked.url}/health`, { method: 'GET' })).status).toBe(200);
    await locked.close();
  });

  it("may also be named as Anthropic's clients do, and no key reaches the backend", async () => {
    const file = join(service.folder.path, 'anthropic-keys');
    writeFileSync(file, 'key-number-one\n');
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket, API_KEYS_FILE: file };
    const locked = await startGateway(env);
    const messages = (headers: Record<string, string>) =>
      ask(`${locked.url}/v1/messages`, {
        body: '{"messages":[]}',
        headers: { 'anthropic-version': '2023-06-01', ...headers },
      });
    expect((await messages({ 'x-api-key': 'key-number-one', 'x-note': 'for key-number-one' })).status).toBe(200);
    const { headers } = service.backend.seen.at(-1) ?? {};
    expect(headers).toMatchObject({ 'anthropic-version': '2023-06-01' });
    expect(JSON.stringify(headers)).not.toContain('key-number-one');
    for (const wrong of [{ 'x-api-key': 'nobody' }, { 'x-api-key': 'key-number-one', authorization: 'Bearer nobody' }])
      expectError(await messages(wrong), 401, 'invalid_api_key');
    await locked.close();
  });

  it('is in the log by the name of the key; the key, right or wrong, is nowhere', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
    const file = join(service.folder.path, 'hashed-keys');
    writeFileSync(file, `alice:sha256:${createHash('sha256').update('the-secret').digest('hex')}\n`);
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket, API_KEYS_FILE: file };
    const locked = await startGateway(env, log);
    expect((await chat(locked.url, CHAT, { authorization: 'Bearer the-secret' })).status).toBe(200);
    expectError(await chat(locked.url, CHAT, { authorization: 'Bearer the-guess' }), 401, 'invalid_api_key');
    writeFileSync(file, 'bob:sha256:the-secret');
    await eventually(() => lines.some((line) => line.includes('the keys from before stay')));
    await locked.close();
    const all = lines.join('');
    expect(lines.filter((line) => line.includes('"key":"alice"'))).toHaveLength(1);
    for (const secret of ['the-secret', 'the-guess', createHash('sha256').update('the-secret').digest('hex')])
      expect(all).not.toContain(secret);
    expect(service.backend.seen.at(-1)?.headers.authorization).toBeUndefined();
  });

  it('is everybody only on loopback', () => {
    const env = { BACKEND_URL: 'http://127.0.0.1:1/v1' };
    for (const HOST of ['127.0.0.1', 'localhost', '::1']) expect(loadConfig({ ...env, HOST }).host).toBe(HOST);
    for (const HOST of ['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example.com'])
      expect(() => loadConfig({ ...env, HOST })).toThrow(/API_KEYS_FILE/);
    expect(() => loadConfig({ ...env, HOST: '0.0.0.0', API_KEYS_FILE: '/etc/keys' })).not.toThrow();
  });

  it('is limited in number at once', async () => {
    const small = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.sidecar.socket,
      MAX_CONCURRENT_REQUESTS: '1',
    });
    let release = () => {};
    service.backend.script = (_request, response) => {
      release = () => void response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    };
    const first = chat(small.url, CHAT);
    while (service.backend.seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    const second = await chat(small.url, CHAT);
    expectError(second, 503, 'overloaded');
    expect(second.headers['retry-after']).toBe('1');
    release();
    expect((await first).status).toBe(200);
    service.backend.script = chatAnswer('again');
    expect((await chat(small.url, CHAT)).status).toBe(200);
    await small.close();
  });
});

describe('the configuration', () => {
  it.each([
    [{}, /^BACKEND_URL is required$/],
    [{ BACKEND_URL: 'ftp://x' }, /^BACKEND_URL must be an http/],
    [{ BACKEND_URL: 'http://x/v1', PORT: '70000' }, /^PORT .*65535/],
    [{ BACKEND_URL: 'http://x/v1', RIM_URL: 'nowhere' }, /^RIM_URL must be an http or https URL$/],
    [
      { BACKEND_URL: 'http://x/v1', RIM_URL: 'http://me:secret@mirror' },
      /^RIM_URL must have no user name and no password$/,
    ],
    [
      { BACKEND_URL: 'http://x/v1', OCSP_URL: 'http://me@mirror/?a' },
      /^OCSP_URL must have no user name and no password$/,
    ],
    [{ BACKEND_URL: 'http://x/v1', DRAIN_MS: '1'.repeat(20) }, /^DRAIN_MS must be from 0 to 86400000$/],
    [
      { BACKEND_URL: 'http://x/v1', WORKERS: '2' },
      /^WORKERS is no longer a setting: start a second gateway with the same ATTESTATION_STORE_URL, on the same port \(REUSE_PORT=1\) or behind a balancer$/,
    ],
    [{ BACKEND_URL: 'http://x/v1', REUSE_PORT: '1' }, /^REUSE_PORT needs ATTESTATION_STORE_URL: /],
    [{ BACKEND_URL: 'http://x/v1', PORT: ' ' }, /^PORT must be a whole number in decimal digits$/],
    [{ BACKEND_URL: 'http://x/v1', PORT: '0x1F90' }, /^PORT /],
    [{ BACKEND_URL: 'http://x/v1', METRICS_PORT: '1e4' }, /^METRICS_PORT /],
    [{ BACKEND_URL: 'http://x/v1', MAX_CONCURRENT_REQUESTS: ' ' }, /^MAX_CONCURRENT_REQUESTS /],
    [{ BACKEND_URL: 'http://x/v1', DRAIN_MS: '+8' }, /^DRAIN_MS /],
    [{ BACKEND_URL: 'http://x/v1', MAX_BODY_BYTES: 'lots' }, /^MAX_BODY_BYTES /],
    [{ BACKEND_URL: 'http://x/v1', ALLOW_SIMULATED: 'yes' }, /^ALLOW_SIMULATED /],
    [{ BACKEND_URL: 'http://x/v1', SIDECAR_SOCKET: `/${'x'.repeat(200)}` }, /^SIDECAR_SOCKET /],
  ])('stops the start with one line that names the variable: %j', (env, message) => {
    expect(() => loadConfig(env)).toThrow(ConfigError);
    expect(() => loadConfig(env)).toThrow(message);
    try {
      loadConfig(env);
    } catch (error) {
      expect((error as Error).message).not.toContain('\n');
    }
  });

  it('measures the path of the socket as it will be used: in full', () => {
    const from = (folder: string, env: Record<string, string> = {}) => {
      const cwd = vi.spyOn(process, 'cwd').mockReturnValue(folder);
      try {
        return loadConfig({ BACKEND_URL: 'http://x/v1', ...env }).sidecar_socket;
      } finally {
        cwd.mockRestore();
      }
    };
    const deep = `/${'x'.repeat(95)}`;
    for (const env of [{}, { SIDECAR_SOCKET: 'a/s.sock' }, { SIDECAR_SOCKET: `/${'ü'.repeat(60)}` }] as const)
      expect(() => from(deep, env)).toThrow(/^SIDECAR_SOCKET must be 100 bytes or fewer/);
    expect(from('/a:b')).toBe('/a:b/run/sidecar.sock');
    expect(from(deep, { SIDECAR_SOCKET: `../${'y'.repeat(90)}/../s.sock` })).toBe('/s.sock');
    expect(from('/srv')).toBe('/srv/run/sidecar.sock');
  });

  it.each([
    ['*', ['*']],
    ['https://app.example/', ['https://app.example']],
    [
      'HTTPS://App.Example, http://b.example:80,http://b.example:8080',
      ['https://app.example', 'http://b.example', 'http://b.example:8080'],
    ],
    ['https://m\u00fcller.example,http://[::1]:3000', ['https://xn--mller-kva.example', 'http://[::1]:3000']],
    [
      'chrome-extension://abcdefghijklmnop,tauri://localhost',
      ['chrome-extension://abcdefghijklmnop', 'tauri://localhost'],
    ],
  ])('takes CORS_ORIGINS as a browser writes origins: %s', (CORS_ORIGINS, origins) => {
    expect(loadConfig({ BACKEND_URL: 'http://x/v1', CORS_ORIGINS }).cors_origins).toEqual(origins);
  });

  it.each([
    'app.example',
    'localhost:3000',
    'nonsense nonsense',
    'https://app.example/chat',
    'https://app.example?a',
    'https://me@app.example',
    'https://*.example',
    'https://a.example;https://b.example',
    'https://a.example https://b.example',
    'https://a.example,',
    'file:///',
    'null',
    ' ',
  ])('refuses CORS_ORIGINS that names anything but origins: %j', (CORS_ORIGINS) => {
    const load = () => loadConfig({ BACKEND_URL: 'http://x/v1', CORS_ORIGINS });
    expect(load).toThrow(ConfigError);
    expect(load).toThrow(/^CORS_ORIGINS must be \* or origins such as https:\/\/app\.example, not "/);
  });

  it('counts an empty variable as unset, a number too', () => {
    const { port, max_concurrent_requests, metrics_port } = loadConfig({
      BACKEND_URL: 'http://x/v1',
      PORT: '',
      MAX_CONCURRENT_REQUESTS: '7',
      METRICS_PORT: '',
    });
    expect([port, max_concurrent_requests, metrics_port]).toEqual([8080, 7, null]);
  });

  it.each([
    [{ BACKEND_API_KEY: 'k\u0100' }, /^BACKEND_API_KEY /],
    [{ MAX_HELD_BYTES: '1048576' }, /^MAX_HELD_BYTES must not be less than MAX_BODY_BYTES \(16777216\)$/],
    [{ BACKEND_URL: 'http://user:pass@x/v1' }, /^BACKEND_URL /],
    [{ BACKEND_URL: 'http://x/v1?a=b' }, /^BACKEND_URL /],
  ])('stops the start for what could never work: %j', (env, message) => {
    expect(() => loadConfig({ BACKEND_URL: 'http://x/v1', ...env })).toThrow(message);
  });
});
