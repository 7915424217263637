// The errors of /openapi.json beside those that a gateway sends: each has the status, the code and the headers that its operation declares.
import { existsSync, readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/base/config.ts';
import { createHttpServer } from '../../../gateway/http/server.ts';
import { answer, chatAnswer } from '../../support/backend.ts';
import { type Answer, ask, CHAT, chat } from '../../support/client.ts';
import { eventually, freePort, SILENT } from '../../support/harness.ts';
import { raw } from '../../support/raw.ts';
import { bearer, holdResponses, type Stage, startStage } from '../limits/limits-stage.ts';
import { codesOf, declared, errorCodes, expectDeclared, operationOf, operations } from './openapi-document.ts';

let stage: Stage;
/** Without keys; with keys and every limit low. */
let open: string;
let limited: string;
beforeAll(async () => {
  stage = await startStage();
  open = stage.service.gateway.url;
  limited = await stage.gateway({ MAX_BODY_BYTES: '4096', limits: { max_verify_per_second: 1 } }, [
    'usual rps=1000 tokens-per-day=100000',
    'slow rps=1',
    'poor tokens-per-day=5',
    'bound models=first rps=1000 tokens-per-day=100000',
    'root admin rps=1000',
  ]);
});
afterAll(() => stage?.close());
beforeEach(() => {
  stage.service.backend.script = chatAnswer('Hi');
});

const get = (url: string, headers = {}) => ask(url, { method: 'GET', headers });
const post = (url: string, body: string, headers = {}) => ask(url, { body, headers });
const managed = (method: string, name: string, body?: string) =>
  ask(`${limited}/admin/keys/${name}`, { method, headers: bearer('root'), ...(body === undefined ? {} : { body }) });
const put = (url: string) => ask(url, { method: 'PUT' });
const VERIFY = '/~sev_gpu@1.0/verify';
const CHAT_PATH = '/v1/chat/completions';
const BY_ID = `GET ${CHAT_PATH}/{id}/attestation`;

/** The last of several responses to the same request. */
async function again(times: number, make: () => Promise<Answer>): Promise<Answer> {
  let last = await make();
  for (let i = 1; i < times; i++) last = await make();
  return last;
}

/** The response to a request that no client library sends. */
async function written(text: string): Promise<Answer> {
  const { text: got } = await raw(open, text, { linger_ms: 2_000 });
  const [head = '', body = ''] = got.split('\r\n\r\n');
  const [line = '', ...lines] = head.split('\r\n');
  const headers = lines.map((one) => one.split(': ')).map(([name = '', value]) => [name.toLowerCase(), value]);
  const json = () => JSON.parse(body);
  return { status: Number(line.split(' ')[1]), headers: Object.fromEntries(headers), text: body, json } as Answer;
}

/** The response of a gateway whose routes fail. */
async function failed(): Promise<Answer> {
  const config = loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', SIDECAR_SOCKET: '/none' });
  const server = createHttpServer(() => Promise.reject(new Error('a fault')), { ...config, tls: null }, SILENT);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const got = await get(`http://127.0.0.1:${(server.address() as AddressInfo).port}/health`);
  await new Promise<unknown>((resolve) => server.close(resolve));
  return got;
}

async function attested(): Promise<object> {
  return (await chat(open, { ...CHAT, tee: true })).json().attestation;
}

async function attestedBy(key: string): Promise<{ readonly id: string; readonly attestation: object }> {
  const got = await chat(limited, { ...CHAT, tee: true }, bearer(key));
  expectDeclared(`POST ${CHAT_PATH}`, got);
  return got.json();
}

/** Makes a gateway send the error. */
type Produce = () => Promise<Answer>;

const PRODUCED: readonly (readonly [operation: string, code: string, produce: Produce])[] = [
  ['GET /health', 'invalid_request', () => written('GET /health HTTP/1.1\r\n\r\n')],
  ['GET /health', 'http_version_not_supported', () => written('GET /health HTTP/2.0\r\nhost: x\r\n\r\n')],
  ['GET /health', 'internal_error', failed],
  [
    'POST /v1/{endpoint}',
    'not_found',
    () => written('POST /v1/%2e%2e/admin HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'),
  ],
  [`POST ${CHAT_PATH}`, 'invalid_json', () => post(open + CHAT_PATH, '{')],
  [`POST ${CHAT_PATH}`, 'invalid_request', () => chat(open, { ...CHAT, tee: 'yes' })],
  [`POST ${CHAT_PATH}`, 'invalid_api_key', () => chat(limited, CHAT)],
  [`POST ${CHAT_PATH}`, 'model_not_found', () => chat(limited, { ...CHAT, model: 'other' }, bearer('bound'))],
  [`POST ${CHAT_PATH}`, 'body_too_large', () => chat(limited, 'x'.repeat(5_000), bearer('usual'))],
  [`POST ${CHAT_PATH}`, 'unsupported_encoding', () => chat(open, CHAT, { 'content-encoding': 'gzip' })],
  [`POST ${CHAT_PATH}`, 'rate_limit_exceeded', () => again(3, () => chat(limited, CHAT, bearer('slow')))],
  [`POST ${CHAT_PATH}`, 'insufficient_quota', () => again(2, () => chat(limited, CHAT, bearer('poor')))],
  [`POST ${CHAT_PATH}`, 'sealed_required', async () => chat(await stage.gateway({ SEALED: 'required' }), CHAT)],
  [
    `POST ${CHAT_PATH}`,
    'backend_unreachable',
    async () => chat(await stage.gateway({ BACKEND_URL: `http://127.0.0.1:${await freePort()}/v1` }), CHAT),
  ],
  [
    `POST ${CHAT_PATH}`,
    'backend_bad_response',
    () => {
      stage.service.backend.script = answer('<p>', 200, { 'content-type': 'text/html' });
      return chat(open, CHAT);
    },
  ],
  [
    `POST ${CHAT_PATH}`,
    'backend_error',
    () => {
      stage.service.backend.script = answer('{"detail":"CUDA out of memory."}', 500);
      return chat(open, CHAT);
    },
  ],
  [
    `POST ${CHAT_PATH}`,
    'backend_timeout',
    async () => {
      stage.service.backend.script = () => {};
      return chat(await stage.gateway({ BACKEND_TIMEOUT_MS: '100' }), CHAT);
    },
  ],
  [
    `POST ${CHAT_PATH}`,
    'attestation_unavailable',
    async () => {
      const url = await stage.gateway({
        SIDECAR_SOCKET: join(stage.service.folder.path, 'none'),
        limits: { sidecar_wait_ms: 50 },
      });
      return chat(url, { ...CHAT, tee: true });
    },
  ],
  ['POST /v1/{endpoint}', 'permission_denied', () => post(`${limited}/v1/load_lora_adapter`, '{}', bearer('usual'))],
  [BY_ID, 'not_found', () => get(`${open}${CHAT_PATH}/none/attestation`)],
  [
    BY_ID,
    'attestation_pending',
    async () => {
      const held = holdResponses(stage.service);
      const running = chat(open, { ...CHAT, stream: true, tee: true });
      await eventually(() => held.count > 0);
      const got = await get(`${open}${CHAT_PATH}/chatcmpl-1/attestation`);
      held.release();
      await running;
      return got;
    },
  ],
  ['GET /v1/attestation/session', 'invalid_request', () => get(`${open}/v1/attestation/session?challenge=x`)],
  ['GET /v1/attestation/session', 'not_found', () => get(`${open}/v1/attestation/session`)],
  ['GET /.well-known/ohttp-keys', 'not_found', () => get(`${open}/.well-known/ohttp-keys`)],
  ['POST /v1/attestation/secrets', 'secrets_not_expected', () => post(`${open}/v1/attestation/secrets`, '{}')],
  ['POST /ohttp', 'sealed_malformed', () => post(`${open}/ohttp`, 'x')],
  [
    'POST /ohttp',
    'rate_limit_exceeded',
    async () => {
      const all = await Promise.all(Array.from({ length: 600 }, () => post(`${open}/ohttp`, 'x')));
      return all.find(({ status }) => status === 429) as Answer;
    },
  ],
  [`POST ${VERIFY}`, 'invalid_json', () => post(open + VERIFY, '{')],
  [`POST ${VERIFY}`, 'invalid_request', () => post(`${open}${VERIFY}?report=x`, '{}')],
  [`POST ${VERIFY}`, 'not_an_attestation', () => post(open + VERIFY, '{"id":"chatcmpl-1"}')],
  [
    `POST ${VERIFY}`,
    'raw_hash_mismatch',
    async () => post(open + VERIFY, JSON.stringify({ ...(await attested()), nonce: '0'.repeat(64) })),
  ],
  [
    `POST ${VERIFY}`,
    'policy_refused',
    async () => post(`${open}${VERIFY}?min_level=gpu`, JSON.stringify(await attested())),
  ],
  [`POST ${VERIFY}`, 'rate_limit_exceeded', () => again(3, () => post(limited + VERIFY, '{}'))],
  ['GET /admin/keys', 'permission_denied', () => get(`${limited}/admin/keys`, bearer('usual'))],
  ['POST /admin/keys', 'invalid_json', () => post(`${limited}/admin/keys`, '{', bearer('root'))],
  ['POST /admin/keys', 'invalid_request', () => post(`${limited}/admin/keys`, '{"name":"a b"}', bearer('root'))],
  ['PATCH /admin/keys/{name}', 'not_found', () => managed('PATCH', 'nobody', '{"rps":1}')],
  ['DELETE /admin/keys/{name}', 'not_found', () => managed('DELETE', 'nobody')],
  ['GET /usage', 'invalid_request', () => get(`${open}/usage`)],
  ['GET /metrics', 'not_found', () => get(`${limited}/metrics`)],
  ['GET /metrics/picker', 'not_found', () => get(`${limited}/metrics/picker`)],
];

/** Codes that need more than a request: time, a store that is away, a full gateway, a session. Other tests produce them. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  request_timeout: 'http/limits',
  keys_unavailable: 'keys/admin',
  store_unavailable: 'sealing/shared-keys',
  overloaded: 'limits/concurrency',
  page_unavailable: 'routes/page',
  sealed_stale: 'sealing/sealed',
  sealed_replayed: 'sealing/sealed',
  sealed_key_unknown: 'sealing/sealed',
  waiting_for_secrets: 'sealing/secrets',
  secrets_refused: 'sealing/secrets',
  stream_not_foldable: 'exchange/stream-wrong',
  answer_too_large: 'exchange/stream-wrong',
};

/** Status, code, headers and shape are those that the operation declares. */
function expectDeclaredError(operation: string, code: string, got: Answer): void {
  expect([operation, got.json().error.code]).toEqual([operation, code]);
  expect(codesOf(declared(operation, got.status)), `${operation} ${got.status}`).toContain(code);
  expectDeclared(operation, got, got.status);
  expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
}

describe('an error of a gateway is declared', () => {
  it.each(PRODUCED)('of %s: %s', async (operation, code, produce) => {
    expectDeclaredError(operation, code, await produce());
  });

  it.each([...operations.keys()])('of %s: what every route responds', async (name) => {
    const [method = '', path = ''] = name.split(' ');
    const url = open + path.replace(/\{(id|name)\}/, 'x').replace('{endpoint}', 'rerank');
    const sent = (headers: Record<string, string>) =>
      ask(url, { method, headers, ...(/POST|PATCH/.test(method) ? { body: '{}' } : {}) });
    expectDeclaredError(name, 'origin_not_allowed', await sent({ origin: 'https://example.com' }));
    expectDeclaredError(name, 'expectation_failed', await sent({ expect: 'a-miracle' }));
    expectDeclaredError(name, 'headers_too_large', await sent({ 'x-a': 'a'.repeat(40_000) }));
    const other = await put(url);
    expectDeclaredError(name, 'method_not_allowed', other);
    expect(String(other.headers.allow).split(', ')).toContain(method);
  });

  it.each([...operations.keys()])('of %s: that an API key is missing, where it needs one', async (name) => {
    const [method = '', path = ''] = name.split(' ');
    // A session that is not new is for everybody.
    const query = path.endsWith('/session') ? `?challenge=${'c0'.repeat(32)}` : '';
    const url = `${limited}${path.replace(/\{(id|name)\}/, 'x').replace('{endpoint}', 'rerank')}${query}`;
    const got = await ask(url, { method, ...(/POST|PATCH/.test(method) ? { body: '{}' } : {}) });
    const { security, responses } = operationOf(name);
    expect(got.status === 401).toBe('401' in responses);
    if (got.status === 401) expectDeclaredError(name, 'invalid_api_key', got);
    if (security === undefined) expect(got.status).toBe(401);
    if (security?.length === 0) expect(got.status).not.toBe(401);
  });

  it('and no declared code has no test that produces it', () => {
    const produced = PRODUCED.map(([, code]) => code);
    const everywhere = ['origin_not_allowed', 'expectation_failed', 'headers_too_large', 'method_not_allowed'];
    // The page's own routes are not in the document.
    const known = new Set([...produced, ...everywhere, ...Object.keys(ELSEWHERE), 'collateral_unavailable']);
    expect([...errorCodes.keys()].filter((code) => !known.has(code))).toEqual([]);
    for (const [code, test] of Object.entries(ELSEWHERE)) {
      const file = new URL(`../${test}.test.ts`, import.meta.url);
      expect([code, existsSync(file) && readFileSync(file, 'utf8').includes(`'${code}'`)]).toEqual([code, true]);
    }
  });
});

describe('to a key with limits', () => {
  it('a response is as declared, limits included', async () => {
    const { id, attestation } = await attestedBy('usual');
    expectDeclared(BY_ID, await get(`${limited}${CHAT_PATH}/${id}/attestation`, bearer('usual')));
    expectDeclared('GET /usage', await get(`${limited}/usage`, bearer('usual')));
    expectDeclared('GET /v1/models', await get(`${limited}/v1/models`, bearer('usual')));
    const changed = JSON.stringify({ ...attestation, nonce: '0'.repeat(64) });
    // This gateway takes one verification a second.
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    expectDeclared(`POST ${VERIFY}`, await post(limited + VERIFY, changed), 422);
  });

  it('an error is as declared, limits included', async () => {
    const asked = (body: unknown) => chat(limited, body as object, bearer('usual'));
    expectDeclaredError(`POST ${CHAT_PATH}`, 'invalid_request', await asked({ ...CHAT, tee: 'yes' }));
    expectDeclaredError(BY_ID, 'not_found', await get(`${limited}${CHAT_PATH}/none/attestation`, bearer('usual')));
    stage.service.backend.script = answer('{"detail":"CUDA out of memory."}', 500);
    expectDeclaredError(`POST ${CHAT_PATH}`, 'backend_error', await asked(CHAT));
    stage.service.backend.script = answer('<p>', 200, { 'content-type': 'text/html' });
    expectDeclaredError(`POST ${CHAT_PATH}`, 'backend_bad_response', await asked(CHAT));
  });
});
