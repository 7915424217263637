// GET /.well-known/countersign/release: what stands beside the file of API keys, and nothing that cannot be one.
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Hono } from 'hono';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { release } from '../../../gateway/routes/release.ts';
import { ask } from '../../support/client.ts';
import { type Folder, type RunningGateway, SILENT, startGateway, temporaryFolder } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';

let folder: Folder;
let gateway: RunningGateway;
let open: RunningGateway;
const base = { BACKEND_URL: 'http://127.0.0.1:1/v1' };

beforeAll(async () => {
  folder = temporaryFolder();
  const keys = join(folder.path, 'api-keys');
  writeFileSync(keys, 'key-one\n');
  const SIDECAR_SOCKET = join(folder.path, 'none');
  gateway = await startGateway({ ...base, SIDECAR_SOCKET, API_KEYS_FILE: keys });
  open = await startGateway({ ...base, SIDECAR_SOCKET });
});
afterAll(async () => {
  await gateway.close();
  await open.close();
  folder.remove();
});

const PATH = '/.well-known/countersign/release';
const get = (headers = {}) => ask(gateway.url + PATH, { method: 'GET', headers });
const put = (text: string) => writeFileSync(join(folder.path, 'release.json'), text);
const RELEASE = { bundle: { mediaType: 'x' }, status: null };

it('is there for anybody once the operator puts it there, and is sent once', async () => {
  expectError(await get(), 404, 'not_found');
  put(JSON.stringify(RELEASE));
  const got = await get();
  expect([got.status, got.headers['content-type'], got.json()]).toEqual([200, 'application/json', RELEASE]);
  const again = await get({ 'if-none-match': got.headers.etag });
  expect([again.status, again.text]).toEqual([304, '']);
});

it('is the newest: a changed file is served at once, without a restart', async () => {
  put(JSON.stringify({ ...RELEASE, status: { mediaType: 'newer' } }));
  expect((await get()).json().status).toEqual({ mediaType: 'newer' });
});

it.each([
  ['half a file', '{"bundle":{'],
  ['no bundle', '{"status":{}}'],
  ['more than a release has', ' '.repeat(1_100_000)],
])('is what it was where the file is %s, and the next good one', async (_, text) => {
  const before = (await get()).json();
  put(text);
  const got = await get();
  expect([got.status, got.json()]).toEqual([200, before]);
  put(JSON.stringify({ ...RELEASE, status: { mediaType: text.slice(0, 9) } }));
  expect((await get()).json().status).toEqual({ mediaType: text.slice(0, 9) });
});

it('is gone with its file, takes no other method, and is not there without a keys file', async () => {
  rmSync(join(folder.path, 'release.json'));
  expectError(await get(), 404, 'not_found');
  expectError(await ask(gateway.url + PATH, { method: 'POST', body: '{}' }), 405, 'method_not_allowed');
  expectError(await ask(open.url + PATH, { method: 'GET' }), 404, 'not_found');
});

it('is what came with the sealed secrets of a measured guest', async () => {
  const received = { api_keys: null, tls: null, backend_api_key: null, release: JSON.stringify(RELEASE) };
  const app = new Hono().get(PATH, release({ config: { api_keys_file: null, received }, log: SILENT }));
  expect(await (await app.request(PATH)).json()).toEqual(RELEASE);
});
