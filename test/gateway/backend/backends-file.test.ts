// BACKENDS_FILE: its form and its errors, and what follows a change of it.
import { rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadDemoConfig } from '../../../demo/config.ts';
import { createBackends } from '../../../gateway/backend/backends.ts';
import { ConfigError, loadConfig } from '../../../gateway/base/config.ts';
import { type Backend, chatBody, DONE, delta, finish, role } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type Folder, SILENT, startGateway, temporaryFolder } from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';
import {
  afterwards,
  answeredBy,
  get,
  health,
  modelsAt,
  numberedBackend,
  stageOf,
  turns,
  write,
} from './backends-stage.ts';

const URL_1 = 'http://127.0.0.1:1/v1';
const SECRET = 'sk-secret';

describe('a file that cannot be used', () => {
  let folder: Folder;
  beforeEach(() => {
    folder = temporaryFolder();
  });
  afterEach(() => folder.remove());

  const load = (content: object | string) => {
    const file = join(folder.path, 'backends.json');
    write(file, content);
    return createBackends(file, loadConfig({ BACKENDS_FILE: file }), SILENT);
  };
  const one = (more: object) => ({ backends: [{ url: URL_1, ...more }] });
  const WEIGHT = 'backends[0].weight: must be a whole number from 1 to 1000';
  const NAME = 'backends[0].name: must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, and not only digits';
  const MODELS =
    'backends[0].models: must be 1 to 1000 names of models; without `models` a backend serves every model that no other names';
  const MODEL = 'backends[0].models[1]: must be a name of 1 to 256 characters';
  const LIST = 'backends: must be a list of 1 to 64 backends';
  const BAD_URL = 'must be an http or https URL such as http://127.0.0.1:8000/v1';

  it.each([
    ['no text', '', 'is not JSON'],
    ['no JSON', `{\n  "backends": [${SECRET}]\n}`, 'is not JSON'],
    ['another list', '[]', 'must be a JSON object'],
    ['no list', {}, LIST],
    ['an empty list', { backends: [] }, LIST],
    ['too many', { backends: Array.from({ length: 65 }, (_, i) => ({ url: `${URL_1}/${i}` })) }, LIST],
    ['a member of nobody', { ...one({}), [SECRET.slice(0, 2)]: 1 }, 'has a member that nobody knows: "sk"'],
    [
      'a member of nobody in a backend',
      one({ api_key: SECRET }),
      'backends[0]: has a member that nobody knows: "api_key"',
    ],
    ['no backend', { backends: [7] }, 'backends[0]: must be a JSON object'],
    ['no URL', { backends: [{}] }, `backends[0].url: ${BAD_URL}`],
    ['a URL of another kind', { backends: [{ url: URL_1 }, { url: 'ftp://x' }] }, `backends[1].url: ${BAD_URL}`],
    [
      'a URL with a password',
      { backends: [{ url: `http://u:${SECRET}@x/v1` }] },
      'backends[0].url: must have no query and no user name: a key goes into api_key_file',
    ],
    ['a URL twice', { backends: [{ url: URL_1 }, { url: `${URL_1}/` }] }, 'backends[1].url: is that of backends[0]'],
    [
      'a name twice',
      {
        backends: [
          { url: URL_1, name: 'a' },
          { url: 'http://x', name: 'a' },
        ],
      },
      'backends[1].name: is that of backends[0]',
    ],
    ['a name with spaces', one({ name: 'a b' }), NAME],
    ['a name like a place', one({ name: '1' }), NAME],
    ['a name that is none', one({ name: null }), NAME],
    ['no model', one({ models: [] }), MODELS],
    ['one model as a text', one({ models: 'a' }), MODELS],
    ['too many models', one({ models: Array.from({ length: 1001 }, (_, i) => `m${i}`) }), MODELS],
    ['a model without a name', one({ models: ['a', ''] }), MODEL],
    ['a model with a long name', one({ models: ['a', 'x'.repeat(257)] }), MODEL],
    ['a model that is a number', one({ models: ['a', 7] }), MODEL],
    ['no weight', one({ weight: 0 }), WEIGHT],
    ['a great weight', one({ weight: 1001 }), WEIGHT],
    ['half a weight', one({ weight: 1.5 }), WEIGHT],
    ['a weight in words', one({ weight: '1' }), WEIGHT],
    [
      'a key file that nobody finds',
      one({ api_key_file: 'key' }),
      'backends[0].api_key_file: must be an absolute path',
    ],
    [
      'a key file that is not there',
      one({ api_key_file: '/nowhere/key' }),
      'backends[0].api_key_file: cannot be read: ENOENT',
    ],
    ['a member twice', `{"backends":[{"url":"${URL_1}","weight":1,"weight":2}]}`, 'names a member twice'],
    ['more than 1 MiB', JSON.stringify(one({})).padEnd(1024 * 1024 + 1), 'is larger than 1048576 bytes'],
  ] as const)('stops the start: %s', (_what, content, message) => {
    const text = (error: unknown) => (error as Error).message;
    const thrown = (() => {
      try {
        load(content);
      } catch (error) {
        return error;
      }
    })();
    expect(thrown).toBeInstanceOf(ConfigError);
    expect(text(thrown)).toBe(`BACKENDS_FILE ${message}`);
    expect(text(thrown)).not.toContain(SECRET);
  });

  it.each([
    ['', 'must be printable ASCII without spaces'],
    [`${SECRET} ${SECRET}`, 'must be printable ASCII without spaces'],
    ['x'.repeat(16 * 1024 + 1), 'is larger than 16384 bytes'],
  ])('stops the start where a key file is no use, and never quotes it', (key, message) => {
    const api_key_file = join(folder.path, 'key');
    writeFileSync(api_key_file, key);
    expect(() => load(one({ api_key_file }))).toThrow(`BACKENDS_FILE backends[0].api_key_file: ${message}`);
    expect(() => load(one({ api_key_file }))).not.toThrow(SECRET);
  });

  it('is one that is not there', () => {
    const file = join(folder.path, 'absent');
    expect(() => createBackends(file, loadConfig({ BACKENDS_FILE: file }), SILENT)).toThrow(
      /^BACKENDS_FILE cannot be read: ENOENT$/,
    );
  });

  it('may be at its limits', async () => {
    const models = Array.from({ length: 1000 }, (_, i) => `m${i}`.padEnd(256, 'x'));
    const backends = Array.from({ length: 64 }, (_, i) => ({ url: `${URL_1}/${i}`, weight: 1000, name: `n.${i}` }));
    const full = `\uFEFF${JSON.stringify({ backends: [{ ...backends[0], models }, ...backends.slice(1)] })}`;
    const loaded = load(full);
    expect(loaded.states).toHaveLength(64);
    await loaded.close();
  });
});

describe('the settings', () => {
  it.each([
    [{}, /^BACKEND_URL is required$/],
    [{ BACKEND_URL: URL_1, BACKENDS_FILE: 'f' }, /^BACKEND_URL and BACKENDS_FILE are both set: set one of them$/],
    [
      { BACKENDS_FILE: 'f', BACKEND_API_KEY: 'k' },
      /^BACKEND_API_KEY is for BACKEND_URL: in BACKENDS_FILE each backend has its own api_key_file$/,
    ],
    [{ BACKENDS_FILE: 'f', BACKEND_API_KEY_FILE: 'k' }, /^BACKEND_API_KEY_FILE is for BACKEND_URL: /],
  ])('name one backend or a file of several: %j', (env, message) => {
    expect(() => loadConfig(env)).toThrow(message);
  });

  it('start no demo engine where there is such a file', () => {
    expect(loadDemoConfig({ BACKENDS_FILE: 'f' }).engine).toBe(false);
    expect(loadDemoConfig({ BACKENDS_FILE: '' }).engine).toBe(true);
  });

  it('with BACKEND_URL make neither metrics nor a word in /health of several', async () => {
    const only = await numberedBackend(0);
    const gateway = await startGateway({ BACKEND_URL: only.url, SIDECAR_SOCKET: '/nowhere/s.sock' });
    afterwards(() => gateway.close());
    expect((await get(`${gateway.url}/metrics`)).text).not.toMatch(/countersign_backend_(up|failovers)/);
    expect((await health(gateway.url)).backend).toEqual({ status: 'ok', canary: { state: 'off' } });
  });
});

const reread = (lines: readonly Record<string, unknown>[]) =>
  lines.filter(({ msg }) => msg === 'BACKENDS_FILE was read again').length;

describe('a file that changes', () => {
  it('counts without a restart: backends that come, go, and change their models and weights', async () => {
    const { url, file, backends, lines } = await stageOf(2);
    expect(await turns(url, 2)).toEqual([0, 1]);
    const third = await numberedBackend(2);
    write(file, {
      backends: [
        { url: backends[1]?.url, weight: 2 },
        { url: third.url, name: 'third' },
      ],
    });
    await eventually(() => reread(lines) === 1);
    expect((await turns(url, 6)).toSorted()).toEqual([1, 1, 1, 1, 2, 2]);
    expect((await health(url)).backend.backends.map(({ name }: { name: string }) => name)).toEqual(['0', 'third']);
    expect(await modelsAt(url)).toEqual(['m1', 'm2']);
    const { text } = await get(`${url}/metrics`);
    expect(parseSamples(text).values('countersign_backend_up', 'backend')).toEqual(new Set(['0', 'third']));
    write(file, { backends: [{ url: third.url, models: ['only'] }] });
    await eventually(() => reread(lines) === 2);
    expectError(await chat(url, CHAT), 404, 'model_not_found');
    expect(await turns(url, 2, { ...CHAT, model: 'only' })).toEqual([2, 2]);
  });

  it('changes nothing while it is broken, and the log and /health say why', async () => {
    const { url, file, backends, lines } = await stageOf(2);
    write(file, { backends: [{ url: backends[0]?.url, weight: 0 }] });
    const wrong = 'backends[0].weight: must be a whole number from 1 to 1000';
    await eventually(async () => (await health(url)).backend.file_error === wrong);
    expect((await health(url)).backend.status).toBe('ok');
    expect((await turns(url, 4)).toSorted()).toEqual([0, 0, 1, 1]);
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    const said = lines.filter(({ msg }) => msg === `BACKENDS_FILE ${wrong}: the backends from before stay`);
    expect(said).toMatchObject([{ level: 50 }]);
    rmSync(file);
    await eventually(async () => (await health(url)).backend.file_error === 'cannot be read: ENOENT');
    expect((await turns(url, 2)).toSorted()).toEqual([0, 1]);
    write(file, { backends: [{ url: backends[1]?.url }] });
    await eventually(() => reread(lines) === 1);
    expect(await turns(url, 2)).toEqual([1, 1]);
    expect((await health(url)).backend).not.toHaveProperty('file_error');
  });

  it('may have keys that change: each goes to its own backend, none to a log', async () => {
    const { url, folder, backends, lines } = await stageOf(2, (all, { path }) => {
      writeFileSync(join(path, 'key'), `${SECRET}-one\n`);
      return [{ url: all[0]?.url, api_key_file: join(path, 'key') }, { url: all[1]?.url }];
    });
    const keys = () => backends.map(({ seen }) => seen.at(-1)?.headers.authorization);
    await turns(url, 2, CHAT);
    expect(keys()).toEqual([`Bearer ${SECRET}-one`, undefined]);
    writeFileSync(join(folder.path, 'key'), '');
    await eventually(async () =>
      (await health(url)).backend.file_error?.startsWith('backends[0].api_key_file: must be'),
    );
    await turns(url, 2, CHAT);
    expect(keys()).toEqual([`Bearer ${SECRET}-one`, undefined]);
    writeFileSync(join(folder.path, 'key'), `${SECRET}-two\n`);
    await eventually(() => reread(lines) === 1);
    await turns(url, 2, CHAT);
    expect(keys()).toEqual([`Bearer ${SECRET}-two`, undefined]);
    expect(JSON.stringify(lines)).not.toContain(SECRET);
    expect((await get(`${url}/metrics`)).text + (await get(`${url}/health`)).text).not.toContain(SECRET);
  });

  it('lets what runs end on the backend that is gone, and closes what lies idle there', async () => {
    const old = await countingBackend();
    const { url, file, backends, lines } = await stageOf(1, () => [{ url: old.url }]);
    await chat(url, CHAT);
    const running = chat(url, { ...CHAT, stream: true });
    await eventually(() => old.streams.length === 1);
    await eventually(() => old.open() >= 2);
    write(file, { backends: [{ url: backends[0]?.url }] });
    await eventually(() => reread(lines) === 1);
    // The one that carries the stream. The others would be closed after 4 s anyhow.
    await eventually(() => old.open() === 1, 1_500);
    expect(await turns(url, 2)).toEqual([0, 0]);
    old.streams[0]?.();
    const got = await running;
    expect([got.complete, got.payloads().at(-1)]).toEqual([true, '[DONE]']);
    await eventually(() => old.open() === 0, 1_500);
  });
});

/** A backend that counts its connections, and ends a stream when it is told to. */
async function countingBackend() {
  const sockets = new Set<Socket>();
  const streams: (() => void)[] = [];
  const server: Server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      if (!body.includes('"stream":true'))
        return void response.writeHead(200, { 'content-type': 'application/json' }).end(chatBody('old'));
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(role() + delta('old'));
      streams.push(() => void response.end(finish() + DONE));
    });
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterwards(() => void server.closeAllConnections());
  afterwards(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, streams, open: () => sockets.size };
}

// Several processes each: seconds on a busy machine.
describe('the gateway as a process', { timeout: 90_000 }, () => {
  it('does not start with a wrong file, with one line that names the place', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const file = join(folder.path, 'backends.json');
    write(file, { backends: [{ url: URL_1, weight: 'heavy' }] });
    const wrong = /gateway: BACKENDS_FILE backends\[0\]\.weight: must be a whole number from 1 to 1000/;
    await expect(startGatewayProcess({ BACKENDS_FILE: file })).rejects.toThrow(wrong);
  });

  it('says in its metrics which backends are up, and reads a changed file again', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const file = join(folder.path, 'backends.json');
    const backends: Backend[] = [await numberedBackend(0), await numberedBackend(1)];
    write(file, { backends: backends.map(({ url }) => ({ url })) });
    const gateway = await startGatewayProcess({
      BACKENDS_FILE: file,
      METRICS_PORT: '0',
      SIDECAR_SOCKET: '/nowhere',
    });
    afterwards(() => gateway.stop('SIGTERM'));
    const port = () =>
      (gateway.lines().find(({ msg }) => msg === 'metrics')?.address as { port: number } | undefined)?.port;
    await eventually(() => port() !== undefined);
    const up = async () => {
      const samples = parseSamples((await get(`http://127.0.0.1:${port()}/metrics`)).text);
      return ['0', '1'].map((backend) => samples.value('countersign_backend_up', { backend }));
    };
    expect(new Set(await turns(gateway.url, 8))).toEqual(new Set([0, 1]));
    expect(await up()).toEqual([1, 1]);
    await backends[0]?.stop();
    for (let i = 0; i < 8; i++) expect(answeredBy(await chat(gateway.url, CHAT))).toBe(1);
    await eventually(async () => (await up()).join() === '0,1');
    write(file, { backends: [{ url: backends[1]?.url, models: ['scripted'] }] });
    const read = () => gateway.lines().filter(({ msg }) => msg === 'BACKENDS_FILE was read again').length;
    await eventually(() => read() === 1);
    expectError(await chat(gateway.url, { ...CHAT, model: 'other' }), 404, 'model_not_found');
  }, 90_000);
});
