// A key with a list of models reaches no other model, by whatever way a backend takes one: path, query, header, member, tool.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Problem } from '../../../gateway/base/problem.ts';
import { type Caller, NO_LIMITS } from '../../../gateway/keys/keys.ts';
import { checkModel } from '../../../gateway/keys/models.ts';
import { type Answer, ask } from '../../support/client.ts';
import { expectError } from '../expect-error.ts';
import { bearer, type Stage, startStage } from '../limits/limits-stage.ts';

const ALL: Caller = { owner: 'a', name: 'a', limits: NO_LIMITS };
const FEW: Caller = { ...ALL, limits: { ...NO_LIMITS, models: new Set(['m1']) } };

function refusal(text: string, caller = FEW): Problem | null {
  try {
    checkModel(caller, text, JSON.parse(text));
    return null;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}

/** Members by which LiteLLM, OpenRouter, Anthropic, OpenAI, SGLang and llama.cpp take another model. */
const NAMING = [
  'fallbacks',
  'models',
  'route',
  'provider',
  'extra_body',
  'deployment_id',
  'moderation',
  'lora_path',
  'lora',
];

describe('a body of a key with a list of models', () => {
  it.each<[string, string]>([
    ['{"model":"m1","Model":"m3"}', 'Model'],
    ['{"MODEL":"m3","model":"m1"}', 'MODEL'],
    ['{"mOdel":"m1"}', 'mOdel'],
    ['{"model":"m1","m\\u004fdel":"m3"}', 'mOdel'],
    ['{"model":"m1","stream":true,"Stream":false}', 'Stream'],
    ['{"model":"m1","top_k":1,"top_\\u212a":2}', 'top_\u212a'],
    ['{"model":"m1","stream":true,"stream":false}', 'stream'],
    ['{"model":"m1","model":"m1"}', 'model'],
    ['{"model":["m1","m3"]}', 'model'],
    ['{"model":null}', 'model'],
    ['{"__proto__":{"model":"m1"}}', '__proto__'],
    ...NAMING.map((name): [string, string] => [`{"model":"m1","${name}":["m3"]}`, name]),
    ['{"model":"m1","logits_processors":["a.b"]}', 'logits_processors'],
    ['{"model":"m1","prompt":{"id":"pmpt_1"}}', 'prompt'],
    ['{"model":"m1","tools":[{"type":"image_generation","model":"m3"}]}', 'tools'],
    ['{"model":"m1","tools":[{"type":"advisor_20260301","name":"advisor","model":"m3"}]}', 'tools'],
    ['{"model":"m1","tools":[{"type":"function","model":"m3"}]}', 'tools'],
    ['{"model":"m1","tools":[{"Type":"image_generation"}]}', 'tools'],
    ['{"model":"m1","tools":[{"type":"image_generation","type":"function"}]}', 'type'],
    ['{"model":"m1","tools":{"type":"image_generation"}}', 'tools'],
    ['{"model":"m1","tools":["image_generation"]}', 'tools'],
    [
      '{"model":"m1","input":[{"type":"additional_tools","tools":[{"type":"image_generation","model":"m3"}]}]}',
      'tools',
    ],
  ])('%s is refused by the name of its member', (text, param) => {
    const problem = refusal(text);
    expect(problem).toMatchObject({ code: 'invalid_request', param });
    expect(problem?.message).toContain('an API key with a list of models');
    expect(refusal(text, ALL)).toBeNull();
  });

  it.each([
    '{"model":"m1","stream":true,"messages":[{"role":"user","content":"Hi"}],"tee":{"batch":true}}',
    '{"model":"m1","messages":[{"Model":"m3","model":"m3"}]}',
    '{"model":"m1","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"model":{}}}}}],"tool_choice":"auto"}',
    '{"model":"m1","max_tokens":9,"system":"s","messages":[],"tools":[{"name":"f","input_schema":{}}],"thinking":{"type":"disabled"}}',
    '{"model":"m1","input":[{"role":"user","content":"Hi"}],"tools":[{"type":"custom","name":"c"}],"previous_response_id":"resp_1"}',
    '{"model":"m1","prompt":["a","b"],"top_k":1,"min_p":0.1,"structured_outputs":{"json":{}},"chat_template_kwargs":{"enable_thinking":false}}',
    '{"model":"m1","tools":null,"query":"q","documents":["d"],"top_n":1}',
  ])('%s is served', (text) => {
    expect(refusal(text)).toBeNull();
  });

  it('is refused as if the model did not exist', () => {
    expect(refusal('{"model":"m3"}')).toMatchObject({ code: 'model_not_found' });
  });
});

describe('a request of a key with a list of models', () => {
  let stage: Stage;
  let url: string;
  beforeAll(async () => {
    stage = await startStage();
    url = await stage.gateway({}, ['few models=m1', 'all']);
  });
  afterAll(() => stage?.close());
  beforeEach(() => {
    const { backend } = stage.service;
    backend.seen.length = 0;
    backend.script = (seen, response) =>
      void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ url: seen.url }));
  });

  const BODY = '{"model":"m1","messages":[{"role":"user","content":"Hi"}]}';
  const post = (path: string, body = BODY, headers = {}): Promise<Answer> =>
    ask(url + path, { body, headers: { 'content-type': 'application/json', ...bearer('few'), ...headers } });

  it.each([
    '/v1/engines/m3/completions',
    '/v1/openai/deployments/m3/chat/completions',
    '/v1/v1/embeddings',
    '/v1/EMBEDDINGS',
    '/v1/embeddings/',
    '/v1/responses/resp_1/cancel',
    '/v1/chat/completions/batch',
    '/v1/messages/batches',
    '/v1/images/generations',
    '/v1/batches',
    '/v1/load_lora_adapter',
  ])('POST %s is refused, and the next one is served', async (path) => {
    expectError(await post(path), 403, 'permission_denied');
    expect(stage.service.backend.seen).toHaveLength(0);
    expect((await post('/v1/embeddings', '{"model":"m1","input":"a"}')).status).toBe(200);
  });

  it.each(['GET /v1/responses/resp_1', 'GET /v1/engines/m3', 'DELETE /v1/responses/resp_1'])(
    '%s is refused',
    async (line) => {
      const [method = '', path = ''] = line.split(' ');
      expectError(await ask(url + path, { method, headers: bearer('few') }), 403, 'permission_denied');
      expect(stage.service.backend.seen).toHaveLength(0);
    },
  );

  it('has no query but that of clients', async () => {
    for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/messages'])
      for (const query of ['?model=m3', '?beta=true&model=m3', '?beta=true;model=m3', '?Model=m3', '?%6dodel=m3', '?a'])
        expectError(await post(path + query, '{"model":"m1","prompt":"a"}'), 400, 'invalid_request');
    const list = await ask(`${url}/v1/models?model=m3`, { method: 'GET', headers: bearer('few') });
    expectError(list, 400, 'invalid_request');
    expect(stage.service.backend.seen).toHaveLength(0);
    for (const path of [
      '/v1/messages?beta=true',
      '/v1/chat/completions?api-version=2024-10-21',
      '/v1/chat/completions?',
    ])
      expect((await post(path)).status).toBe(200);
    const all = await ask(`${url}/v1/chat/completions?model=m3`, { body: BODY, headers: bearer('all') });
    expect([all.status, stage.service.backend.seen.at(-1)?.url]).toEqual([200, '/v1/chat/completions?model=m3']);
  });

  it('carries no header that could choose a model, and its content is read as it was checked', async () => {
    const choosing = {
      'x-model': 'm3',
      'x-portkey-config': '{}',
      'x-litellm-tags': 'a',
      'helicone-model-override': 'm3',
      'helicone-fallbacks': '[]',
      'x-gateway-model-name': 'm3',
      'azureml-model-deployment': 'm3',
      'seldon-model': 'm3',
      'openai-model': 'm3',
      x_model: 'm3',
    };
    const kept = { 'user-agent': 'a', 'anthropic-version': '2023-06-01', 'x-stainless-lang': 'js', 'openai-beta': 'b' };
    for (const path of ['/v1/chat/completions', '/v1/messages']) {
      const type = { 'content-type': 'application/json; charset=utf-7' };
      expect((await post(path, BODY, { ...choosing, ...kept, ...type })).status).toBe(200);
      const { headers } = stage.service.backend.seen.at(-1) ?? { headers: {} };
      expect(Object.keys(choosing).filter((name) => name in headers)).toEqual([]);
      expect(headers).toMatchObject({ ...kept, 'content-type': 'application/json' });
    }
    await ask(`${url}/v1/messages`, { body: BODY, headers: { ...bearer('all'), ...choosing } });
    expect(stage.service.backend.seen.at(-1)?.headers).toMatchObject({ 'x-model': 'm3' });
  });

  it('still gets its attestations by id, of every route that it may use', async () => {
    for (const [path, body] of [
      ['/v1/chat/completions', { ...JSON.parse(BODY), tee: true }],
      ['/v1/embeddings', { model: 'm1', input: 'a', tee: true }],
    ]) {
      stage.service.backend.script = (_seen, response) =>
        void response.writeHead(200, { 'content-type': 'application/json' }).end('{"id":"r1","choices":[]}');
      const got = await post(String(path), JSON.stringify(body));
      expect(got.status).toBe(200);
      const id = got.headers['x-attestation-id'];
      const again = await ask(`${url}${path}/${id}/attestation`, { method: 'GET', headers: bearer('few') });
      expect(again.status).toBe(200);
    }
  });
});
