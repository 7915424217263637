// The Python clients of /v1/responses, /v1/messages and /v1/embeddings, in a process of their own that asks one question a line.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { appraiseAttestation } from '../../../verify/index.ts';
import { type Service, startService, temporaryFolder } from '../../support/harness.ts';
import { usePython } from '../../support/line-process.ts';
import { makeVenv, pinned } from '../../support/venv.ts';
import { FORM_ANSWER, FORM_CALL, formScripts, vectorOf } from '../form-scripts.ts';

const REQUIREMENTS = fileURLToPath(new URL('requirements-endpoints.txt', import.meta.url));
const DRIVER = fileURLToPath(new URL('endpoints_client.py', import.meta.url));
const python = makeVenv(REQUIREMENTS, 'endpoints-venv');
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';

type Mode = 'whole' | 'stream' | 'helper';
type Tee = 'off' | 'body' | 'header';

interface Client {
  readonly package: string;
  readonly endpoint: string;
  /** How many requests a question with a tool takes. */
  readonly turns: number;
  readonly tees: readonly Tee[];
  /** Where a program finds the attestation in each mode. `lost`: where it looks first, and finds none. */
  readonly places: Readonly<
    Partial<Record<Mode, { readonly found: readonly string[]; readonly lost?: readonly string[] }>>
  >;
}

const BOTH = ['body', 'header'] as const;
const BY_HEADER = 'GET by x-attestation-id';
const LANGCHAIN = {
  found: ['GET by message.id', 'GET by response_metadata.headers'],
  lost: ['response_metadata.attestation'],
};
const CLIENTS: Readonly<Record<string, Client>> = {
  openai: {
    package: 'openai',
    endpoint: '/v1/responses',
    turns: 1,
    tees: BOTH,
    places: {
      whole: { found: ['response.attestation', BY_HEADER] },
      stream: { found: ['response.completed .response.attestation', BY_HEADER] },
      helper: { found: ['get_final_response().attestation', BY_HEADER] },
    },
  },
  'openai-agents': {
    package: 'openai-agents',
    endpoint: '/v1/responses',
    turns: 2,
    tees: BOTH,
    places: {
      whole: { found: ['GET by raw_responses[].response_id'] },
      stream: { found: ['raw_response_event .data.response.attestation', 'GET by raw_responses[].response_id'] },
    },
  },
  anthropic: {
    package: 'anthropic',
    endpoint: '/v1/messages',
    turns: 1,
    tees: BOTH,
    places: {
      whole: { found: ['message.attestation', 'GET by message.id'] },
      stream: { found: ['message_delta .attestation', 'GET by message.id'] },
      helper: {
        found: ['message_delta .attestation', 'GET by message.id'],
        lost: ['get_final_message().attestation'],
      },
    },
  },
  'langchain-openai': {
    package: 'langchain-openai',
    endpoint: '/v1/responses',
    turns: 1,
    tees: BOTH,
    places: { whole: LANGCHAIN, stream: LANGCHAIN },
  },
  'langchain-openai embeddings': {
    package: 'langchain-openai',
    endpoint: '/v1/embeddings',
    turns: 1,
    tees: ['header'],
    places: { whole: { found: [BY_HEADER] } },
  },
  'llama-index-embeddings-openai': {
    package: 'llama-index-embeddings-openai',
    endpoint: '/v1/embeddings',
    turns: 1,
    tees: ['header'],
    places: { whole: { found: [BY_HEADER] } },
  },
};

interface Outcome {
  readonly text: string;
  readonly found: Readonly<Record<string, readonly unknown[]>>;
  /** The bodies that the client sent. */
  readonly sent: readonly string[];
  readonly ids: readonly (string | null)[];
  readonly failure: { readonly type: string; readonly status: number | null; readonly message: string } | null;
}

const KEY = 'sk-endpoints';
const { script, answers } = formScripts();
const folder = temporaryFolder();
const rows: string[] = [];
let service: Service;
const driver = usePython(python, [DRIVER], { LANGSMITH_TRACING: 'false' });

async function ask(client: string, mode: Mode, tee: Tee, model: string, apiKey = KEY): Promise<Outcome> {
  answers.length = 0;
  const question = { client, mode, tee, model, apiKey, baseURL: `${service.gateway.url}/v1` };
  return driver.ask(question);
}

/** Fails the test unless `found` proves the exchange number `i`, byte for byte. */
async function expectProof(found: unknown, endpoint: string, sent: string | undefined, i: number): Promise<void> {
  const { text, streamed } = answers[i] ?? { text: '', streamed: false };
  const answer = streamed ? { transcript: new TextEncoder().encode(text) } : { response: text };
  const report = await appraiseAttestation(JSON.stringify(found), {
    simulatedRoot: service.sidecar.attester.simulated?.root,
    expected: { endpoint, request: sent ?? '', ...answer },
  });
  expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
  expect(report.valid).toBe(true);
}

describe.skipIf(python === null)(`the clients of other endpoints${skipped}`, () => {
  beforeAll(async () => {
    const keys = join(folder.path, 'keys');
    writeFileSync(keys, `${KEY}\n`);
    service = await startService({ API_KEYS_FILE: keys });
    service.backend.script = script;
  });
  afterAll(async () => {
    await service?.close();
    folder.remove();
    console.log(`\n${rows.join('\n')}\n`);
  });

  const modes = Object.entries(CLIENTS).flatMap(([client, { places }]) =>
    (Object.keys(places) as Mode[]).map((mode) => [client, mode] as const),
  );
  describe.each(modes)('%s, %s', (client, mode) => {
    const { package: name, endpoint, tees, turns, places } = CLIENTS[client] as Client;
    const { found = [], lost = [] } = places[mode] ?? {};
    const embeds = endpoint === '/v1/embeddings';
    /** What a message says before it calls a tool. */
    const said = endpoint === '/v1/messages' ? FORM_ANSWER : '';
    const questions: (readonly [model: string, text: string, requests: number])[] = embeds
      ? [['hello', [0, 1].map(vectorOf).join(';'), 1]]
      : [
          ['hello', FORM_ANSWER, 1],
          ['tools', turns === 1 ? said + FORM_CALL : FORM_ANSWER, turns],
        ];

    it.each(questions)('has its answer without tee: %s', async (model, text) => {
      const got = await ask(client, mode, 'off', model);
      expect([got.failure, got.text]).toEqual([null, text]);
      expect(Object.values(got.found).flat().filter(Boolean)).toEqual([]);
      expect(service.backend.seen.at(-1)?.body).toBe(got.sent.at(-1));
    });

    for (const tee of tees)
      it.each(questions)(`finds the proof when it asks by ${tee}: %s`, async (model, text, requests) => {
        const got = await ask(client, mode, tee, model);
        expect([got.failure, got.text]).toEqual([null, text]);
        expect([got.sent.length, answers.length, got.ids.filter(Boolean).length]).toEqual([
          requests,
          requests,
          requests,
        ]);
        expect(Object.keys(got.found).sort()).toEqual([...found, ...lost].sort());
        for (const place of found) {
          expect(got.found[place]).toHaveLength(requests);
          for (const [i, one] of (got.found[place] ?? []).entries()) await expectProof(one, endpoint, got.sent[i], i);
        }
        for (const place of lost) expect(got.found[place]).toEqual([null]);
        if (model === 'hello' && tee === tees[0])
          rows.push(`${pinned(name, REQUIREMENTS)}  ${endpoint}  ${mode}  ${found.join(' | ')}`);
      });
  });

  it.each(Object.keys(CLIENTS))('throws its own error for a wrong key: %s', async (client) => {
    const { failure } = await ask(client, 'whole', 'off', 'hello', 'sk-wrong');
    expect(failure?.message).toContain('Send a valid API key');
    expect([failure?.type, failure?.status]).toEqual([expect.stringContaining('AuthenticationError'), 401]);
  });
});
if (python === null)
  console.warn(
    `\n!!! ${Object.values(CLIENTS)
      .map((one) => one.package)
      .join(', ')}${skipped} !!!\n`,
  );
