// Every endpoint whose request and answer are JSON objects can be proven, and says where it cannot.
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { appraiseAttestation, verifyAttestation } from '../../../verify/index.ts';
import { answer, chatAnswer, chatBody, chatStream, stream } from '../../support/backend.ts';
import { ask, CHAT } from '../../support/client.ts';
import { messageBody, messageEvents, namedStream, responseBody, responseEvents } from '../../support/named-streams.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const options = () => ({ simulatedRoot: service.sidecar.attester.simulated?.root });

const EMBEDDINGS = { object: 'list', data: [{ object: 'embedding', index: 0, embedding: [0.25, 1e-9] }], model: 'm' };
const ENDPOINTS = [
  ['/v1/responses', { model: 'm', input: 'Hi' }, responseBody('Hello.')],
  ['/v1/messages', { model: 'm', max_tokens: 5, messages: [] }, messageBody([{ type: 'text', text: 'Hello.' }])],
  ['/v1/embeddings', { model: 'm', input: ['a', 'b'] }, EMBEDDINGS],
  ['/v1/moderations', { input: 'a' }, { id: 'modr-1', results: [{ flagged: false }] }],
  ['/v1/rerank', { query: 'a', documents: ['b'] }, { results: [{ index: 0, relevance_score: 0.5 }] }],
  ['/v1/tokenize', { prompt: 'a' }, { tokens: [1, 2], count: 2 }],
] as const;

describe.each(ENDPOINTS)('POST %s', (path, request, response) => {
  it('is attested where the body asks for it, and its raw names it', async () => {
    const [body, written] = [JSON.stringify({ ...request, tee: true }), JSON.stringify(response, null, 1)];
    service.backend.script = answer(written);
    const got = await ask(`${service.url}${path}?trace=1`, { body });
    const { attestation } = got.json();
    expect(attestation.raw.startsWith(`{"endpoint":"${path}","request":`)).toBe(true);
    expect(splitRaw(attestation.raw)).toMatchObject({ endpoint: path, request: body, response: written });
    expect(got.text).toBe(`${written.slice(0, -1)},"attestation":${JSON.stringify(attestation)}}`);
    expect(service.backend.seen[0]).toMatchObject({ url: `${path}?trace=1`, body: JSON.stringify(request) });
    const { exchange } = await verifyAttestation(got.text, {
      ...options(),
      expected: { endpoint: path, request: body },
    });
    expect(exchange.endpoint).toBe(path);
  });

  it('is attested where a header asks for it, and its attestation is kept for the same path', async () => {
    service.backend.script = answer(JSON.stringify(response));
    const body = JSON.stringify(request);
    const got = await ask(`${service.url}${path}`, { body, headers: { 'x-tee': '1' } });
    const id = got.headers['x-attestation-id'];
    const kept = await ask(`${service.url}${path}/${id}/attestation`, { method: 'GET' });
    expect(kept.json()).toEqual(got.json().attestation);
    expect(got.headers['x-tee']).toBeUndefined();
  });

  it('is given as it came with x-tee: header, and its attestation is fetched', async () => {
    const written = JSON.stringify(response);
    service.backend.script = answer(written);
    const body = JSON.stringify(request);
    const got = await ask(`${service.url}${path}`, { body, headers: { 'x-tee': 'header, batch' } });
    expect(got.text).toBe(written);
    const id = got.headers['x-attestation-id'];
    const kept = await ask(`${service.url}${path}/${id}/attestation`, { method: 'GET' });
    const report = await appraiseAttestation(kept.text, {
      ...options(),
      expected: { request: body, response: written },
    });
    expect([report.valid, report.claims.batch?.tree_size]).toEqual([true, 1]);
  });

  it('is what it was without tee', async () => {
    service.backend.script = answer(JSON.stringify(response));
    const got = await ask(`${service.url}${path}`, { body: JSON.stringify(request) });
    expect([got.status, got.text]).toEqual([200, JSON.stringify(response)]);
    expect(got.headers['x-attestation-id']).toBeUndefined();
  });

  it('is refused as the attestation of another endpoint', async () => {
    service.backend.script = answer(JSON.stringify(response));
    const got = await ask(`${service.url}${path}`, { body: JSON.stringify({ ...request, tee: true }) });
    for (const endpoint of ['/v1/chat/completions', `${path}/x`]) {
      const { checks } = await appraiseAttestation(got.text, { ...options(), expected: { endpoint } });
      expect(checks.find(({ status }) => status === 'fail')).toMatchObject({ code: 'endpoint_mismatch' });
    }
  });
});

describe('an answer that is none of its endpoint', () => {
  it.each([
    ['/v1/completions', chatBody('Hi')],
    ['/v1/responses', chatBody('Hi')],
    ['/v1/messages', JSON.stringify(responseBody('Hi'))],
    ['/v1/chat/completions', JSON.stringify(messageBody([]))],
  ])('of %s is refused by the verifier, which sees it', async (path, body) => {
    service.backend.script = answer(body);
    const request = JSON.stringify({ ...CHAT, prompt: 'Hi', tee: true });
    const { checks } = await appraiseAttestation((await ask(service.url + path, { body: request })).text, options());
    expect(checks.find(({ status }) => status === 'fail')).toMatchObject({
      name: 'expected_exchange',
      code: 'endpoint_mismatch',
    });
  });
});

describe('what cannot be proven', () => {
  const JSON_TYPE = { 'content-type': 'application/json' };
  const audio = answer(Buffer.from([0xff, 0xfb, 0x90]), 200, { 'content-type': 'audio/mpeg' });

  it.each([
    ['a GET', 'GET', '/v1/files/f-1/content', undefined, {}],
    ['a DELETE', 'DELETE', '/v1/files/f-1', undefined, {}],
    [
      'a multipart body',
      'POST',
      '/v1/files',
      '--b\r\n\r\n--b--',
      { 'content-type': 'multipart/form-data; boundary=b' },
    ],
    ['a body that is none', 'POST', '/v1/responses/r-1/cancel', '', JSON_TYPE],
    ['a body that is a list', 'POST', '/v1/rerank', '[1]', JSON_TYPE],
    ['an answer of another type', 'POST', '/v1/audio/speech', '{"input":"a"}', JSON_TYPE],
    ['a stream that no rule folds', 'POST', '/v1/images/generations', '{"stream":true}', JSON_TYPE],
  ])('is passed through with x-tee: unsupported where a header asks: %s', async (_name, method, path, body, type) => {
    service.backend.script = path.includes('images') ? stream(['event: image.partial\ndata: {}\n\n']) : audio;
    const got = await ask(service.url + path, {
      method,
      headers: { 'x-tee': '1', ...type },
      ...(body === undefined ? {} : { body }),
    });
    expect([got.status, got.headers['x-tee']]).toEqual([200, 'unsupported']);
    expect(got.headers['x-attestation-id']).toBeUndefined();
    expect(got.text).toBe(path.includes('images') ? 'event: image.partial\ndata: {}\n\n' : got.text);
    expect(service.backend.seen).toHaveLength(1);
  });

  it.each([
    ['/v1/audio/speech', audio],
    ['/v1/images/generations', stream(['event: image.partial\ndata: {}\n\n'])],
  ])('is a 400 where the body asks: %s', async (path, script) => {
    service.backend.script = script;
    const got = await ask(service.url + path, { body: '{"input":"a","tee":true}' });
    expect([got.status, got.json().error]).toMatchObject([400, { code: 'invalid_request', param: 'tee' }]);
  });

  it.each([
    ['a list', '[1,2]'],
    ['a text', '"hello"'],
    ['an error as if it were an answer', '{"error":{"message":"no"}}'],
    ['an error beside choices', '{"id":"a","choices":[],"error":{"message":"no"}}'],
    ["vLLM's error", '{"object":"error","message":"no","type":"NotFoundError","param":null,"code":404}'],
    ["vLLM's error with an id", '{"id":"a","object":"error","message":"no"}'],
    ["Anthropic's error without its member", '{"type":"error","message":"no"}'],
    ['an attestation of its own', '{"attestation":{}}'],
    ['no JSON', '{"data":'],
  ])('is an error where the backend answers %s', async (_name, body) => {
    service.backend.script = answer(body);
    for (const headers of [{ 'x-tee': '1' }, {}]) {
      const tee = 'x-tee' in headers ? {} : { tee: true };
      const got = await ask(`${service.url}/v1/embeddings`, { body: JSON.stringify({ input: 'a', ...tee }), headers });
      expect([got.status, got.json().error.code]).toEqual([502, 'backend_bad_response']);
    }
  });

  it('is not an object that tells of a failure of its own: it is attested as any other', async () => {
    const run = { id: 'run_1', object: 'eval.run', status: 'failed', error: { code: 'failed', message: 'no grader' } };
    service.backend.script = answer(JSON.stringify(run));
    const got = await ask(`${service.url}/v1/evals/e-1/runs`, { body: '{"data_source":{},"tee":true}' });
    expect((await appraiseAttestation(got.text, options())).valid).toBe(true);
    expect(got.json()).toMatchObject(run);
  });

  it.each(['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages'])(
    'is an answer of %s that failed, whatever its id, and the next answer is attested',
    async (path) => {
      const failures = [
        responseBody('', { status: 'failed', error: { code: 'no' } }),
        { object: 'error', message: 'no', type: 'NotFoundError', param: null, code: 404 },
        { id: 'a', type: 'error', message: 'no' },
        { type: 'error', error: { type: 'overloaded_error', message: 'no' } },
      ];
      const body = JSON.stringify({ ...CHAT, prompt: 'a', tee: true });
      for (const failure of failures) {
        service.backend.script = answer(JSON.stringify(failure));
        const got = await ask(service.url + path, { body });
        expect([got.status, got.json().error.code]).toEqual([502, 'backend_bad_response']);
        const plain = await ask(service.url + path, { body: JSON.stringify({ ...CHAT, prompt: 'a' }) });
        expect([plain.status, plain.text]).toEqual([200, JSON.stringify(failure)]);
      }
      service.backend.script = answer(JSON.stringify({ id: 'a', object: 'good', error: null }));
      expect((await ask(service.url + path, { body })).json().attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
    },
  );

  it.each(['2', 'yes', 'header,,', ''])('is a 400 with x-tee: %s', async (value) => {
    const got = await ask(`${service.url}/v1/embeddings`, { body: '{"input":"a"}', headers: { 'x-tee': value } });
    expect([got.status, got.json().error.param]).toEqual([400, 'x-tee']);
  });
});

describe('details that clients rely on', () => {
  it('takes a model that is null as absent', async () => {
    const got = await ask(`${service.url}/v1/chat/completions`, {
      body: JSON.stringify({ ...CHAT, model: null, tee: null }),
    });
    expect([got.status, got.json().attestation]).toEqual([200, undefined]);
  });

  it("keeps a backend's further members of an error, and x-should-retry", async () => {
    const error = { message: 'busy', type: 'overloaded_error', metadata: { provider: 'x' }, code: 529 };
    service.backend.script = answer(JSON.stringify({ type: 'error', error, request_id: 'r-1' }), 503, {
      'x-should-retry': 'false',
    });
    const got = await ask(`${service.url}/v1/messages`, { body: '{"messages":[]}' });
    expect(got.headers['x-should-retry']).toBe('false');
    const told = await ask(`${service.url}/v1/chat/completions`, { body: JSON.stringify(CHAT) });
    expect(told.json()).toEqual({
      type: 'error',
      error: { ...error, code: 'backend_error', param: null },
      request_id: 'r-1',
    });
  });

  it.each([
    ['chat/completions', CHAT, chatStream(['Hel', 'lo'])],
    ['responses', { input: 'Hi' }, namedStream(responseEvents(['Hel', 'lo']))],
    ['messages', { messages: [] }, namedStream(messageEvents(['Hel', 'lo']))],
  ] as const)('checks a saved stream at the verify endpoint: %s', async (path, request, script) => {
    service.backend.script = script;
    const body = JSON.stringify({ ...request, stream: true, tee: true });
    const { text } = await ask(`${service.url}/v1/${path}`, { body });
    const verify = (stream: string) =>
      ask(`${service.url}/~sev_gpu@1.0/verify`, { body: stream, headers: { 'content-type': 'text/event-stream' } });
    expect((await verify(text)).text).toBe('true');
    const changed = await verify(text.replace('Hel', 'Hal'));
    expect([changed.status, changed.json().error.code]).toEqual([422, 'stream_mismatch']);
  });

  it('tells the verify endpoint which endpoint it must be, and how many may share a signature', async () => {
    service.backend.script = answer(JSON.stringify(EMBEDDINGS));
    const { text } = await ask(`${service.url}/v1/embeddings`, { body: '{"input":"a","tee":{"batch":true}}' });
    const verify = (query: string) => ask(`${service.url}/~sev_gpu@1.0/verify?${query}`, { body: text });
    expect((await verify('endpoint=/v1/embeddings&max_batch=1')).text).toBe('true');
    const other = await verify('endpoint=/v1/responses');
    expect([other.status, other.json().error.code]).toEqual([422, 'endpoint_mismatch']);
    for (const [query, param] of [
      ['endpoint=embeddings', 'endpoint'],
      ['max_batch=0', 'max_batch'],
      ['max_batch=x', 'max_batch'],
      ['max_batch=4097', 'max_batch'],
    ] as const) {
      const wrong = await verify(query);
      expect([wrong.status, wrong.json().error.param]).toEqual([400, param]);
    }
  });

  it('has nothing to do with attestations of another key', async () => {
    service.backend.script = chatAnswer('Hi');
    const got = await ask(`${service.url}/v1/embeddings/none/attestation`, { method: 'GET' });
    expect([got.status, got.json().error.code]).toEqual([404, 'not_found']);
  });
});
