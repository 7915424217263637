import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  answer,
  type Backend,
  chatAnswer,
  DONE,
  delta,
  event,
  finish,
  role,
  startBackend,
  stream,
} from '../support/backend.ts';
import { type Answer, type Ask, ask } from '../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Folder, temporaryFolder } from '../support/harness.ts';
import { namedStream, responseEvents } from '../support/named-streams.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';
import { type Canary, found, newCanary } from './canary.ts';
import { coreLimit, filePlaces, type Place, processPlaces } from './places.ts';

const PROMPT = newCanary('prompt');
const COMPLETION = newCanary('completion');
const KEY = newCanary('key');
const WRONG_KEY = newCanary('wrongkey');
const BACKEND_KEY = newCanary('backendkey');
const ALL: readonly Canary[] = [PROMPT, COMPLETION, KEY, WRONG_KEY, BACKEND_KEY];

const CRASH = fileURLToPath(new URL('crash.ts', import.meta.url));
const CHAT = '/v1/chat/completions';
const VERIFY = '/~sev_gpu@1.0/verify';

/** What the processes may write into; and what the test itself has to write down lies elsewhere. */
let room: Folder;
let outside: Folder;
let backend: Backend;
let sidecar: RunningProcess;
let gateway: GatewayProcess;
let lonely: GatewayProcess;
const printed: Place[] = [];
const settings: string[] = [];
/** Answers that the gateway worded itself. */
const worded: Place[] = [];
const statuses = new Set<number>();

const asked = (more: object = {}) =>
  JSON.stringify({ model: 'm', messages: [{ role: 'user', content: PROMPT.text }], ...more });

async function to(where: GatewayProcess, path: string, how: Ask = {}): Promise<Answer> {
  const headers = { authorization: `Bearer ${KEY.text}`, ...how.headers };
  const got = await ask(where.url + path, { ...how, headers });
  statuses.add(got.status);
  return got;
}
/** The same, where the answer is the gateway's own words. */
async function refused(path: string, how: Ask = {}, where = gateway): Promise<Answer> {
  const got = await to(where, path, how);
  const named = path.replaceAll(PROMPT.text, '{prompt}').replaceAll(KEY.text, '{key}');
  worded.push({ name: `the gateway's own ${got.status} to ${how.method ?? 'POST'} ${named}`, content: got.text });
  return got;
}

beforeAll(async () => {
  room = temporaryFolder();
  outside = temporaryFolder();
  for (const name of ['tmp', 'run']) mkdirSync(join(room.path, name));
  const keys = join(outside.path, 'keys');
  writeFileSync(keys, `${KEY.text}\n`);
  backend = await startBackend();
  const env = {
    SIDECAR_SOCKET: join(room.path, 'run', 'sidecar.sock'),
    TMPDIR: join(room.path, 'tmp'),
    HOME: room.path,
    LOG_LEVEL: 'trace',
    NODE_OPTIONS: `--import=${CRASH}`,
  };
  sidecar = startSidecar(env);
  const crash = (name: string, text: string) => {
    writeFileSync(join(outside.path, name), text);
    return { CRASH_TEXT_FILE: join(outside.path, name) };
  };
  const common = {
    ...env,
    API_KEYS_FILE: keys,
    MAX_BODY_BYTES: '65536',
    BACKEND_TIMEOUT_MS: '400',
    limits: { sidecar_wait_ms: 300 },
  };
  gateway = await startGatewayProcess(
    {
      ...common,
      BACKEND_URL: backend.url,
      BACKEND_API_KEY: BACKEND_KEY.text,
      METRICS_PORT: '0',
      ...crash('json', PROMPT.text),
    },
    { cwd: room.path },
  );
  lonely = await startGatewayProcess(
    {
      ...common,
      BACKEND_URL: 'http://127.0.0.1:1/v1',
      ...crash('quoted', `{"x":"${PROMPT.text} ${COMPLETION.text}"}`),
    },
    { cwd: room.path },
  );
  await connected();
}, 30_000);
afterAll(async () => {
  for (const process of [gateway, lonely, sidecar])
    if (process.child.exitCode === null && process.child.signalCode === null) await process.kill('SIGKILL');
  await backend.close();
  room.remove();
  outside.remove();
});

function startSidecar(env: Record<string, string>): RunningProcess {
  return startProcess('demo/twin/main.ts', ['--collection-ms', '50'], env, room.path);
}
const connected = () =>
  eventually(
    async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json().sidecar?.status === 'connected',
    10_000,
  );

const PIECES = [role(), delta(COMPLETION.text), delta(' more')];

describe('a prompt, a completion and an API key', () => {
  it('go through every path that there is', async () => {
    const tees = [false, true];
    for (const tee of tees) {
      backend.script = chatAnswer(COMPLETION.text, COMPLETION.text);
      const whole = await to(gateway, CHAT, { body: asked({ tee }) });
      expect([whole.status, found(whole.text, ALL)]).toEqual([200, tee ? ['prompt', 'completion'] : ['completion']]);
      if (tee) {
        const byId = await to(gateway, `${CHAT}/${COMPLETION.text}/attestation`, { method: 'GET' });
        expect(byId.status).toBe(200);
        await refused(`${VERIFY}?report=1`, { body: whole.text });
        await refused(VERIFY, {
          body: whole.text.replaceAll('simulated', 'simulateD').replace('"nonce":"', '"nonce":"0'),
        });
        await refused(`${VERIFY}?report=1`, { body: whole.text.replace(PROMPT.text, `${PROMPT.text}x`) });
      }
      backend.script = stream([...PIECES, finish(), DONE]);
      expect((await to(gateway, CHAT, { body: asked({ tee, stream: true }) })).text).toContain(COMPLETION.text);
      await to(gateway, '/v1/completions', { body: JSON.stringify({ prompt: PROMPT.text, stream: true, tee }) });
      // Aborted by the client in the middle.
      backend.script = stream([...PIECES, ...PIECES, ...PIECES, finish(), DONE], 40);
      await to(gateway, CHAT, { body: asked({ tee, stream: true }), onData: () => false });
      // The backend breaks: in an event, between events, with an error, with no JSON, with a proof of its own, before its head.
      for (const pieces of [
        [...PIECES, `data: {"choices":[{"delta":{"content":"${COMPLETION.text}`, null],
        [...PIECES, null],
        [...PIECES, event({ error: { message: 'out of memory' } })],
        [...PIECES, event(`no JSON ${COMPLETION.text}`)],
        [...PIECES, event({ attestation: COMPLETION.text, choices: [] })],
        [
          role(),
          event(`{"choices":[{"index":0,"delta":{"${COMPLETION.text}":1}}]}`),
          event(`{"choices":[{"index":0,"delta":{"${COMPLETION.text}":"x"}}]}`),
          finish(),
          DONE,
        ],
      ]) {
        backend.script = stream(pieces);
        await to(gateway, CHAT, { body: asked({ tee, stream: true }) }).catch(() => null);
      }
      backend.script = answer(`no JSON ${COMPLETION.text}`);
      await (tee ? refused : (path: string, how: Ask) => to(gateway, path, how))(CHAT, { body: asked({ tee }) });
      backend.script = answer(COMPLETION.text, 200, { 'content-type': 'text/plain' });
      await refused(CHAT, { body: asked({ tee }) });
      backend.script = (_request, response) => void response.destroy();
      await refused(CHAT, { body: asked({ tee }) });
      backend.script = () => {};
      await refused(CHAT, { body: asked({ tee }) });
    }
    backend.script = chatAnswer(COMPLETION.text);
    for (const tee of ['', ',"tee":true'])
      await to(gateway, '/v1/embeddings', { body: `{"input":"${PROMPT.text}"${tee}}` });
    // One that is proven, and one that breaks: its words are in no error.
    for (const events of [responseEvents([COMPLETION.text]), responseEvents([COMPLETION.text]).slice(1)]) {
      backend.script = namedStream(events);
      await to(gateway, '/v1/responses', { body: `{"input":"${PROMPT.text}","stream":true,"tee":true}` });
    }
  }, 40_000);

  it('and every refusal that there is', async () => {
    backend.script = chatAnswer(COMPLETION.text);
    const body = asked();
    for (const bad of [
      PROMPT.text,
      `{"messages":[${PROMPT.text}`,
      `{"messages":"${PROMPT.text}"}`,
      asked({ tee: PROMPT.text }),
      asked({ stream: PROMPT.text }),
      asked({ n: PROMPT.text }),
      `{"messages":[{"role":"user","content":"${PROMPT.text}\xff"}]}`,
    ])
      await refused(CHAT, { body: Buffer.from(bad, 'latin1') });
    await refused(VERIFY, { body: PROMPT.text });
    await refused(VERIFY, {
      body: JSON.stringify({ raw: PROMPT.text, nonce: COMPLETION.text, token: KEY.text, evidence: [] }),
    });
    await refused(`${VERIFY}?report=1`, {
      body: JSON.stringify({ raw: PROMPT.text, nonce: COMPLETION.text, token: KEY.text, evidence: [] }),
    });
    await refused(`${VERIFY}?report=${PROMPT.text}`, { body });
    await refused(CHAT, { body, headers: { authorization: `Bearer ${WRONG_KEY.text}` } });
    await refused(CHAT, { body, headers: { authorization: WRONG_KEY.text } });
    await refused(CHAT, { body, headers: { 'x-tee': PROMPT.text } });
    await refused(`/${PROMPT.text}?${KEY.text}`, { method: 'GET' });
    await refused(`${CHAT}/${PROMPT.text}/attestation`, { method: 'GET' });
    await refused(CHAT, { method: 'PUT', body });
    await refused(`/v1/${PROMPT.text}`, { method: 'PATCH', body });
    await refused(CHAT, { body: `${body}${' '.repeat(70_000)}` });
    await refused(CHAT, { body, headers: { 'content-encoding': PROMPT.text } });
    await refused(CHAT, { body, headers: { expect: PROMPT.text } });
    await refused(CHAT, { body, headers: { host: `${PROMPT.text}/` } });
    await refused(CHAT, { body, headers: { 'x-long': PROMPT.text.repeat(1_000) } });
    await refused('/v1/embeddings', { body: `{"input":"${PROMPT.text}","tee":"${PROMPT.text}"}` });
    backend.script = answer(COMPLETION.text, 200, { 'content-type': 'text/plain' });
    await refused('/v1/audio/speech', { body: `{"input":"${PROMPT.text}","tee":true}` });
    backend.script = namedStream(responseEvents([COMPLETION.text]).slice(1));
    await refused('/v1/responses', { body: `{"input":"${PROMPT.text}","stream":true,"tee":true}` });
    backend.script = chatAnswer(COMPLETION.text);
    await refused(CHAT, { body }, lonely);
    await refused(CHAT, { body: asked({ tee: true }) }, lonely);
    // A backend's own words go to the client that asked, and nowhere else.
    for (const status of [400, 401, 404, 422, 429, 500, 503]) {
      backend.script = answer(
        JSON.stringify({ error: { message: `bad: ${PROMPT.text} ${COMPLETION.text}`, code: COMPLETION.text } }),
        status,
      );
      expect((await to(gateway, CHAT, { body })).status).toBe(status);
      backend.script = answer(`<html>${COMPLETION.text}`, status, { 'content-type': 'text/html' });
      await refused(CHAT, { body });
    }
    expect([...statuses].sort()).toEqual([200, 400, 401, 404, 405, 413, 415, 417, 422, 429, 431, 500, 502, 503, 504]);
  }, 40_000);

  it('and through the death of each process', async () => {
    backend.script = stream([...PIECES, finish(), DONE], 30);
    const during = to(gateway, CHAT, { body: asked({ tee: true, stream: true }) });
    await new Promise((resolve) => setTimeout(resolve, 60));
    await sidecar.kill('SIGKILL');
    printed.push({ name: "the killed sidecar's stdout and stderr", content: sidecar.output() });
    await refused(CHAT, { body: asked({ tee: true }) });
    const env = {
      SIDECAR_SOCKET: join(room.path, 'run', 'sidecar.sock'),
      TMPDIR: join(room.path, 'tmp'),
      HOME: room.path,
      LOG_LEVEL: 'trace',
    };
    sidecar = startSidecar({ ...env, NODE_OPTIONS: `--import=${CRASH}`, CRASH_TEXT_FILE: join(outside.path, 'json') });
    await connected();
    expect((await during).text).toContain('"attestation"');
    const health = await ask(`${gateway.url}/health`, { method: 'GET' });
    printed.push({ name: 'GET /health', content: health.text });
    const listening = gateway.lines().find((line) => line.msg === 'metrics')?.address as { port: number } | undefined;
    const metrics = await ask(`http://127.0.0.1:${listening?.port}/metrics`, { method: 'GET' });
    expect(metrics.text).toContain('# TYPE');
    printed.push({ name: 'GET /metrics', content: metrics.text });
    for (const [name, one] of [
      ['gateway', gateway],
      ['gateway without a backend', lonely],
      ['sidecar', sidecar],
    ] as const) {
      const pid = one.child.pid as number;
      printed.push(...processPlaces(name, pid));
      settings.push(`${name}: core limit as inherited ${coreLimit(pid)}`);
    }
    for (const one of [gateway, lonely, sidecar]) {
      one.child.kill('SIGUSR2');
      expect((await one.exited).code, one.output()).toBe(1);
      expect(one.output()).toContain('"msg":"uncaught error"');
      expect(one.output(), 'the place is said').toContain('crash.ts');
    }
  }, 40_000);

  it('would be found: each form of each, in whatever surrounds it', () => {
    for (const canary of ALL)
      for (const around of ['', 'a', 'ab', 'abc']) {
        const bytes = Buffer.from(`${around}${canary.text}${around}`);
        for (const text of [
          bytes.toString(),
          bytes.toString('base64'),
          bytes.toString('hex'),
          `"${canary.text.slice(0, 10)}"...`,
        ])
          expect(found(text, ALL)).toEqual([canary.name]);
      }
  });

  it('are found nowhere', () => {
    const inEnvironment = new Set(['/proc/PID/environ of the gateway']);
    const places: Place[] = [
      { name: "the gateway's stdout and stderr, LOG_LEVEL=trace", content: gateway.output() },
      { name: 'stdout and stderr of a gateway without a backend, LOG_LEVEL=trace', content: lonely.output() },
      { name: "the sidecar's stdout and stderr, LOG_LEVEL=trace", content: sidecar.output() },
      ...printed,
      ...worded,
      ...filePlaces(room.path, 'working folder, run/, TMPDIR and HOME: '),
    ];
    const leaks = places
      .map(({ name, content }) => ({
        name,
        found: found(content, inEnvironment.has(name) ? [PROMPT, COMPLETION, KEY, WRONG_KEY] : ALL),
      }))
      .filter((one) => one.found.length > 0);
    const names = new Map<string, number>();
    for (const { name } of places) names.set(name, (names.get(name) ?? 0) + 1);
    console.log(
      [
        'searched for a prompt, a completion, API keys right and wrong, the backend key (plain, cut, hex, base64) in:',
        ...[...names].map(([name, n]) => `  ${name}${n > 1 ? ` × ${n}` : ''}`),
        ...settings.map((line) => `  ${line}`),
      ].join('\n'),
    );
    expect(places.length).toBeGreaterThan(50);
    expect(gateway.lines().length, 'the log was on').toBeGreaterThan(50);
    expect(leaks).toEqual([]);
  });

  it("nor is anything of the backend's address, or a stack, in a refusal", () => {
    const { host } = new URL(backend.url);
    for (const { name, content } of worded) {
      expect(content, name).not.toContain(host);
      expect(content, name).not.toMatch(/127\.0\.0\.1:1\b|ECONN|UND_ERR|node_modules|\n\s+at |\.ts:\d/);
    }
  });
});

describe('the processes as npm starts them', () => {
  const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    scripts: Record<string, string>;
  };

  it.each(['start', 'gateway', 'sidecar'])('npm run %s: no core dump, no report, no debugger', async (name) => {
    const script = scripts[name] ?? '';
    expect(script).not.toMatch(/--(report|inspect|heapsnapshot|abort-on|heap-prof|cpu-prof|trace)/);
    // The script's own first command, then what it left behind.
    const { execFileSync } = await import('node:child_process');
    const limits = execFileSync('sh', [
      '-c',
      `ulimit -c unlimited 2>/dev/null; ${script.replace(/exec .*/, 'exec cat /proc/self/limits')}`,
    ]);
    expect(limits.toString()).toMatch(/^Max core file size\s+0\s/m);
  });
});
