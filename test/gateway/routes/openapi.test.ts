import { join } from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildApp } from '../../../gateway/app.ts';
import { loadConfig } from '../../../gateway/base/config.ts';
import { STATUS } from '../../../gateway/base/problem.ts';
import { chatRequestSchema, completionRequestSchema } from '../../../proto/openai.ts';
import { createSimulatedCpu } from '../../../sidecar/cpu/simulated/simulated.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type Folder, type Service, SILENT, startService, temporaryFolder } from '../../support/harness.ts';

interface Operation {
  operationId: string;
  parameters?: { name: string; schema: { enum?: string[] } }[];
  responses: Record<string, { description: string; content?: Record<string, { schema: object }> }>;
}
interface Document {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object>; responses: Record<string, { description: string }> };
}

let folder: Folder;
let service: Service;
let document: Document;
let ajv: Ajv2020;

beforeAll(async () => {
  folder = temporaryFolder();
  const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
  service = await startService({}, { cpu: { collector, required: true } });
  service.backend.script = chatAnswer('Hello.');
  const got = await ask(`${service.gateway.url}/openapi.json`, { method: 'GET' });
  expect([got.status, got.headers['content-type']]).toEqual([200, 'application/json']);
  document = got.json();
  ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
  formats.default(ajv);
  ajv.addSchema({ $id: 'doc', components: document.components } as object, 'doc');
  ajv.addKeyword('components');
});
afterAll(async () => {
  await service.close();
  folder.remove();
});

/** The schema of that name, as a function that says whether a value is one. */
const is = (name: string) => {
  const validate = ajv.getSchema(`doc#/components/schemas/${name}`);
  if (validate === undefined) throw new Error(`no schema ${name}`);
  return (value: unknown): boolean => validate(value) as boolean;
};

describe('/openapi.json', () => {
  it('is a valid OpenAPI 3.1 document with an id for every operation', async () => {
    const result = await new Validator().validate(structuredClone(document) as never);
    expect(result.errors).toBeUndefined();
    expect(result.valid).toBe(true);
    expect(document.openapi).toMatch(/^3\.1\./);
    const ids = Object.values(document.paths).flatMap((path) => Object.values(path).map((one) => one.operationId));
    expect(new Set(ids).size).toBe(ids.length);
    // The validator does refuse.
    const broken = { ...structuredClone(document), paths: { 'no-slash': 1 } };
    expect((await new Validator().validate(broken as never)).valid).toBe(false);
  });

  it('names routes that are there: none answers 404 or 405 by itself', async () => {
    for (const [path, operations] of Object.entries(document.paths))
      for (const method of Object.keys(operations)) {
        const url = service.gateway.url + path.replace('{id}', 'x');
        const got = await ask(url, { method: method.toUpperCase(), ...(method === 'post' ? { body: '{}' } : {}) });
        if (path.endsWith('/attestation')) expect(got.json().error.param, path).toBe('id');
        else expect([404, 405], `${method} ${path}`).not.toContain(got.status);
        expect(Object.keys(operations[method]?.responses ?? {}), `${method} ${path}`).toContain(String(got.status));
      }
  });

  it('names the type of a stream on every route that is asked for one', async () => {
    service.backend.script = chatStream(['Hello.']);
    for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/responses']) {
      const body = JSON.stringify({ ...CHAT, prompt: '', stream: true });
      const got = await ask(`${service.gateway.url}${path}`, { body });
      const [type] = String(got.headers['content-type']).split(';');
      expect(Object.keys(document.paths[path]?.post?.responses[200]?.content ?? {}), path).toContain(type);
    }
    service.backend.script = chatAnswer('Hello.');
  });

  it('names each form of the verification that the route takes', async () => {
    const { parameters = [] } = document.paths['/~sev_gpu@1.0/verify']?.post ?? {};
    const forms = parameters.find(({ name }) => name === 'report')?.schema.enum ?? [];
    expect(forms).toEqual(['0', '1', 'ear']);
    for (const form of [...forms, 'cmw']) {
      const got = await ask(`${service.gateway.url}/~sev_gpu@1.0/verify?report=${form}`, { body: '{}' });
      expect([form, got.json().error?.param === 'report']).toEqual([form, form === 'cmw']);
    }
  });

  it('names every code of every error that its routes make', () => {
    const described = Object.values(document.components.responses).map(({ description }) => description);
    // A code of /page/collateral alone, which serves the page and is not in the document.
    const codes = Object.keys(STATUS).filter((code) => code !== 'collateral_unavailable');
    for (const code of codes) expect(described.join(), code).toContain(`\`${code}\``);
  });

  it('describes every route but those that the page alone uses', async () => {
    const config = loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', SIDECAR_SOCKET: join(folder.path, 'none') });
    const { app, close } = buildApp(config, SILENT);
    const served = app.routes.map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
    await close();
    const pageAlone = served.filter((route) => route.includes(' /page/') || route.startsWith('OPTIONS '));
    expect(pageAlone.length).toBe(6);
    const described = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(served.filter((route) => !pageAlone.includes(route) && !described.includes(route))).toEqual([]);
  });
});

describe('its schemas', () => {
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

  it('take and refuse the bodies that the gateway takes and refuses', async () => {
    const agree = async (path: string, name: string, body: unknown) => {
      const got = await ask(service.gateway.url + path, { body: JSON.stringify(body) });
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
    const body = fc.record(
      { model: member, stream: member, tee: member, n: member, messages, prompt: member, other: member },
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

  it('describe the answers: completion, attestation, verification, health, error', async () => {
    const got = await chat(service.gateway.url, { ...CHAT, tee: true });
    expect(is('ChatCompletion')(got.json())).toBe(true);
    const { attestation } = got.json();
    expect(is('Attestation')(attestation)).toBe(true);
    expect(is('Attestation')({ ...attestation, nonce: 'x' })).toBe(false);
    const verify = (query: string, body: object) =>
      ask(`${service.gateway.url}/~sev_gpu@1.0/verify${query}`, { body: JSON.stringify(body) });
    const report = (await verify('?report=1', attestation)).json();
    expect(report.valid).toBe(true);
    expect(is('VerificationReport')(report)).toBe(true);
    const failed = (await verify('?report=1', { ...attestation, nonce: '0'.repeat(64) })).json();
    expect(is('VerificationReport')(failed)).toBe(true);
    const content = document.paths['/~sev_gpu@1.0/verify']?.post?.responses[200]?.content ?? {};
    for (const nonce of [attestation.nonce, '0'.repeat(64)]) {
      const ear = await verify('?report=ear', { ...attestation, nonce });
      expect(is('AttestationResult')(ear.json())).toBe(true);
      expect(Object.keys(content)).toContain(String(ear.headers['content-type']).split(';')[0]);
    }
    expect(is('AttestationResult')({ ...report, ear_status: 'fine' })).toBe(false);
    expect(is('Error')((await verify('', { ...attestation, nonce: '0'.repeat(64) })).json())).toBe(true);
    expect(is('Error')((await chat(service.gateway.url, '{')).json())).toBe(true);
    expect(is('Health')((await ask(`${service.gateway.url}/health`, { method: 'GET' })).json())).toBe(true);
  });
});
