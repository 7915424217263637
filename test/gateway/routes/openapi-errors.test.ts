// The examples of errors in /openapi.json beside what a gateway answers: code, message and param, numbers aside.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ProblemCode, STATUS } from '../../../gateway/base/problem.ts';
import { CODES, ERROR_EXAMPLES, errorExamples, OWN_EXAMPLES } from '../../../gateway/routes/openapi/errors.ts';
import { answer, DONE, delta, finish, role, stream } from '../../support/backend.ts';
import { type Answer, ask, CHAT, chat } from '../../support/client.ts';
import { eventually, freePort } from '../../support/harness.ts';
import { raw } from '../../support/raw.ts';
import { bearer, holdResponses, type Stage, startStage } from '../limits/limits-stage.ts';

let stage: Stage;
/** Without keys; with keys and every limit low. */
let open: string;
let limited: string;
beforeAll(async () => {
  stage = await startStage();
  open = stage.service.gateway.url;
  limited = await stage.gateway({ MAX_BODY_BYTES: '4096', MAX_VERIFY_PER_SECOND: '1' }, [
    'usual',
    'slow rps=1',
    'poor tokens-per-day=5',
    'bound models=first',
  ]);
});
afterAll(() => stage?.close());

const get = (url: string, headers = {}) => ask(url, { method: 'GET', headers });
const post = (url: string, body: string, headers = {}) => ask(url, { body, headers });
const VERIFY = '/~sev_gpu@1.0/verify';

/** The last of several answers to the same request. */
async function again(times: number, make: () => Promise<Answer>): Promise<Answer> {
  let last = await make();
  for (let i = 1; i < times; i++) last = await make();
  return last;
}

/** What a gateway answers to a request that no client library sends. */
async function written(text: string): Promise<Answer> {
  const { text: got } = await raw(open, text, { linger_ms: 2_000 });
  const [head = '', body = ''] = got.split('\r\n\r\n');
  return { status: Number(head.split(' ')[1]), json: () => JSON.parse(body) } as Answer;
}

const backendSays = (script: Parameters<typeof stream> | Stage['service']['backend']['script']) => {
  stage.service.backend.script = Array.isArray(script) ? stream(...script) : script;
};

type Provoke = () => Promise<Answer>;

const GENERAL: Partial<Record<ProblemCode, Provoke>> = {
  invalid_json: () => post(`${open}/v1/chat/completions`, '{'),
  invalid_request: () => written('GET /health HTTP/1.1\r\n\r\n'),
  invalid_api_key: () => chat(limited, CHAT),
  permission_denied: () => post(`${limited}/v1/load_lora_adapter`, '{}', bearer('usual')),
  model_not_found: () => chat(limited, { ...CHAT, model: 'other' }, bearer('bound')),
  origin_not_allowed: () => get(`${open}/health`, { origin: 'https://example.com' }),
  not_found: () => written('GET /v1/%2e%2e/admin HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'),
  method_not_allowed: () => ask(`${open}/v1/chat/completions`, { method: 'PUT' }),
  body_too_large: () => chat(limited, 'x'.repeat(5_000), bearer('usual')),
  unsupported_encoding: () => chat(open, CHAT, { 'content-encoding': 'gzip' }),
  expectation_failed: () => chat(open, CHAT, { expect: 'a-miracle' }),
  attestation_pending: async () => {
    const held = holdResponses(stage.service);
    const running = chat(open, { ...CHAT, stream: true, tee: true });
    await eventually(() => held.count > 0);
    const got = await get(`${open}/v1/chat/completions/chatcmpl-1/attestation`);
    held.release();
    await running;
    return got;
  },
  rate_limit_exceeded: () => again(3, () => chat(limited, CHAT, bearer('slow'))),
  insufficient_quota: () => again(2, () => chat(limited, CHAT, bearer('poor'))),
  headers_too_large: () => get(`${open}/health`, { 'x-a': 'a'.repeat(40_000) }),
  http_version_not_supported: () => written('GET /health HTTP/2.0\r\nhost: x\r\n\r\n'),
  backend_unreachable: async () =>
    chat(await stage.gateway({ BACKEND_URL: `http://127.0.0.1:${await freePort()}/v1` }), CHAT),
  backend_bad_response: () => {
    backendSays(answer('<p>', 200, { 'content-type': 'text/html' }));
    return chat(open, CHAT);
  },
  backend_timeout: async () => {
    backendSays(() => {});
    return chat(await stage.gateway({ BACKEND_TIMEOUT_MS: '100' }), CHAT);
  },
  sealed_malformed: () => post(`${open}/ohttp`, 'x'),
  sealed_required: async () => chat(await stage.gateway({ SEALED: 'required' }), CHAT),
  attestation_unavailable: async () =>
    chat(await stage.gateway({ SIDECAR_SOCKET: join(stage.service.folder.path, 'none'), SIDECAR_WAIT_MS: '50' }), {
      ...CHAT,
      tee: true,
    }),
};

/** What cannot be had here: time, a fault of ours, a store that is away, a full gateway, a session with a processor. */
const ELSEWHERE = [
  ...(['request_timeout', 'internal_error', 'store_unavailable', 'overloaded', 'page_unavailable'] as const),
  ...(['sealed_stale', 'sealed_replayed', 'sealed_key_unknown'] as const),
  // Their messages hold a reason or a number.
  ...(['stream_not_foldable', 'answer_too_large'] as const),
] as const;

const OWN: Record<string, Provoke> = {
  'generation invalid_request': () => chat(open, { ...CHAT, tee: 'yes' }),
  'retrieval not_found': () => get(`${open}/v1/chat/completions/none/attestation`),
  'retrieval method_not_allowed': () => ask(`${open}/v1/chat/completions/none/attestation`, { method: 'PUT' }),
  'session invalid_request': () => get(`${open}/v1/attestation/session?challenge=x`),
  'session not_found': () => get(`${open}/v1/attestation/session`),
  'session method_not_allowed': () => ask(`${open}/v1/attestation/session`, { method: 'PUT' }),
  'keys not_found': () => get(`${open}/.well-known/ohttp-keys`),
  'keys method_not_allowed': () => ask(`${open}/.well-known/ohttp-keys`, { method: 'PUT' }),
  'sealed method_not_allowed': () => ask(`${open}/ohttp`, { method: 'PUT' }),
  'sealed rate_limit_exceeded': async () => {
    const all = await Promise.all(Array.from({ length: 600 }, () => post(`${open}/ohttp`, 'x')));
    return all.find(({ status }) => status === 429) as Answer;
  },
  'verification invalid_json': () => post(open + VERIFY, '{'),
  'verification invalid_request': () => post(`${open}${VERIFY}?report=x`, '{}'),
  'verification method_not_allowed': () => ask(open + VERIFY, { method: 'PUT' }),
  'verification rate_limit_exceeded': () => again(3, () => post(limited + VERIFY, '{}')),
  'usage invalid_request': () => get(`${open}/usage`),
  'usage method_not_allowed': () => ask(`${open}/usage`, { method: 'PUT' }),
  'metrics not_found': () => get(`${limited}/metrics`),
  'metrics method_not_allowed': () => ask(`${open}/metrics`, { method: 'PUT' }),
  'page method_not_allowed': () => ask(`${open}/`, { method: 'PUT' }),
  'open method_not_allowed': () => ask(`${open}/health`, { method: 'PUT' }),
};
const OWN_ELSEWHERE = ['verification overloaded', 'usage store_unavailable', 'sealed store_unavailable'];

const withoutNumbers = (body: unknown): unknown => JSON.parse(JSON.stringify(body).replaceAll(/\d+/g, '0'));
const examples = errorExamples() as Record<string, { value: unknown }>;

async function compare(name: string, code: ProblemCode, provoke: Provoke): Promise<void> {
  backendSays([[role(), delta('Hi'), finish(), DONE]]);
  const got = await provoke();
  expect(got.status).toBe(STATUS[code]);
  expect(withoutNumbers(examples[name]?.value)).toEqual(withoutNumbers(got.json()));
}

describe('an example of an error is what the gateway says', () => {
  it.each(Object.entries(GENERAL) as [ProblemCode, Provoke][])('%s', (code, provoke) =>
    compare(`error.${code}`, code, provoke),
  );

  it.each(Object.entries(OWN))('%s', (name, provoke) => {
    const [kind, code] = name.split(' ') as [string, ProblemCode];
    return compare(`error.${code}.${kind}`, code, provoke);
  });

  it('or stands in the code that says it, where it cannot be had here', () => {
    const sources = globSync('gateway/**/*.ts').filter((file) => !file.includes('routes/openapi/'));
    const code = sources.map((file) => readFileSync(file, 'utf8')).join();
    for (const name of ELSEWHERE) expect(code).toContain(ERROR_EXAMPLES[name].message.split(/[:\d]/, 1)[0]);
    for (const name of OWN_ELSEWHERE) {
      const [kind, own] = name.split(' ') as [keyof typeof OWN_EXAMPLES, ProblemCode];
      expect(code).toContain(OWN_EXAMPLES[kind]?.[own]?.message);
    }
  });

  it('and none is left out', () => {
    expect([...Object.keys(GENERAL), ...ELSEWHERE].toSorted()).toEqual(Object.keys(ERROR_EXAMPLES).toSorted());
    const own = Object.entries(OWN_EXAMPLES).flatMap(([kind, codes]) =>
      Object.keys(codes).map((code) => `${kind} ${code}`),
    );
    expect([...Object.keys(OWN), ...OWN_ELSEWHERE].toSorted()).toEqual(own.toSorted());
    for (const [kind, codes] of Object.entries(OWN_EXAMPLES))
      for (const code of Object.keys(codes))
        expect(CODES[kind as keyof typeof CODES], `${kind} ${code}`).toContain(code);
  });
});
