// /admin/keys: keys over HTTP.
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, type Service, startGateway, startService } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { bearer, keyLine } from '../limits/limits-stage.ts';
import { expectDeclared } from '../routes/openapi-document.ts';

let service: Service;
let file: string;
let url: string;
let lines: string[];

beforeEach(async () => {
  service = await startService();
  service.backend.script = chatAnswer('Hello.');
  file = join(service.folder.path, 'keys');
  writeFileSync(file, `# The keys.\n${keyLine('root admin')}\n${keyLine('user rps=1000')}\n`, { mode: 0o600 });
  lines = [];
  url = await gatewayWith({});
});
afterEach(() => service.close());

async function gatewayWith(env: Record<string, string>): Promise<string> {
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  const both = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket, API_KEYS_FILE: file };
  const gateway = await startGateway({ ...both, ...env }, log);
  onTestFinished(() => gateway.close());
  return gateway.url;
}

const manage = (method: string, path = '', body?: unknown, headers: object = bearer('root')) =>
  ask(`${url}/admin/keys${path}`, {
    method,
    headers: { ...headers },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
const names = async () => (await manage('GET')).json().keys.map(({ name }: { name: string }) => name);
const NONE = {
  rps: null,
  concurrent: null,
  streams: null,
  tee: null,
  tokens_per_day: null,
  held_bytes: null,
  models: null,
};

describe('an admin key', () => {
  it('adds a key, which is shown once and works at once, changes its limits, and removes it', async () => {
    const added = await manage('POST', '', { name: 'alice', rps: 2, models: ['scripted', 'b'] });
    expectDeclared('POST /admin/keys', added, 201);
    const { key, ...rest } = added.json();
    expect(rest).toEqual({ ...NONE, name: 'alice', rps: 2, models: ['scripted', 'b'], admin: false, plain: false });
    expect(key).toMatch(/^csk-[\w-]{43}$/);
    const alice = { authorization: `Bearer ${key}` };
    const ask1 = async (body: object = CHAT) => (await chat(url, body, alice)).status;
    expect([await ask1(), await ask1(), await ask1()]).toEqual([200, 200, 429]);
    const digest = createHash('sha256').update(key).digest('hex');
    const kept = `${keyLine('root admin')}\n${keyLine('user rps=1000')}\n`;
    expect(readFileSync(file, 'utf8')).toBe(`# The keys.\n${kept}alice:sha256:${digest} rps=2 models=scripted,b\n`);
    expect(statSync(file).mode & 0o777).toBe(0o600);

    const changed = await manage('PATCH', '/alice', { rps: null, models: ['b'], tokens_per_day: 9_000 });
    expectDeclared('PATCH /admin/keys/{name}', changed);
    const now = { ...NONE, name: 'alice', tokens_per_day: 9_000, models: ['b'], admin: false, plain: false };
    expect(changed.json()).toEqual(now);
    expect([await ask1(), await ask1({ ...CHAT, model: 'b' }), await ask1({ ...CHAT, model: 'b' })]).toEqual([
      404, 200, 200,
    ]);

    const listed = await manage('GET');
    expectDeclared('GET /admin/keys', listed);
    expect(listed.json().keys.at(-1)).toEqual(now);
    for (const secret of [digest, key, createHash('sha256').update('key-root').digest('hex')])
      expect(listed.text + changed.text + lines.join('')).not.toContain(secret);

    expectDeclared('DELETE /admin/keys/{name}', await manage('DELETE', '/alice'));
    expect(await ask1()).toBe(401);
    expect(readFileSync(file, 'utf8')).toBe(`# The keys.\n${kept}`);
    const said = lines.map((line) => JSON.parse(line)).filter(({ msg }) => /^a key was/.test(msg ?? ''));
    expect(said.map(({ key: by, name, msg }) => `${by} ${name} ${msg}`)).toEqual(
      ['added', 'changed', 'removed'].map((what) => `root alice a key was ${what}`),
    );
  });

  it('leaves the line for every key as it is, lists it, and a new key has its limits', async () => {
    writeFileSync(file, `* rps=1\n${keyLine('root admin rps=0')}\n`);
    url = await gatewayWith({});
    expect((await manage('GET')).json().every_key).toMatchObject({ rps: 1, tee: null });
    const { key } = (await manage('POST', '', { name: 'alice' })).json();
    const got = [];
    for (let i = 0; i < 3; i++) got.push((await chat(url, CHAT, { authorization: `Bearer ${key}` })).status);
    expect(got).toContain(429);
    expect((await manage('DELETE', '/alice')).status).toBe(200);
    expect(readFileSync(file, 'utf8')).toBe(`* rps=1\n${keyLine('root admin rps=0')}\n`);
    expectError(await manage('POST', '', { name: 'a', held_bytes: 5 }), 400, 'invalid_request');
  });

  it('changes what other gateways over the file know, within seconds', async () => {
    const other = await gatewayWith({});
    const { key } = (await manage('POST', '', { name: 'alice' })).json();
    const status = async () => (await chat(other, CHAT, { authorization: `Bearer ${key}` })).status;
    await eventually(async () => (await status()) === 200, 10_000);
    await manage('DELETE', '/alice');
    await eventually(async () => (await status()) === 401, 10_000);
  });

  it('cannot remove the last admin key, nor make it an ordinary one, until there is another', async () => {
    for (const refused of [await manage('DELETE', '/root'), await manage('PATCH', '/root', { admin: false })]) {
      expectError(refused, 400, 'invalid_request', 'name');
      expect(refused.json().error.message).toMatch(/no admin key/);
    }
    expect(await names()).toEqual(['root', 'user']);
    expect((await manage('PATCH', '/user', { admin: true })).status).toBe(200);
    expect((await manage('PATCH', '/root', { admin: false })).json().admin).toBe(false);
    expectError(await manage('GET'), 403, 'permission_denied');
    expect((await manage('DELETE', '/root', undefined, bearer('user'))).json()).toEqual({
      name: 'root',
      removed: true,
    });
    expectError(await manage('GET'), 401, 'invalid_api_key');
  });

  it('has its own limits here too', async () => {
    writeFileSync(file, `${keyLine('root admin rps=2')}\n`);
    url = await gatewayWith({});
    expect([await manage('GET'), await manage('GET'), await manage('GET')].map(({ status }) => status)).toEqual([
      200, 200, 429,
    ]);
  });

  it.each([
    ['POST', '', '{', 'invalid_json', null],
    ['POST', '', '[]', 'invalid_request', null],
    ['POST', '', {}, 'invalid_request', 'name'],
    ['POST', '', { name: 'a b' }, 'invalid_request', null],
    ['POST', '', { name: 'user' }, 'invalid_request', 'name'],
    ['POST', '', { name: 'a', hash: 'x' }, 'invalid_request', 'hash'],
    ['POST', '', { name: 'a', rps: 1.5 }, 'invalid_request', 'rps'],
    ['POST', '', { name: 'a', rps: 2_000_000 }, 'invalid_request', null],
    ['POST', '', { name: 'a', models: [] }, 'invalid_request', null],
    ['POST', '', { name: 'a', models: ['b admin'] }, 'invalid_request', 'models'],
    ['PATCH', '/user', { name: 'other' }, 'invalid_request', 'name'],
    ['PATCH', '/user', { admin: null }, 'invalid_request', 'admin'],
  ])('is told of %s %s %j', async (method, path, body, code, param) => {
    const before = readFileSync(file, 'utf8');
    expectError(await manage(method, path, body), 400, code, param);
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect((await manage('POST', '', { name: 'good' })).status).toBe(201);
  });

  it('is told of a name that is not there, and of a plain key, which has no limits', async () => {
    for (const method of ['PATCH', 'DELETE'])
      expectError(await manage(method, '/nobody', method === 'PATCH' ? {} : undefined), 404, 'not_found', 'name');
    writeFileSync(file, `${keyLine('root admin')}\nplain-key\n${keyLine('user')}\n`);
    url = await gatewayWith({});
    expect((await manage('GET')).json().keys[1]).toMatchObject({ name: 'line-2', plain: true });
    expect((await manage('GET')).text).not.toContain('plain-key');
    expectError(await manage('PATCH', '/line-2', { rps: 1 }), 400, 'invalid_request', 'name');
    expect((await manage('DELETE', '/line-2')).status).toBe(200);
    expect(readFileSync(file, 'utf8')).toBe(`${keyLine('root admin')}\n\n${keyLine('user')}\n`);
  });

  it('waits while another command writes the file, and the log says why', async () => {
    writeFileSync(`${file}.new`, '');
    const refused = await manage('POST', '', { name: 'alice' });
    expectError(refused, 503, 'keys_unavailable');
    expect(refused.headers['retry-after']).toBe('1');
    expect(refused.text).not.toContain(service.folder.path);
    expect(lines.join('')).toContain('API_KEYS_FILE is being written');
    expect(await names()).toEqual(['root', 'user']);
    rmSync(`${file}.new`);
    expect((await manage('POST', '', { name: 'alice' })).status).toBe(201);
  });
});

describe('/admin/keys', () => {
  const all = [
    ['GET', ''],
    ['POST', '', '{"name":"evil"}'],
    ['PATCH', '/user', '{"admin":true}'],
    ['DELETE', '/user'],
  ] as const;

  it('is for admin keys, and not for web pages', async () => {
    for (const [method, path, body] of all) {
      expectError(await manage(method, path, body, {}), 401, 'invalid_api_key');
      expectError(await manage(method, path, body, bearer('user')), 403, 'permission_denied');
      // With keys any origin may use the API.
      for (const page of [{ origin: 'https://app.example' }, { 'sec-fetch-site': 'same-origin' }])
        expectError(await manage(method, path, body, { ...bearer('root'), ...page }), 403, 'origin_not_allowed');
    }
    expect(await names()).toEqual(['root', 'user']);
  });

  it('is not there without a keys file', async () => {
    const open = service.gateway.url;
    for (const [method, path, body] of all)
      expectError(
        await ask(`${open}/admin/keys${path}`, { method, ...(body === undefined ? {} : { body }) }),
        404,
        'not_found',
      );
    expect((await chat(open, CHAT)).status).toBe(200);
  });
});
