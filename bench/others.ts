// Other AI gateways, installed on demand into .cache/bench, at pinned versions.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, ROOT, runToEnd, start } from './processes.ts';
import type { Kind } from './target.ts';

export const LITELLM = '1.106.0';
const PORTKEY = '1.15.2';
const SGLANG = '0.3.2';
/** With a newer adapter than this every stream of it is a 500: it changes headers that the adapter hands on unchangeable. */
const PORTKEY_PACKAGE = {
  dependencies: { '@portkey-ai/gateway': PORTKEY },
  overrides: { '@hono/node-server': '1.13.8' },
};
const CACHE = join(ROOT, '.cache/bench');
const INSTALL_MS = 300_000;
const START_MS = 90_000;

export const portkey: Kind = {
  name: 'portkey',
  about: `@portkey-ai/gateway ${PORTKEY} (npm, Node), one process`,
  other: true,
  async begin({ backendPort }) {
    const folder = join(CACHE, `portkey-${PORTKEY}`);
    const script = join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js');
    if (!existsSync(script)) {
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'package.json'), JSON.stringify(PORTKEY_PACKAGE));
      await runToEnd(['npm', 'install', '--no-audit', '--no-fund', '--prefix', folder], INSTALL_MS);
    }
    const port = await freePort();
    const env = { NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1' };
    const headers = {
      authorization: 'Bearer bench',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `http://127.0.0.1:${backendPort}/v1`,
    };
    const proxy = start([process.execPath, script, '--headless', `--port=${port}`], { env });
    return { port, headers, start_ms: START_MS, proxy };
  },
};

export const litellm: Kind = {
  name: 'litellm',
  about: `litellm[proxy] ${LITELLM} (PyPI, Python), one worker`,
  other: true,
  slow: true,
  async begin({ backendPort, folder }) {
    const program = await installLitellm();
    const port = await freePort();
    const key = `sk-${randomBytes(32).toString('hex')}`; // it does not start without one
    const config = join(folder, 'litellm.yaml');
    writeFileSync(
      config,
      `model_list:
  - model_name: "*"
    litellm_params: { model: "openai/*", api_base: "http://127.0.0.1:${backendPort}/v1", api_key: bench }
litellm_settings: { drop_params: true, telemetry: false }
`,
    );
    const env = { LITELLM_LOG: 'ERROR', LITELLM_MASTER_KEY: key, LITELLM_LOCAL_MODEL_COST_MAP: 'True' };
    const proxy = start([program, '--config', config, '--host', '127.0.0.1', '--port', String(port)], { env });
    return { port, headers: { authorization: `Bearer ${key}` }, start_ms: START_MS, proxy };
  },
};

export const sglang: Kind = {
  name: 'sglang-router',
  about: `sglang-router ${SGLANG} (PyPI, Rust) before one worker`,
  other: true,
  async begin({ backendPort }) {
    const program = await installed('sglang-router', `sglang-router==${SGLANG}`, SGLANG);
    const port = await freePort();
    const worker = ['--worker-urls', `http://127.0.0.1:${backendPort}`, '--policy', 'round_robin'];
    const own = ['--host', '127.0.0.1', '--port', String(port), '--prometheus-port', String(await freePort())];
    const proxy = start([program, 'launch', ...worker, ...own, '--log-level', 'error', '--disable-health-check']);
    return { port, start_ms: START_MS, proxy };
  },
};

/** The program of LiteLLM's proxy. @throws where PyPI is out of reach. */
export const installLitellm = (): Promise<string> => installed('litellm', `litellm[proxy]==${LITELLM}`, LITELLM);

/** A program of a package of PyPI, in an environment of its own. */
async function installed(name: string, requirement: string, version: string): Promise<string> {
  const venv = join(CACHE, `${name}-${version}`);
  const program = join(venv, 'bin', name);
  if (existsSync(program)) return program;
  mkdirSync(CACHE, { recursive: true });
  await runToEnd(['python3', '-m', 'venv', venv], INSTALL_MS);
  await runToEnd([join(venv, 'bin/pip'), 'install', '-q', requirement], INSTALL_MS);
  return program;
}
