// /openapi.json beside a running gateway: the same routes, the same codes, and schemas of what the gateway takes and sends.
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { Validator } from '@seriousme/openapi-schema-validator';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildApp } from '../../../gateway/app.ts';
import { loadConfig, VERSION } from '../../../gateway/base/config.ts';
import { STATUS } from '../../../gateway/base/problem.ts';
import { chatRequestSchema, completionRequestSchema } from '../../../proto/openai.ts';
import { CHECKS, CPU_CHECKS, LEVELS } from '../../../verify/index.ts';
import { FAILURE_CODES } from '../../../verify/service.ts';
import { answer, chatAnswer, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import {
  eventually,
  type Folder,
  type Service,
  SILENT,
  startServiceWithProcessor,
  temporaryFolder,
} from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import {
  codesOf,
  compiled,
  declared,
  document,
  errorCodes,
  examplesOf,
  expectDeclared,
  is,
  type Json,
  operationOf,
  operations,
  resolved,
  schemaOf,
  verificationCodes,
} from './openapi-document.ts';

/** What a client loads, gzipped. */
const MAX_GZIPPED_BYTES = 20 * 1024;
const VERIFY = '/~sev_gpu@1.0/verify';

const COMPLETION = JSON.stringify({
  id: 'cmpl-1',
  object: 'text_completion',
  choices: [{ index: 0, text: ' Hello.', finish_reason: 'stop' }],
});

let folder: Folder;
let service: Service;
let url: string;

beforeAll(async () => {
  folder = temporaryFolder();
  service = await startServiceWithProcessor();
  service.backend.script = chatAnswer('Hello.');
  url = service.gateway.url;
});
afterAll(async () => {
  await service.close();
  folder.remove();
});

const get = (path: string, headers = {}) => ask(url + path, { method: 'GET', headers });
const post = (path: string, body: unknown, headers = {}) => ask(url + path, { body: JSON.stringify(body), headers });

describe('/openapi.json', () => {
  it('is a valid OpenAPI 3.1 document with an id for every operation', async () => {
    const result = await new Validator().validate(structuredClone(document) as never);
    expect(result.errors).toBeUndefined();
    expect(result.valid).toBe(true);
    expect(document.openapi).toMatch(/^3\.1\./);
    expect(document.info.version).toBe(VERSION);
    const ids = [...operations.values()].map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
    // The validator does refuse.
    const broken = { ...structuredClone(document), paths: { 'no-slash': 1 } };
    expect((await new Validator().validate(broken as never)).valid).toBe(false);
  });

  it('is sent once: 304 to a client that has it, gzipped to one that accepts it', async () => {
    const whole = await get('/openapi.json');
    const { 'content-type': type, 'cache-control': cache, vary, etag = '' } = whole.headers;
    expect([whole.status, type, cache, vary]).toEqual([200, 'application/json', 'no-cache', 'origin, accept-encoding']);
    expect(whole.json()).toEqual(document);
    const again = await get('/openapi.json', { 'if-none-match': etag });
    expect([again.status, again.text]).toEqual([304, '']);
    expect((await get('/openapi.json', { 'if-none-match': '"another"' })).status).toBe(200);
    const zipped = await get('/openapi.json', { 'accept-encoding': 'gzip, br' });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(zipped.body).equals(whole.body)).toBe(true);
    expect(zipped.body.length).toBeLessThan(MAX_GZIPPED_BYTES);
    expect(gzipSync(whole.body, { level: 9 }).length).toBe(zipped.body.length);
  });

  it('responds to HEAD, to no other method, and to no page of another origin', async () => {
    expect((await ask(`${url}/openapi.json`, { method: 'HEAD' })).status).toBe(200);
    const got = await post('/openapi.json', {});
    expectError(got, 405, 'method_not_allowed');
    expect(got.headers.allow).toBe('GET');
    expectError(await get('/openapi.json', { origin: 'https://example.com' }), 403, 'origin_not_allowed');
  });
});

describe('its routes', () => {
  it('include every route of the gateway except those that only the page uses', async () => {
    const config = loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', SIDECAR_SOCKET: join(folder.path, 'none') });
    const { app, close } = buildApp(config, SILENT);
    const served = app.routes.map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
    await close();
    const ofPage = served.filter((route) => route.includes(' /page/') || route.startsWith('OPTIONS '));
    expect(ofPage.length).toBe(6);
    expect(served.filter((route) => !ofPage.includes(route) && !operations.has(route))).toEqual([]);
  });

  it.each([...operations.keys()])('%s is there: the gateway responds with a declared status', async (name) => {
    const [method = '', path = ''] = name.split(' ');
    const target = url + path.replace(/\{(id|name)\}/, 'x').replace('{endpoint}', 'rerank');
    const got = await ask(target, { method, ...(method === 'POST' ? { body: '{}' } : {}) });
    // Without a keys file there are none to manage, and no release stands beside it.
    if (path.startsWith('/admin/') || path.endsWith('/countersign/release')) expectError(got, 404, 'not_found');
    else if (path.endsWith('/attestation')) expectError(got, 404, 'not_found', 'id');
    else expect([404, 405]).not.toContain(got.status);
    expect(Object.keys(operationOf(name).responses)).toContain(String(got.status));
  });

  it('a path that is not declared is not there', async () => {
    expectError(await get('/docs'), 404, 'not_found');
  });

  it('declare the parameters of a verification: the gateway takes each declared value, and no other', async () => {
    const parameters = operationOf(`POST ${VERIFY}`).parameters ?? [];
    const valuesOf = (name: string) =>
      (resolved(parameters.find((one) => one.name === name)?.schema ?? {}) as { enum?: string[] }).enum ?? [];
    expect(valuesOf('report')).toEqual(['0', '1']);
    expect(valuesOf('min_level')).toEqual(LEVELS);
    for (const [name, value, taken] of [
      ...valuesOf('report').map((one) => ['report', one, true] as const),
      ...valuesOf('min_level').map((one) => ['min_level', one, true] as const),
      ['report', 'cmw', false] as const,
      ['min_level', 'any', false] as const,
      ['max_batch', '4096', true] as const,
      ['max_batch', '4097', false] as const,
      ['event', '1', true] as const,
      ['event', '0', false] as const,
    ]) {
      const got = await post(`${VERIFY}?${name}=${encodeURIComponent(value)}`, {});
      expect([name, value, got.json().error?.param !== name]).toEqual([name, value, taken]);
    }
  });
});

describe('its codes', () => {
  it('are those of the gateway, with their statuses', () => {
    const statuses = [...errorCodes].map(([code, description]) => [code, /^\d\w\w/.exec(description)?.[0]]);
    const expected = Object.entries(STATUS).map(([code, status]) => [code, String(status)]);
    expect(statuses.sort()).toEqual([...expected, ['backend_error', '5xx']].sort());
  });

  it('of failed checks, and the names of checks, are those of the verifier', () => {
    // The endpoint compares no answer with a release.
    const others = FAILURE_CODES.filter((code) => !code.startsWith('release_'));
    expect(verificationCodes.toSorted()).toEqual(others.toSorted());
    const { checks } = schemaOf('VerificationReport').properties as {
      checks: { items: { properties: { name: { enum: string[] } } } };
    };
    expect(checks.items.properties.name.enum.toSorted()).toEqual([...CHECKS, ...CPU_CHECKS].toSorted());
  });

  it('stand at the statuses that they have, and each at an operation', () => {
    const used = new Set<string>();
    for (const [name, { responses }] of operations)
      for (const status of Object.keys(responses).filter((one) => Number(one) >= 400)) {
        const codes = codesOf(declared(name, status));
        // The body of this 503 is the state of the service.
        expect([name, status, codes.length > 0]).toEqual([name, status, `${name} ${status}` !== 'GET /health 503']);
        for (const code of codes) {
          const own = code === 'backend_error' ? '500' : errorCodes.get(code)?.slice(0, 3);
          if (own === status) used.add(code);
          else if (code !== 'not_an_attestation') expect([code, status]).toEqual([code, '422']);
          if (own !== status) expect(verificationCodes).toContain(code);
        }
      }
    // The page's own routes are not in the document.
    expect([...errorCodes.keys()].filter((code) => !used.has(code))).toEqual(['collateral_unavailable']);
  });
});

describe('its descriptions', () => {
  /** Every object of the document that stands under `name`, with the way to it. References are not followed. */
  function* everywhere(name: string, value: unknown = document, way = ''): Generator<[way: string, found: Json]> {
    if (typeof value !== 'object' || value === null) return;
    for (const [member, inside] of Object.entries(value)) {
      // An example is no part of the document.
      if (member === 'value' || member === 'example') continue;
      const next = `${way}/${member}`;
      if (member === name && !Array.isArray(inside)) yield [next, inside as Json];
      yield* everywhere(name, inside, next);
    }
  }
  const isDescribed = (value: unknown): boolean => {
    const { description } = value as { description?: string };
    if (description !== undefined) return description.trim().length >= 3;
    return '$ref' in (value as object) && isDescribed(resolved(value));
  };

  it.each(['properties', 'headers', 'responses', 'schemas', 'securitySchemes'])('are there of all %s', (name) => {
    const all = [...everywhere(name)].flatMap(([way, named]) =>
      Object.entries(named).map(([member, value]) => [`${way}/${member}`, value] as const),
    );
    expect(all.length).toBeGreaterThan(1);
    expect(all.filter(([, value]) => !isDescribed(value)).map(([way]) => way)).toEqual([]);
  });

  it('are there of all operations, parameters and requests, and examples are of their schema', () => {
    let examples = 0;
    for (const [name, { summary, parameters = [], requestBody }] of operations) {
      expect(summary.length, name).toBeGreaterThan(5);
      for (const parameter of parameters.map(resolved)) {
        expect(isDescribed(parameter), `${name} ${parameter.name}`).toBe(true);
        expect(examplesOf(parameter).length, `${name} ${parameter.name}`).toBeGreaterThan(0);
      }
      if (requestBody !== undefined) expect(isDescribed(requestBody), name).toBe(true);
      const shown = [...parameters.map(resolved), ...Object.values(requestBody?.content ?? {})].flatMap(examplesOf);
      for (const [schema, value] of shown) expect(compiled(schema)(value), `${name} ${value}`).toBe(true);
      examples += shown.length;
    }
    expect(examples).toBeGreaterThan(30);
  });
});

describe('its schemas of requests', () => {
  const chats = [
    CHAT,
    { ...CHAT, tee: true, stream: true, stream_options: { include_usage: true }, n: 2, stop: ['a'], tools: [{ x: 1 }] },
    { messages: [{ role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'x' }] }], stream: null, n: null },
    {},
    { messages: [] },
    { messages: 'hi' },
    { messages: ['hi'] },
    { messages: [{ content: 'x' }] },
    { ...CHAT, stream: 'yes' },
    { ...CHAT, tee: 'yes' },
    { ...CHAT, tee: null },
    { ...CHAT, n: 0 },
    { ...CHAT, model: 5 },
    [],
    null,
  ];
  const completions = [
    { prompt: 'x' },
    { prompt: ['x', 'y'], tee: true },
    { prompt: [1, 2] },
    { prompt: [[1], [2]] },
    { prompt: null },
    {},
    { prompt: { x: 1 } },
    { prompt: [1.5] },
    { prompt: 'x', n: 129 },
  ];

  it('accept and reject the bodies that the gateway accepts and rejects', async () => {
    const agree = async (path: string, name: string, body: unknown) => {
      const got = await post(path, body);
      expect(is(name)(body), JSON.stringify(body)).toBe(got.status === 200);
    };
    for (const body of chats) await agree('/v1/chat/completions', 'ChatCompletionRequest', body);
    for (const body of completions) await agree('/v1/completions', 'CompletionRequest', body);
  });

  it('say the same as the schemas that validate, on bodies that nobody thought of', () => {
    const member = fc.oneof(fc.jsonValue(), fc.boolean(), fc.integer({ min: -1, max: 130 }), fc.constant(null));
    const messages = fc.oneof(
      member,
      fc.array(fc.oneof(member, fc.record({ role: member }), fc.record({ role: fc.string() }))),
    );
    const tee = fc.oneof(member, fc.record({ batch: member, challenge: fc.string() }, { requiredKeys: [] }));
    const body = fc.record(
      { model: member, stream: member, tee, n: member, messages, prompt: member, other: member },
      { requiredKeys: [] },
    );
    const chatBody = is('ChatCompletionRequest');
    const completionBody = is('CompletionRequest');
    fc.assert(
      fc.property(body, (value) => {
        expect(chatBody(value)).toBe(chatRequestSchema.safeParse(value).success);
        expect(completionBody(value)).toBe(completionRequestSchema.safeParse(value).success);
      }),
      { numRuns: 500 },
    );
  });
});

describe('a response of the gateway', () => {
  it('to a generation is as declared: whole, with tee, as a stream, and its attestation again', async () => {
    for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/rerank']) {
      const name = `POST ${path.replace('rerank', '{endpoint}')}`;
      const body = { ...CHAT, prompt: '', input: '', max_tokens: 1 };
      service.backend.script = path === '/v1/completions' ? answer(COMPLETION) : chatAnswer('Hello.');
      expectDeclared(name, await post(path, body));
      for (const tee of [true, { batch: true }]) {
        const got = await post(path, { ...body, tee });
        expectDeclared(name, got);
        expect(is('Attestation')(got.json().attestation)).toBe(true);
        expect(is('Attestation')({ ...got.json().attestation, nonce: 'x' })).toBe(false);
        const again = await get(`${path}/${got.headers['x-attestation-id']}/attestation`);
        expectDeclared(
          `GET ${path.replace('rerank', '{endpoint}')}/{id}/attestation`.replace(/(responses|messages)/, '{endpoint}'),
          again,
        );
      }
      if (path === '/v1/rerank') continue;
      service.backend.script = chatStream(['Hello.']);
      expectDeclared(name, await post(path, { ...body, stream: true }));
    }
    service.backend.script = chatAnswer('Hello.');
    expectDeclared('POST /v1/embeddings', await post('/v1/embeddings', { input: 'x' }));
    expectDeclared('GET /v1/models', await get('/v1/models'));
    expectDeclared('GET /v1/models/{id}', await get('/v1/models/x'));
  });

  it('of another route is as declared', async () => {
    await eventually(async () => (await get('/v1/attestation/session')).status === 200);
    expectDeclared('GET /v1/attestation/session', await get('/v1/attestation/session'));
    expectDeclared('GET /.well-known/ohttp-keys', await get('/.well-known/ohttp-keys'));
    const health = await get('/health');
    expectDeclared('GET /health', health);
    expect(is('Health')({ ...health.json(), more: 1 })).toBe(false);
    expectDeclared('GET /metrics', await get('/metrics'));
    expectDeclared('GET /metrics/picker', await get('/metrics/picker'));
    expectDeclared('GET /openapi.json', await get('/openapi.json'));
  });

  it('to a verification is as declared, in each form', async () => {
    const { attestation } = (await chat(url, { ...CHAT, tee: true })).json();
    const changed = { ...attestation, nonce: '0'.repeat(64) };
    const name = `POST ${VERIFY}`;
    expectDeclared(name, await post(VERIFY, attestation));
    for (const body of [attestation, changed]) {
      const report = await post(`${VERIFY}?report=1`, body);
      expectDeclared(name, report);
      expect(is('VerificationReport')(report.json())).toBe(true);
      expect(is('VerificationReport')({ ...report.json(), level: 'high' })).toBe(false);
    }
    expectDeclared(name, await post(VERIFY, changed), 422);
    expectDeclared(`GET ${VERIFY}`, await ask(`${url}${VERIFY}`, { method: 'GET', body: JSON.stringify(attestation) }));
  });
});
