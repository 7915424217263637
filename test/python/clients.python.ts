// openai, langchain-openai and anthropic (PyPI) through the Python package's verifying clients, over the service and a network that may tamper.
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Service, startService } from '../clients/service.ts';
import { usePython } from '../support/line-process.ts';
import { makeVenv, pinned } from '../support/venv.ts';

const REQUIREMENTS = fileURLToPath(new URL('clients-requirements.txt', import.meta.url));
const PYTHONPATH = fileURLToPath(new URL('../../python/src', import.meta.url));
const DRIVER = fileURLToPath(new URL('verifying_clients.py', import.meta.url));

const python = makeVenv(REQUIREMENTS, 'verifying-clients-venv');
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';

interface Failure {
  readonly type: string;
  readonly bases: readonly string[];
  readonly code: string | null;
  readonly message: string;
}

interface Outcome {
  readonly text: string;
  readonly arguments: string;
  readonly finish: string | null;
  /** The endpoint of each proof. */
  readonly proofs: readonly string[];
  /** The code of each refusal that `on_unproven` was told. */
  readonly refusals: readonly string[];
  readonly failure: Failure | null;
  /** Requests that the network between client and gateway saw. */
  readonly calls: number;
  /** Requests for bundles among what the network saw. */
  readonly bundles: number;
}

let service: Service;
const clients = usePython(python, [DRIVER], { PYTHONPATH, LANGSMITH_TRACING: 'false' });
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service?.close());

let before = 0;
beforeEach(() => {
  before = service?.seen.length ?? 0;
});
/** Requests that reached the backend in this test. */
const backendCalls = () => service.seen.length - before;

async function ask(client: string, network: string, stream: boolean, model = 'hello', given = {}): Promise<Outcome> {
  const { url, key, simulatedRoot: root } = service;
  return clients.ask({ url, key, root, minLevel: null, client, network, stream, model, ...given });
}

const CLIENTS = [
  ['openai', '/v1/chat/completions'],
  ['openai, async', '/v1/chat/completions'],
  ['langchain-openai', '/v1/chat/completions'],
  ['langchain-openai, async', '/v1/chat/completions'],
  ['anthropic', '/v1/messages'],
  ['anthropic, async', '/v1/messages'],
] as const;
const name = (client: string) => pinned(client.replace(', async', ''), REQUIREMENTS);

describe.skipIf(python === null).each(CLIENTS)(`%s through a verifying client${skipped}`, (client, endpoint) => {
  test(`is ${name(client)}, and gets proven answers`, async () => {
    for (const stream of [false, true]) {
      const hello = await ask(client, 'as it is', stream);
      expect(hello).toMatchObject({ failure: null, proofs: [endpoint], refusals: [], calls: 1 });
      expect(hello.text).toMatch(/^Well met, traveller/);
      expect(hello.finish).toMatch(/^(stop|end_turn)$/);
      const tools = await ask(client, 'as it is', stream, 'tools');
      expect(tools).toMatchObject({ failure: null, proofs: [endpoint], refusals: [], calls: 1 });
      expect(JSON.parse(tools.arguments)).toEqual({ city: 'Paris' });
      expect(tools.finish).toMatch(/^tool_(calls|use)$/);
    }
    expect(backendCalls()).toBe(4);
  });

  test.each([
    ['changed', 'response_mismatch'],
    ['without its attestation', 'attestation_missing'],
    ['of before', 'request_mismatch'],
    ['cut', 'response_broken'],
  ])('raises its own error for a whole answer that is %s, after one call', async (network, code) => {
    await ask(client, 'as it is', false);
    before = service.seen.length;
    const outcome = await ask(client, network, false);
    expect(outcome).toMatchObject({ text: '', proofs: [], refusals: [code], failure: { code }, calls: 1 });
    expect(outcome.failure?.bases).toContain('UnprocessableEntityError');
    expect(backendCalls()).toBe(1);
  });

  test.each([
    [{ minLevel: 'gpu' }, 'the level is none; you demand gpu'],
    [{ root: null }, 'the GPU is simulated: pass its root (simulated_root)'],
  ])('says in its message what %j lacks', async (given, words) => {
    const outcome = await ask(client, 'as it is', false, 'hello', given);
    expect(outcome.failure?.message).toContain(words);
    expect(await ask(client, 'as it is', false)).toMatchObject({ failure: null, proofs: [endpoint] });
  });

  test('gets compact proofs, and refuses those whose bundle is away or another one', async () => {
    for (const stream of [false, true]) {
      const compact = (network: string) => ask(client, network, stream, 'hello', { compact: true });
      expect(await compact('as it is')).toMatchObject({ failure: null, proofs: [endpoint], calls: 1, bundles: 1 });
      for (const [network, code] of [
        ['without its bundle', 'bundle_unavailable'],
        ['with another bundle', 'bundle_mismatch'],
      ] as const) {
        const outcome = await compact(network);
        expect(outcome).toMatchObject({ finish: null, proofs: [], refusals: [code], calls: 1, bundles: 1 });
        expect(outcome.failure?.code).toBe(code);
      }
      expect(await compact('as it is')).toMatchObject({ failure: null, proofs: [endpoint] });
    }
  });

  test.each([
    ['changed', 'stream_mismatch'],
    ['without its attestation', 'attestation_missing'],
    ['without its end', /^(attestation_missing|stream_malformed)$/],
    ['of before', 'request_mismatch'],
    ['cut', /^(response_broken|attestation_missing)$/],
  ])('raises out of a stream that is %s, after one call', async (network, code) => {
    await ask(client, 'as it is', true);
    before = service.seen.length;
    const outcome = await ask(client, network, true);
    expect(outcome).toMatchObject({ finish: null, proofs: [], calls: 1, failure: { type: 'UnprovenAnswerError' } });
    expect(outcome.refusals).toEqual([outcome.failure?.code]);
    expect(outcome.failure?.code).toMatch(code);
    expect(backendCalls()).toBe(1);
  });
});
