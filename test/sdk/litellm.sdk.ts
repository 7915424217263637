// LiteLLM's proxy as a hop: behind the gateway, and between the client and the gateway. What of tee and of the attestation it hands on.
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { installLitellm, LITELLM } from '../../bench/others.ts';
import { freePort, stop } from '../../bench/processes.ts';
import { appraiseAttestation } from '../../verify/index.ts';
import { FORM_ANSWER, formScripts } from '../clients/form-scripts.ts';
import { type Backend, chatAnswer, chatStream, startBackend } from '../support/backend.ts';
import { type Answer, ask } from '../support/client.ts';
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';

type Delivery = 'whole' | 'stream';
type Path = keyof typeof REQUEST;
/** LiteLLM's providers: it translates what is not the provider's own endpoint. */
type Kind = 'openai' | 'anthropic';

const REQUEST = {
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'Hi' }] },
  '/v1/responses': { input: 'Hi' },
  '/v1/messages': { max_tokens: 64, messages: [{ role: 'user', content: 'Hi' }] },
  '/v1/embeddings': { input: ['a'] },
} as const;

/** `fails`: what the client is told in place of a proof. */
const BEHIND: readonly { path: Path; kind: Kind; delivery: Delivery; fails?: string }[] = [
  { path: '/v1/chat/completions', kind: 'openai', delivery: 'whole' },
  { path: '/v1/chat/completions', kind: 'openai', delivery: 'stream' },
  { path: '/v1/responses', kind: 'openai', delivery: 'whole' },
  // LiteLLM leaves out the names of the events.
  { path: '/v1/responses', kind: 'openai', delivery: 'stream', fails: 'an event has no name' },
  { path: '/v1/messages', kind: 'openai', delivery: 'whole' },
  { path: '/v1/messages', kind: 'openai', delivery: 'stream' },
  { path: '/v1/messages', kind: 'anthropic', delivery: 'whole' },
  { path: '/v1/messages', kind: 'anthropic', delivery: 'stream' },
  { path: '/v1/embeddings', kind: 'openai', delivery: 'whole' },
];

/** What reaches the client: the attestation, or the header with its id under LiteLLM's name `llm_provider-x-attestation-id`. */
type Handed = 'attestation' | 'attestation, no id' | 'id' | 'nothing';
type Between = readonly [Path, Kind, Delivery, byBody: Handed, byHeader: Handed];
const BETWEEN = (
  [
    ['/v1/chat/completions', 'openai', 'whole', 'attestation', 'attestation'],
    ['/v1/chat/completions', 'openai', 'stream', 'id', 'id'],
    ['/v1/responses', 'openai', 'whole', 'nothing', 'attestation'],
    ['/v1/responses', 'openai', 'stream', 'nothing', 'attestation'],
    ['/v1/messages', 'openai', 'whole', 'nothing', 'nothing'],
    ['/v1/messages', 'openai', 'stream', 'nothing', 'nothing'],
    ['/v1/messages', 'anthropic', 'whole', 'nothing', 'attestation, no id'],
    ['/v1/messages', 'anthropic', 'stream', 'nothing', 'attestation'],
    ['/v1/embeddings', 'openai', 'whole', 'id', 'id'],
  ] satisfies Between[]
).flatMap(([path, kind, delivery, byBody, byHeader]) => [
  { path, kind, delivery, tee: 'body' as const, outcome: byBody },
  { path, kind, delivery, tee: 'header' as const, outcome: byHeader },
]);

const UNREACHABLE = /from versions: none|timed out|Connection|No matching distribution/;

const program = await installLitellm().catch((error: unknown) => {
  if (error instanceof Error && UNREACHABLE.test(error.message)) return null;
  throw error;
});
const skipped = program === null ? ' SKIPPED: PyPI cannot be reached' : '';
if (program === null) console.warn(`\n!!! litellm ${LITELLM}${skipped} !!!\n`);

const START_MS = 120_000;
const KEY = 'sk-hop';
const folder = temporaryFolder();
const { script } = formScripts();
const rows: string[] = [];
let backend: Backend;
let sidecar: RunningSidecar;
/** Behind LiteLLM, and before it. */
let inner: RunningGateway;
let outer: RunningGateway;
let litellm: ChildProcess;
let litellmUrl: string;

describe.skipIf(program === null)(`LiteLLM ${LITELLM}${skipped}`, () => {
  beforeAll(async () => {
    backend = await startBackend((request, response) => {
      if (!request.url.endsWith('/chat/completions')) return script(request, response);
      const streamed = JSON.parse(request.body).stream === true;
      return (streamed ? chatStream(FORM_ANSWER.split(/(?= )/)) : chatAnswer(FORM_ANSWER))(request, response);
    });
    sidecar = await startSidecar(folder);
    inner = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
    litellmUrl = await startLitellm();
    outer = await startGateway({
      BACKEND_URL: `${litellmUrl}/v1`,
      BACKEND_API_KEY: KEY,
      SIDECAR_SOCKET: sidecar.socket,
    });
  }, START_MS);
  afterAll(async () => {
    if (litellm !== undefined) await stop(litellm);
    await Promise.all([outer?.close(), inner?.close()]);
    await sidecar?.close();
    await backend?.close();
    folder.remove();
    console.log(`\nLiteLLM ${LITELLM}\n${rows.join('\n')}\n`);
  });

  describe('behind the gateway: what the client gets is proven', () => {
    it.each(BEHIND)('$path, $kind, $delivery', async ({ path, kind, delivery, fails }) => {
      for (const tee of ['body', 'header'] as const) {
        const { got, body } = await question(outer.url, `plain-${kind}`, path, delivery, tee);
        rows.push(`client > gateway > LiteLLM  ${path}  ${kind}  ${delivery}  ${tee}  ${fails ?? 'proven'}`);
        if (fails !== undefined) expect(got.text).toContain(fails);
        else await expectProof(got, path, body);
      }
    });
  });

  describe('between client and gateway', () => {
    it.each(BETWEEN)(
      '$path, $kind, $delivery, tee by $tee: $outcome',
      async ({ path, kind, delivery, tee, outcome }) => {
        const { got } = await question(litellmUrl, `proven-${kind}`, path, delivery, tee);
        rows.push(`client > LiteLLM > gateway  ${path}  ${kind}  ${delivery}  ${tee}  ${outcome}`);
        if (path !== '/v1/embeddings') expect(said(got)).toBe(FORM_ANSWER);
        // LiteLLM says the answer again in its own words, with a name and an id of its own: what was sent is in raw, and no more is proven.
        const attestation = attestationIn(got);
        expect(attestation === null ? null : (await verified(attestation, path)).valid).toBe(
          outcome.startsWith('attestation') ? true : null,
        );
        const id = got.headers['llm_provider-x-attestation-id'];
        expect(typeof id).toBe(outcome === 'nothing' || outcome === 'attestation, no id' ? 'undefined' : 'string');
        if (id === undefined) return;
        const kept = await ask(`${inner.url}${path}/${id}/attestation`, { method: 'GET' });
        expect((await verified(kept.json(), path)).valid).toBe(true);
      },
    );
  });
});

async function startLitellm(): Promise<string> {
  const port = await freePort();
  const model = (name: string, kind: Kind, base: string) =>
    `  - model_name: ${name}-${kind}\n    litellm_params: { model: "${kind}/hello", api_base: "${base}${kind === 'openai' ? '/v1' : ''}", api_key: none }\n`;
  const models = [
    ['plain', backend.url.replace(/\/v1$/, '')],
    ['proven', inner.url],
  ] as const;
  const list = models.flatMap(([name, base]) => [model(name, 'openai', base), model(name, 'anthropic', base)]);
  // Without the last line it keeps the client's x-tee to itself.
  const settings =
    'litellm_settings: { telemetry: false }\ngeneral_settings: { forward_client_headers_to_llm_api: true }\n';
  const config = join(folder.path, 'litellm.yaml');
  writeFileSync(config, `model_list:\n${list.join('')}${settings}`);
  litellm = spawn(program ?? '', ['--config', config, '--host', '127.0.0.1', '--port', String(port)], {
    env: {
      PATH: process.env.PATH,
      HOME: folder.path,
      LITELLM_LOG: 'ERROR',
      LITELLM_MASTER_KEY: KEY,
      LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let errors = '';
  litellm.stderr?.on('data', (data) => {
    errors = (errors + data).slice(-2_000);
  });
  const url = `http://127.0.0.1:${port}`;
  for (const end = performance.now() + START_MS; ; await sleep(200)) {
    const up = await fetch(`${url}/health/liveliness`).catch(() => null);
    if (up?.ok) return url;
    if (performance.now() > end || litellm.exitCode !== null) throw new Error(`LiteLLM did not start:\n${errors}`);
  }
}

async function question(base: string, model: string, path: Path, delivery: Delivery, tee: 'body' | 'header') {
  const stream = delivery === 'stream' ? { stream: true } : {};
  const body = JSON.stringify({ model, ...REQUEST[path], ...stream, ...(tee === 'body' ? { tee: true } : {}) });
  const headers = { authorization: `Bearer ${KEY}`, ...(tee === 'header' ? { 'x-tee': '1' } : {}) };
  const got = await ask(`${base}${path}`, { body, headers });
  expect(got.status).toBe(200);
  return { got, body };
}

async function verified(attestation: object, path: string) {
  const report = await appraiseAttestation(JSON.stringify(attestation), {
    simulatedRoot: sidecar.attester.simulated?.root,
    expected: { endpoint: path },
  });
  expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
  return report;
}

/** Fails the test unless the answer, as the client has it, is what was signed. */
async function expectProof(got: Answer, path: Path, request: string): Promise<void> {
  const report = await appraiseAttestation(isStream(got) ? got.body : got.text, {
    simulatedRoot: sidecar.attester.simulated?.root,
    expected: { endpoint: path, request },
  });
  expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
  expect(report.valid).toBe(true);
}

const isStream = ({ headers }: Answer): boolean => String(headers['content-type']).startsWith('text/event-stream');

/** The JSON documents of an answer: its body, or its events. */
function documents(got: Answer): Record<string, never>[] {
  if (!isStream(got)) return [got.json()];
  const payloads = [...got.text.matchAll(/^data: (\{.*)$/gm)];
  return payloads.map(([, payload = '']) => JSON.parse(payload));
}

function attestationIn(got: Answer): object | null {
  for (const one of documents(got)) {
    const { attestation, response } = one as { attestation?: object; response?: { attestation?: object } };
    const found = attestation ?? response?.attestation;
    if (found) return found;
  }
  return null;
}

/** The answer's text, whatever its form. */
function said(got: Answer): string {
  // biome-ignore lint/suspicious/noExplicitAny: the bodies have every shape
  const all: any[] = documents(got);
  const deltas = all.map(({ choices, delta, type }) => {
    if (type === 'response.output_text.delta') return delta;
    return choices?.[0]?.delta?.content ?? delta?.text ?? '';
  });
  const [whole] = all;
  const content = whole?.choices?.[0]?.message?.content ?? (whole?.output?.[0] ?? whole)?.content?.[0]?.text;
  return deltas.join('') || content;
}
