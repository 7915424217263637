// The launcher: demo engine, sidecar with a simulated GPU, gateway, each a process of its own; one Ctrl-C ends them all, a second one at once.
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { Agent, fetch } from 'undici';
import { ANY_TEXT, NODE_FLAGS } from '../gateway/base/config.ts';
import { NODE_FLAGS as SIDECAR_FLAGS } from '../sidecar/common/config.ts';
import { ConfigError, type DemoConfig, loadDemoConfig } from './config.ts';
import { StartError } from './errors.ts';
import { CACHE, fetchModel } from './fetch.ts';
import type { DemoOptions } from './options.ts';

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 5_000;
/** After its DRAIN_MS the gateway still tells those whom it cuts. */
const CUT_MS = 2_000;
/** Shorter stops are not worth a word. */
const QUIET_STOP_MS = 500;
/** Ctrl-C reaches us from the terminal and from npm. */
const SAME_SIGNAL_MS = 500;
const POLL_MS = 50;
const ENGINE_PORT = 8000;

/** Our own gateway on our own machine: its certificate, which may be anyone's, need not convince us. */
const ownGateway = new Agent({ connect: { rejectUnauthorized: false } });
const ask = (url: string) => fetch(url, { dispatcher: ownGateway });

type Name = 'demo engine' | 'sidecar' | 'gateway';
const children = new Map<Name, ChildProcess>();
/** How long the gateway's running answers may take to end. */
let drain_ms = 0;
let stopping_ms: number | null = null;
const fetching = new AbortController();

/** Resolves when the service is ready, or to the end of this process. */
export async function launch(options: DemoOptions, env: NodeJS.ProcessEnv): Promise<void> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      if (stopping_ms !== null && performance.now() - stopping_ms > SAME_SIGNAL_MS) end(1);
      void stop(0);
    });
  try {
    await start(loadDemoConfig(env, options));
  } catch (error) {
    // What was being fetched when the stop came.
    if (stopping_ms !== null) return;
    if (!(error instanceof ConfigError || error instanceof StartError)) throw error;
    console.error(`countersign: ${error.message}`);
    await stop(1);
  }
}

async function start(config: DemoConfig): Promise<void> {
  const { gateway } = config;
  drain_ms = gateway.drain_ms;
  const env = { ...config.env };
  if (gateway.port === 0) throw new StartError('PORT=0 is not for npm start: the address must be known');
  await mustBeFree(gateway.host, gateway.port);
  const fetched = config.options.model ? await fetchModel(CACHE, say, fetching.signal) : null;
  if (config.engine) {
    // vLLM's port, so that an audit finds the engine where one would be.
    const port = await freePort(ENGINE_PORT).catch(() => freePort());
    env.BACKEND_URL = `http://127.0.0.1:${port}/v1`;
    // The demo's own model has never heard of France.
    if (fetched === null) env.CANARY_EXPECT ??= ANY_TEXT;
    const script = ['demo/engine/main.ts', ...(fetched === null ? [] : [fetched.library, fetched.file])];
    run('demo engine', script, { ...env, HOST: '127.0.0.1', PORT: String(port) });
  }
  // Only the gateway has the backend's key.
  const { BACKEND_API_KEY: _key, ...sidecarEnv } = env;
  run(
    'sidecar',
    config.simulated ? ['demo/twin/main.ts', ...config.options.twin] : ['sidecar/main.ts'],
    sidecarEnv,
    SIDECAR_FLAGS,
  );
  run('gateway', ['gateway/main.ts'], env, NODE_FLAGS);

  say(`starting ${config.engine ? 'demo engine, ' : ''}sidecar and gateway …`);
  const host = gateway.host.includes(':') ? `[${gateway.host}]` : gateway.host.replace('0.0.0.0', '127.0.0.1');
  const url = `http${gateway.tls === null ? '' : 's'}://${host}:${gateway.port}`;
  const engineModel = config.engine ? await modelOfEngine(`${env.BACKEND_URL}/models`) : null;
  if (engineModel !== null) done('demo engine', `runs, its model is ${engineModel}`);
  const health = await healthy(url);
  const model = engineModel ?? (await firstModel(url, env));
  say(`ready in ${(performance.now() / 1000).toFixed(1)} s`);
  say('');
  const { trouble } = health.sidecar;
  if (trouble !== null)
    say(`  Requests with tee are REFUSED: the sidecar cannot attest: ${trouble.message.replace(/\s+/g, ' ')}`);
  if (health.backend.canary.state === 'wrong')
    say('  The backend answers with NONSENSE what any model knows (docs/operate.md, the canary).');
  if (health.sidecar.simulated) say('  The GPU is SIMULATED: its signatures prove nothing about hardware.');
  if (config.engine && !config.options.model)
    say('  The model is a demo with seeded random weights: its text is nonsense.');
  say('');
  say('Try it:');
  say(`  page       ${url}/`);
  say(`  base URL   ${url}/v1`);
  say(`  verify     ${url}/~sev_gpu@1.0/verify`);
  if (config.engine) say(`  engine     ${env.BACKEND_URL}`);
  say('');
  const key = env.API_KEYS_FILE ? ' -H "authorization: Bearer $API_KEY"' : '';
  say(`  curl -s ${url}/v1/chat/completions -H 'content-type: application/json'${key} \\`);
  say(
    `    -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]${trouble === null ? ',"tee":true' : ''}}'`,
  );
  say('');
  say('Ctrl-C ends everything.');
}

/** @param script with its arguments */
function run(name: Name, script: readonly string[], env: NodeJS.ProcessEnv, flags: readonly string[] = []): void {
  const child = spawn(process.execPath, [...flags, ...script], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    // Only the launcher gets a terminal's Ctrl-C, and it ends the others in order.
    detached: true,
  });
  child.once('exit', (code, signal) => {
    if (stopping_ms !== null) return;
    console.error(`countersign: the ${name} ended (${signal ?? code}); stopping`);
    void stop(1);
  });
  children.set(name, child);
}

/** The gateway first: what it still answers leans on the others. */
async function stop(code: number): Promise<void> {
  if (stopping_ms !== null) return;
  stopping_ms = performance.now();
  fetching.abort();
  const notice = setTimeout(
    () => say(`stopping: running answers have ${drain_ms / 1000} s to end; Ctrl-C again ends them at once`),
    QUIET_STOP_MS,
  );
  await ended(['gateway'], drain_ms + CUT_MS);
  clearTimeout(notice);
  await ended(['sidecar', 'demo engine'], STOP_TIMEOUT_MS);
  if (code === 0) say('stopped');
  end(code);
}

function runs(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}

/** They are asked to end; resolves when they have, or after `timeout_ms`. */
async function ended(names: readonly Name[], timeout_ms: number): Promise<void> {
  const some = names.map((name) => children.get(name)).filter((child) => child !== undefined);
  for (const child of some) child.kill('SIGTERM');
  const until = performance.now() + timeout_ms;
  while (some.some(runs) && performance.now() < until) await sleep(POLL_MS);
}

/** At once, with whatever still runs and what that has started. */
function end(code: number): never {
  for (const child of children.values()) if (runs(child)) process.kill(-(child.pid as number), 'SIGKILL');
  process.exit(code);
}

interface Health {
  readonly status: string;
  readonly backend: { readonly status: string; readonly canary: { readonly state: string } };
  readonly sidecar: {
    readonly status: string;
    readonly attester: string | null;
    readonly simulated: boolean | null;
    readonly trouble: { readonly message: string } | null;
    readonly refused: { readonly message: string } | null;
  };
}

async function healthy(url: string): Promise<Health> {
  const until = performance.now() + START_TIMEOUT_MS;
  let last = 'no answer';
  let refused: string | null = null;
  let listens = false;
  while (performance.now() < until && stopping_ms === null) {
    try {
      const response = await ask(`${url}/health`);
      const health = (await response.json()) as Health;
      if (!listens) done('gateway', `listens on ${url}`);
      listens = true;
      // A sidecar that cannot attest tries again by itself, and requests without tee are served meanwhile.
      // So are those for the other backends where one of several is down.
      const { status, sidecar, backend } = health;
      const without =
        sidecar.trouble !== null ||
        (sidecar.status === 'connected' && (backend.status === 'degraded' || backend.canary.state === 'wrong'));
      if (status === 'ok' || (status === 'degraded' && without)) {
        const gpu = sidecar.simulated === true ? 'with a simulated GPU' : `by ${sidecar.attester}`;
        done('sidecar', sidecar.trouble === null ? `attests ${gpu}` : 'runs, but cannot attest');
        return health;
      }
      refused = health.sidecar.refused?.message ?? null;
      last = health.status;
    } catch {
      // Not listening yet.
    }
    if (refused !== null) throw new StartError(`the gateway refuses the sidecar: ${refused}`);
    await sleep(POLL_MS);
  }
  if (stopping_ms !== null) return new Promise(() => {}); // stop() ends the process
  throw new StartError(`the service was not ready in ${START_TIMEOUT_MS / 1000} s (last state: ${last})`);
}

/** The model that the engine names, as soon as it listens. It ends with this process otherwise. */
async function modelOfEngine(url: string): Promise<string> {
  const until = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < until && stopping_ms === null) {
    const response = await ask(url).catch(() => null);
    if (response?.ok) return ((await response.json()) as Models).data[0]?.id ?? 'MODEL';
    await sleep(POLL_MS);
  }
  if (stopping_ms !== null) return new Promise(() => {}); // stop() ends the process
  throw new StartError(`the demo engine did not listen in ${START_TIMEOUT_MS / 1000} s`);
}

interface Models {
  readonly data: readonly { readonly id: string }[];
}

/** The name that the curl shows. With API keys the launcher cannot ask. */
async function firstModel(url: string, env: NodeJS.ProcessEnv): Promise<string> {
  if (env.API_KEYS_FILE) return 'MODEL';
  try {
    const { data } = (await (await ask(`${url}/v1/models`)).json()) as Models;
    return data[0]?.id ?? 'MODEL';
  } catch {
    return 'MODEL';
  }
}

/** @throws {StartError} */
function mustBeFree(host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) =>
      reject(new StartError(`cannot listen on ${host}:${port} (${error.code}): ${adviceFor(error.code, port)}`)),
    );
    probe.listen(port, host, () => probe.close(() => resolve()));
  });
}

function adviceFor(code: string | undefined, port: number): string {
  if (code === 'EADDRINUSE') {
    const next = port < 65_535 ? port + 1 : 8081;
    // Another service of this folder has the sidecar's usual socket.
    return `another program listens there; beside it: PORT=${next} SIDECAR_SOCKET=run/sidecar-${next}.sock npm start`;
  }
  return code === 'EACCES' ? 'this port is not allowed to you; PORT names another' : 'HOST and PORT name another';
}

function freePort(wanted = 0): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(wanted, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        address !== null && typeof address === 'object' ? resolve(address.port) : reject(new Error('no port')),
      );
    });
  });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A step of the start. */
function done(name: Name, text: string): void {
  say(`  ${name.padEnd(11)}  ${text}`);
}

function say(line: string): void {
  console.log(line);
}
