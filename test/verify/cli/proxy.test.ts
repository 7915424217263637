// `countersign proxy` as a process before a gateway that takes sealed requests alone: who may use it, what it prints, and what clients get.
import { execFile } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Anthropic from '@anthropic-ai/sdk';
import { ChatOpenAI } from '@langchain/openai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { MEANING } from '../../../verify/clients/sealed.ts';
import { answer, chatAnswer, chatStream, DONE, delta, finish, role, stream } from '../../support/backend.ts';
import { ask } from '../../support/client.ts';
import {
  eventually,
  type Folder,
  freePort,
  type Service,
  startService,
  temporaryFolder,
} from '../../support/harness.ts';
import { messageBody, named, responseBody, responseEvents } from '../../support/named-streams.ts';
import { type RunningProcess, startProcess } from '../../support/process.ts';
import { expectRefused } from '../../support/refusals.ts';

let folder: Folder;
let service: Service;
let proxy: Proxy;
const running: RunningProcess[] = [];
const file = (name: string, text: string) => {
  const path = join(folder.path, name);
  writeFileSync(path, text);
  return path;
};

interface Proxy {
  readonly process: RunningProcess;
  /** `http://127.0.0.1:PORT/v1` */
  readonly baseURL: string;
  readonly apiKey: string;
}

function start(...args: string[]): RunningProcess {
  const started = startProcess('bin/countersign.js', ['proxy', ...args]);
  running.push(started);
  return started;
}

/** What it prints and its exit status, where it does not serve. */
async function ended(...args: string[]): Promise<{ status: number | null; output: string }> {
  const process = start(...args);
  const { code } = await process.exited;
  return { status: code, output: process.output() };
}

const root = () => join(service.folder.path, 'roots.pem');
const common = () => ['--gateway', service.gateway.url, '--port', '0', '--allow-simulated', root(), '--offline'];

async function serving(...args: string[]): Promise<Proxy> {
  const process = start(...common(), ...args);
  await eventually(() => process.output().includes('API key') || process.child.exitCode !== null);
  const found = /^base URL {2}(\S+)\nAPI key {3}(\S+)$/m.exec(process.output());
  if (found === null) throw new Error(process.output());
  return { process, baseURL: found[1] ?? '', apiKey: found[2] ?? '' };
}

beforeAll(async () => {
  folder = temporaryFolder();
  const keys = file('keys', 'sk-inner\nsk-edge\n');
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  service = await startService({ SEALED: 'required', API_KEYS_FILE: keys }, { cpu: { collector, required: true } });
  await eventually(async () => {
    const headers = { authorization: 'Bearer sk-edge' };
    const session = await fetch(`${service.gateway.url}/v1/attestation/session`, { headers });
    return (await session.text()).includes('\\"hpke\\":\\"');
  });
  writeFileSync(root(), (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? ''));
  proxy = await serving(...KEYS(), '--min-level', 'none', '--allow-origin', 'http://localhost:3000');
});
beforeEach(() => {
  service.backend.script = chatAnswer('Hello.');
  service.backend.seen.length = 0;
});
afterAll(async () => {
  await Promise.all(running.map((one) => one.kill('SIGKILL')));
  await service.close();
  folder.remove();
});

const KEYS = () => ['--api-key-file', file('inner', 'sk-inner\n'), '--edge-key-file', file('edge', 'sk-edge\n')];
const CHAT = { model: 'm', messages: [{ role: 'user' as const, content: 'canary-prompt' }] };
const post = (
  headers: Record<string, string> = {},
  path = '/chat/completions',
  body: string | Buffer = JSON.stringify(CHAT),
) => ask(`${proxy.baseURL}${path}`, { headers: { authorization: `Bearer ${proxy.apiKey}`, ...headers }, body });
/** The proxy serves a new connection. */
const served = async () => {
  service.backend.script = chatAnswer('Hello.');
  expect((await post()).status).toBe(200);
};
const codeOf = ({ status, json }: Awaited<ReturnType<typeof ask>>) => [status, json().error.code];

describe('clients of the proxy', () => {
  it('openai has its answers, whole and streamed, and a list of models', async () => {
    const openai = new OpenAI({ baseURL: proxy.baseURL, apiKey: proxy.apiKey });
    const whole = await openai.chat.completions.create(CHAT);
    expect([whole.choices[0]?.message.content, 'attestation' in whole]).toEqual(['Hello.', true]);
    service.backend.script = chatStream(['Hel', 'lo.']);
    let text = '';
    for await (const chunk of await openai.chat.completions.create({ ...CHAT, stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe('Hello.');
    for await (const model of openai.models.list()) expect(model.id).toBe('scripted');
    service.backend.script = answer(JSON.stringify(responseBody('Hello.')));
    expect((await openai.responses.create({ model: 'm', input: 'Hi' })).output_text).toBe('Hello.');
    // The backend never learns of the proxy's own key.
    for (const { headers } of service.backend.seen) expect(JSON.stringify(headers)).not.toContain(proxy.apiKey);
  });

  it('LangChain and Anthropic have theirs', async () => {
    const model = new ChatOpenAI({ model: 'm', apiKey: proxy.apiKey, configuration: { baseURL: proxy.baseURL } });
    expect((await model.invoke('Hi')).text).toBe('Hello.');
    service.backend.script = chatStream(['Hel', 'lo.']);
    let text = '';
    for await (const chunk of await model.stream('Hi')) text += chunk.text;
    expect(text).toBe('Hello.');
    service.backend.script = answer(JSON.stringify(messageBody([{ type: 'text', text: 'Hello.' }])));
    const anthropic = new Anthropic({ baseURL: proxy.baseURL.replace('/v1', ''), apiKey: proxy.apiKey });
    const { content } = await anthropic.messages.create({ model: 'm', max_tokens: 5, messages: CHAT.messages });
    expect(content[0]).toMatchObject({ type: 'text', text: 'Hello.' });
  });

  it('curl has its stream as it comes', async () => {
    service.backend.script = chatStream(['Hel', 'lo.'], 20);
    const args = ['-sSN', `${proxy.baseURL}/chat/completions`, '-H', `Authorization: Bearer ${proxy.apiKey}`];
    const json = ['-H', 'content-type: application/json', '-d', JSON.stringify({ ...CHAT, stream: true })];
    const { stdout } = await promisify(execFile)('curl', [...args, ...json]);
    expect(stdout).toMatch(/"Hel".*"lo\.".*"attestation".*data: \[DONE\]\n\n$/s);
  });

  it('have what the backend has written at once, and their leaving ends its request', async () => {
    const gate = Promise.withResolvers<void>();
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('first'));
      await gate.promise;
      response.end(delta('last') + finish() + DONE);
    };
    const got = await ask(`${proxy.baseURL}/chat/completions`, {
      headers: { authorization: `Bearer ${proxy.apiKey}` },
      body: JSON.stringify({ ...CHAT, stream: true }),
      onData: (chunk) => {
        if (chunk.includes('first')) gate.resolve();
      },
    });
    expect(got.text).toMatch(/first.*last.*\[DONE\]/s);
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('first'));
    };
    await ask(`${proxy.baseURL}/chat/completions`, {
      headers: { authorization: `Bearer ${proxy.apiKey}` },
      body: JSON.stringify({ ...CHAT, stream: true }),
      onData: (chunk) => !chunk.includes('first'),
    });
    await eventually(() => service.backend.seen.at(-1)?.aborted_ms !== null);
  });

  it('have an error where the stream breaks off, in the form of its endpoint, and no clean end', async () => {
    service.backend.script = stream([role() + delta('first'), null]);
    const chat = await post({}, '/chat/completions', JSON.stringify({ ...CHAT, stream: true }));
    expect(chat.text).toContain('first');
    expect(chat.text).toMatch(/data: \{"error":.*\}\n\n$/);
    const [first = ''] = responseEvents(['Hel', 'lo']).map(named);
    service.backend.script = stream([first, null]);
    const responses = await post({}, '/responses', JSON.stringify({ model: 'm', input: 'Hi', stream: true }));
    expect(responses.text).toMatch(/event: error\ndata: \{"type":"error",.*\}\n\n$/);
    const openai = new OpenAI({ baseURL: proxy.baseURL, apiKey: proxy.apiKey });
    service.backend.script = stream([role() + delta('first'), null]);
    const breaksOff = async () => {
      for await (const _ of await openai.chat.completions.create({ ...CHAT, stream: true }));
    };
    await expectRefused(breaksOff, /attestation_missing/, served);
  });

  it('have the errors of the gateway, and of requests that nothing proves', async () => {
    expect(codeOf(await post({}, '/chat/completions', '{'))).toEqual([400, 'request_not_provable']);
    expect(codeOf(await post({}, '/chat/completions', '{"model":"m"}'))).toEqual([400, 'invalid_request']);
    service.backend.script = answer('{"error":{"message":"Slow down.","code":"slow"}}', 429, { 'retry-after': '3' });
    const limited = await post();
    expect([limited.status, limited.headers['retry-after']]).toEqual([429, '3']);
    const audio = await post({ 'content-type': 'multipart/form-data; boundary=x' }, '/audio/transcriptions', '--x--');
    expect(codeOf(audio)).toEqual([400, 'endpoint_not_proven']);
    await eventually(() => proxy.process.output().includes('countersign: refused: endpoint_not_proven: '));
    expect(proxy.process.output()).not.toContain('canary-prompt');
  });
});

describe('the proxy', () => {
  it('is for anybody who has its key', async () => {
    for (const authorization of ['', 'Bearer', 'Bearer sk-inner', `Bearer ${proxy.apiKey}x`, `Basic ${proxy.apiKey}`])
      expect(codeOf(await post({ authorization }))).toEqual([401, 'invalid_api_key']);
    expect((await post({ authorization: '', 'x-api-key': proxy.apiKey })).status).toBe(200);
    expect((await post({ authorization: `bearer ${proxy.apiKey}` })).status).toBe(200);
    expect(service.backend.seen).toHaveLength(2);
  });

  it('is for its own names alone: nobody gets there by a name that points here', async () => {
    const { port } = new URL(proxy.baseURL);
    for (const host of ['evil.example', `evil.example:${port}`, '127.0.0.1', `127.0.0.2:${port}`, `localhost.:${port}`])
      expect(codeOf(await post({ host }))).toEqual([403, 'host_not_allowed']);
    for (const host of [`localhost:${port}`, `LOCALHOST:${port}`]) expect((await post({ host })).status).toBe(200);
  });

  it('listens on this machine alone', async () => {
    const { port } = new URL(proxy.baseURL);
    await expectRefused(() => fetch(`http://127.0.0.2:${port}/v1/models`), /ECONNREFUSED/, served);
  });

  it('is not for web pages but those that are named, whatever they send', async () => {
    for (const origin of ['https://evil.example', 'http://localhost:3001', 'null', 'http://localhost'])
      expect(codeOf(await post({ origin }))).toEqual([403, 'origin_not_allowed']);
    expect(service.backend.seen).toHaveLength(0);
    const allowed = await post({ origin: 'http://localhost:3000' });
    expect([allowed.status, allowed.headers['access-control-allow-origin']]).toEqual([200, 'http://localhost:3000']);
    const wanted = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization' };
    const preflight = (origin: string) =>
      ask(`${proxy.baseURL}/chat/completions`, { method: 'OPTIONS', headers: { origin, ...wanted } });
    const yes = await preflight('http://localhost:3000');
    expect([yes.status, yes.headers['access-control-allow-headers']]).toEqual([204, 'authorization']);
    expect(codeOf(await preflight('https://evil.example'))).toEqual([403, 'origin_not_allowed']);
  });

  it('serves what is under /v1 and no more', async () => {
    const base = proxy.baseURL.replace('/v1', '');
    const headers = { authorization: `Bearer ${proxy.apiKey}` };
    for (const path of ['/', '/metrics', '/v1', '/v2/models'])
      expect(codeOf(await ask(`${base}${path}`, { method: 'GET', headers }))).toEqual([404, 'not_found']);
  });

  it('takes bodies up to its limit', async () => {
    const body = (length: number) => JSON.stringify({ ...CHAT, user: 'x'.repeat(length) });
    expect((await post({}, '/chat/completions', body(4 * 1024 * 1024))).status).toBe(200);
    const large = await post({}, '/chat/completions', Buffer.alloc(32 * 1024 * 1024 + 1, 'x'));
    expect(codeOf(large)).toEqual([413, 'body_too_large']);
  });

  it('says what it seals to, and what that means', () => {
    const output = proxy.process.output();
    expect(output).toContain(`sealing to ${service.gateway.url}\nlevel     none\n          ${MEANING.none}\n`);
    expect(output).toMatch(/^open {6}\S/m);
    expect(output).not.toContain('sk-inner');
    expect(output).not.toContain('sk-edge');
  });

  it('needs no key outside of the seal, and says where the one inside is missing', async () => {
    const own = ['--api-key-file', file('inner', 'sk-inner\n'), '--min-level', 'none'];
    expect(String(await serving(...own).catch((error: Error) => error))).toContain('(status 401)');
    const inner = await serving(...own, '--without-challenge');
    const openai = new OpenAI({ baseURL: inner.baseURL, apiKey: inner.apiKey });
    expect((await openai.chat.completions.create(CHAT)).choices[0]?.message.content).toBe('Hello.');
    const none = await serving('--min-level', 'none', '--without-challenge');
    expect(none.process.output()).toContain('countersign: the gateway answers 401 to GET /v1/models');
  });

  it('ends with status 0 when it is told to', async () => {
    const own = await serving(...KEYS(), '--min-level', 'none');
    expect(await own.process.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });

  it('makes a key in a file that does not exist, for its owner alone, and takes one that does', async () => {
    const path = join(folder.path, 'token');
    const args = [...KEYS(), '--min-level', 'none', '--token-file', path];
    const own = await serving(...args).catch((error: Error) => error);
    expect(String(own)).toContain(`API key   that of ${path}`);
    const token = readFileSync(path, 'utf8');
    expect(token).toMatch(/^cs-[\w-]{43}\n$/);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const again = String(await serving(...args).catch((error: Error) => error));
    const baseURL = /^base URL {2}(\S+)$/m.exec(again)?.[1] ?? '';
    const openai = new OpenAI({ baseURL, apiKey: token.trim() });
    expect((await openai.chat.completions.create(CHAT)).choices[0]?.message.content).toBe('Hello.');
    expect(await ended(...common(), '--token-file', file('short', 'secret'))).toMatchObject({
      status: 2,
      output: expect.stringContaining('not a key of at least 16 characters'),
    });
  });
});

describe('the proxy does not serve', () => {
  it('where the level is lower than what is asked for, which is measured; it says what less means', async () => {
    const { status, output } = await ended(...common(), ...KEYS());
    expect([status, output]).toEqual([1, expect.stringContaining('countersign: level_too_low: ')]);
    expect(output).toContain(MEANING.none);
    expect(output).toContain('--reference FILE');
    expect(output).not.toContain('base URL');
    expect(service.backend.seen).toHaveLength(0);
  });

  it('where the session does not verify', async () => {
    const args = ['--gateway', service.gateway.url, '--port', '0', '--offline', '--min-level', 'none', ...KEYS()];
    const { status, output } = await ended(...args);
    expect([status, output]).toEqual([1, expect.stringContaining('simulated_root_refused')]);
    expect(output).toContain('--allow-simulated');
  });

  it.each([
    [['--port', '0'], 'proxy needs --gateway URL'],
    [['--gateway', 'nothing'], 'not an http(s) URL'],
    [['--gateway', 'http://a', '--port', '70000'], 'not a port'],
    [['--gateway', 'http://a', '--min-level', 'high'], 'not one of none, gpu, gpu+cpu, measured'],
    [['--gateway', 'http://a', '--allow-origin', 'localhost'], 'not an origin'],
    [['--gateway', 'http://a', '--unproven-path', 'audio'], 'not a path under /v1/'],
    [['--gateway', 'http://a', '--api-key-file', '/nonexistent'], 'no such file'],
    [['--gateway', 'http://a', '--plain', '--padding'], '--plain seals nothing'],
    [['--gateway', 'http://a', 'file'], 'takes no FILE'],
    [['--gateway', 'http://a', '--quiet'], '--quiet'],
  ])('for %j', async (args, words) => {
    expect(await ended(...args)).toEqual({ status: 2, output: expect.stringContaining(words) });
  });

  it('where the gateway cannot be reached, or the port is in use', async () => {
    const port = await freePort();
    expect(await ended('--gateway', `http://127.0.0.1:${port}`)).toMatchObject({
      status: 2,
      output: expect.stringContaining('cannot be reached'),
    });
    const taken = new URL(proxy.baseURL).port;
    const args = ['--gateway', service.gateway.url, '--allow-simulated', root(), '--offline', '--min-level', 'none'];
    expect(await ended(...args, ...KEYS(), '--port', taken)).toMatchObject({
      status: 2,
      output: expect.stringContaining('in use'),
    });
  });
});

describe('with --plain', () => {
  it('seals nothing and says so, and hands over what is proven alone', async () => {
    const plain = await startService();
    try {
      const trusted = file('plain-root.pem', plain.sidecar.attester.simulated?.root ?? '');
      const process = start(
        '--gateway',
        plain.gateway.url,
        '--port',
        '0',
        '--plain',
        '--allow-simulated',
        trusted,
        '--offline',
      );
      await eventually(() => process.output().includes('API key'));
      expect(process.output()).toContain('not sealed: whatever stands before');
      const [, baseURL = '', apiKey = ''] = /^base URL {2}(\S+)\nAPI key {3}(\S+)$/m.exec(process.output()) ?? [];
      const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
      expect((await openai.chat.completions.create(CHAT)).choices[0]?.message.content).toBe('Hello.');
      await plain.sidecar.close();
      await expect(openai.chat.completions.create(CHAT)).rejects.toMatchObject({ status: 503 });
    } finally {
      await plain.close().catch(() => {});
    }
  });
});
