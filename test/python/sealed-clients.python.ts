// openai (PyPI) through the Python package's sealed clients, over the service and an edge that keeps what it sees and may tamper.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { chatAnswer, chatStream } from '../support/backend.ts';
import { eventually, type Folder, type Service, startService, temporaryFolder } from '../support/harness.ts';
import { usePython } from '../support/line-process.ts';
import { makeVenv, pinned } from '../support/venv.ts';
import { PACKAGE } from './package.ts';

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const REQUIREMENTS = path('clients-requirements.txt');
const python = makeVenv(REQUIREMENTS, 'verifying-clients-venv');
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';

interface Outcome {
  readonly text: string;
  readonly finish: string | null;
  /** The endpoint of each proof. */
  readonly proofs: readonly string[];
  /** Of each session that was verified. */
  readonly levels: readonly string[];
  readonly failure: { readonly type: string; readonly code: string | null } | null;
  /** Sealed requests that the edge saw, and all requests. */
  readonly sealed: number;
  readonly calls: number;
  /** Which of the secrets the edge saw. */
  readonly seen: readonly string[];
}

interface Question {
  readonly kind: 'sync' | 'async';
  readonly stream: boolean;
  readonly mode: string;
  /** null: the default. */
  readonly level: string | null;
  readonly times: number;
  readonly compact?: boolean;
}

const EDGE_KEY = 'sk-edge-7d1f';
const INNER_KEY = 'sk-inner-93c2';
const PROMPT = 'canary-prompt-5b0e';
const ANSWER = 'canary answer 41aa';
const MODEL = 'canary-model-c77d';
const SECRETS = [PROMPT, ANSWER, 'canary', INNER_KEY, MODEL, 'chat/completions', 'attestation/bundles'];

describe.skipIf(python === null).each([
  ['sync', false],
  ['sync', true],
  ['async', false],
  ['async', true],
] as const)(`openai through a sealed client, %s, stream %s${skipped}`, (kind, stream) => {
  const clients = usePython(python, [path('sealed_clients.py')], { PYTHONPATH: `${PACKAGE}src` });
  let folder: Folder;
  let service: Service;
  let root: string;

  beforeAll(async () => {
    folder = temporaryFolder();
    const keys = join(folder.path, 'keys');
    writeFileSync(keys, `${EDGE_KEY}\n${INNER_KEY}\n`);
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    const env = { API_KEYS_FILE: keys, SEALED: 'required' };
    service = await startService(env, { cpu: { collector, required: true } });
    root = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
    await eventually(async () => {
      const headers = { authorization: `Bearer ${EDGE_KEY}` };
      const response = await fetch(`${service.gateway.url}/v1/attestation/session`, { headers });
      const { statement = 'null' } = (await response.json()) as { statement?: string };
      return typeof JSON.parse(statement)?.hpke === 'string';
    });
  });
  afterAll(async () => {
    await service?.close();
    folder?.remove();
  });
  beforeEach(() => {
    service.backend.script = stream ? chatStream([...ANSWER]) : chatAnswer(ANSWER);
    service.backend.seen.length = 0;
  });

  const ask = (mode: string, given: Partial<Question> = {}) =>
    clients.ask<Outcome>({
      ...{ kind, stream, mode, level: 'none', times: 1, ...given },
      ...{ url: service.gateway.url, key: INNER_KEY, edge_key: EDGE_KEY, root },
      ...{ model: MODEL, prompt: PROMPT, secrets: SECRETS },
    });
  const proven = { text: ANSWER, finish: 'stop', proofs: ['/v1/chat/completions'], levels: ['none'], failure: null };

  it(`is ${pinned('openai', REQUIREMENTS)}, and gets proven answers of which the edge sees nothing`, async () => {
    expect(await ask('as it is')).toMatchObject({ ...proven, sealed: 1, calls: 2, seen: [] });
    expect(service.backend.seen[0]?.body).toContain(PROMPT);
  });

  it('verifies one session for several requests', async () => {
    const outcome = await ask('as it is', { times: 3 });
    expect(outcome).toMatchObject({ failure: null, levels: ['none'], sealed: 3, calls: 4, seen: [] });
    expect(outcome.proofs).toHaveLength(3);
  });

  it('gets bundles sealed too, each once', async () => {
    const outcome = await ask('as it is', { times: 2, compact: true });
    expect(outcome).toMatchObject({ text: expect.stringContaining(ANSWER), failure: null, levels: ['none'], seen: [] });
    expect(outcome.proofs).toHaveLength(2);
    // Two answers, each in a batch of its own, and their bundles.
    expect(outcome.sealed).toBe(4);
    expect(outcome.calls).toBe(5);
  });

  it('seals nothing to a machine that is not measured, unless told otherwise', async () => {
    for (const level of [null, 'measured', 'gpu+cpu', 'gpu'])
      expect(await ask('as it is', { level })).toMatchObject({
        text: '',
        levels: [],
        sealed: 0,
        calls: 1,
        seen: [],
        failure: { type: 'UnprocessableEntityError', code: 'level_too_low' },
      });
    expect(service.backend.seen).toHaveLength(0);
  });

  it('verifies a session anew where the gateway knows the key no more', async () => {
    const outcome = await ask("with another key's identifier");
    expect(outcome).toMatchObject({ ...proven, levels: ['none', 'none'], sealed: 2, calls: 4, seen: [] });
    expect(service.backend.seen).toHaveLength(1);
  });

  it.each([
    ['in the clear', /^answer_not_sealed$/],
    ['cut', /^(response_broken|sealed_truncated|sealed_not_opened)$/],
    ['changed', /^(response_broken|sealed_not_opened)$/],
    ['of before', /^sealed_not_opened$/],
    ['sent twice', /^sealed_replayed$/],
  ])('refuses an answer that is %s', async (mode, code) => {
    await ask('as it is');
    service.backend.seen.length = 0;
    const outcome = await ask(mode);
    expect(outcome).toMatchObject({ finish: null, proofs: [], sealed: 1, seen: [] });
    expect(outcome.failure?.code).toMatch(code);
    expect(service.backend.seen).toHaveLength(1);
  });
});
