// Other AI gateways, installed on demand into .cache/bench, at pinned versions: Portkey from npm, LiteLLM from PyPI.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, ROOT, runToEnd, start } from '../system/process.ts';
import { ready, type TargetKind, Unavailable } from './target.ts';

const PORTKEY = '1.15.2';
/** With a newer adapter than this every stream of it is a 500: it changes headers that the adapter hands on unchangeable. */
const PORTKEY_PACKAGE = {
  dependencies: { '@portkey-ai/gateway': PORTKEY },
  overrides: { '@hono/node-server': '1.13.8' },
};
export const LITELLM = '1.106.0';
const CACHE = join(ROOT, '.cache/bench');
const INSTALL_MS = 300_000;
const START_MS = 90_000;

export const portkey: TargetKind = {
  name: 'portkey',
  about: `@portkey-ai/gateway ${PORTKEY} from npm, one process, provider openai with our backend as its host`,
  slow: true,
  without: ['whole-128k'],
  async start({ backendPort }) {
    const folder = join(CACHE, `portkey-${PORTKEY}`);
    const script = join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js');
    await install(script, async () => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'package.json'), JSON.stringify(PORTKEY_PACKAGE));
      await runToEnd(['npm', 'install', '--no-audit', '--no-fund', '--prefix', folder], INSTALL_MS);
    });
    const port = await freePort();
    const headers = `authorization: Bearer bench\r\nx-portkey-provider: openai\r\nx-portkey-custom-host: http://127.0.0.1:${backendPort}/v1\r\n`;
    const proxy = start([process.execPath, script, '--headless', `--port=${port}`], {
      env: { NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1' },
    });
    return ready('portkey', { port, headers, tee: false, exact: false }, { proxy }, START_MS);
  },
};

export const litellm: TargetKind = {
  name: 'litellm',
  about: `litellm[proxy] ${LITELLM} from PyPI, one worker, every model routed to our backend`,
  slow: true,
  // About 100 requests a second are all that it can do: 200 paced streams it cannot.
  without: ['whole-16k', 'whole-128k', 'paced'],
  limits: { low_rate: 20, idle_streams: 200 },
  async start({ backendPort, folder }) {
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
    const proxy = start([program, '--config', config, '--host', '127.0.0.1', '--port', String(port)], {
      env: { LITELLM_LOG: 'ERROR', LITELLM_MASTER_KEY: key, LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    });
    return ready(
      'litellm',
      { port, headers: `authorization: Bearer ${key}\r\n`, tee: false, exact: false },
      { proxy },
      START_MS,
    );
  },
};

/** The program of LiteLLM's proxy. @throws {Unavailable} */
export async function installLitellm(): Promise<string> {
  const venv = join(CACHE, `litellm-${LITELLM}`);
  const program = join(venv, 'bin/litellm');
  await install(program, async () => {
    await runToEnd(['python3', '-m', 'venv', venv], INSTALL_MS);
    await runToEnd([join(venv, 'bin/pip'), 'install', '-q', `litellm[proxy]==${LITELLM}`], INSTALL_MS);
  });
  return program;
}

async function install(made: string, make: () => Promise<void>): Promise<void> {
  if (existsSync(made)) return;
  mkdirSync(CACHE, { recursive: true });
  try {
    await make();
  } catch (error) {
    throw new Unavailable(`could not be installed: ${(error as Error).message}`);
  }
}
