// Several backends on one node: which one a request goes to, and with what.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { verifyAttestation } from '../../../verify/index.ts';
import { answer, type Backend, chatBody, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, startSidecar, temporaryFolder } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { afterwards, answeredBy, get, modelsAt, stageOf, turns } from './backends-stage.ts';

/** One for `a` and `b`, one for `b`, one for everything else. */
const named = (backends: readonly Backend[]) => [
  { url: backends[0]?.url, models: ['a', 'b'], name: 'first' },
  { url: backends[1]?.url, models: ['b'] },
  { url: backends[2]?.url },
];
const seen = (backends: readonly Backend[]) => backends.map((backend) => backend.seen.map(({ url }) => url));

describe('a request', () => {
  it('goes to the backends that name its model, else to those that name none', async () => {
    const { url } = await stageOf(3, named);
    expect(await turns(url, 3, { ...CHAT, model: 'a' })).toEqual([0, 0, 0]);
    expect(await turns(url, 4, { ...CHAT, model: 'b' })).toEqual([0, 1, 0, 1]);
    expect(await turns(url, 2, { ...CHAT, model: 'whatever' })).toEqual([2, 2]);
    const { model: _, ...without } = CHAT;
    expect(await turns(url, 2, without)).toEqual([2, 2]);
    const completion = await ask(`${url}/v1/completions`, { body: '{"model":"a","prompt":"Hi"}' });
    expect(answeredBy(completion)).toBe(0);
  });

  it.each([
    [
      [3, 1],
      [0, 0, 1, 0, 0, 0, 1, 0],
    ],
    [
      [5, 1, 1],
      [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0],
    ],
    [
      [1, 1],
      [0, 1, 0, 1],
    ],
  ])('has its turn by weight, exactly and evenly spread: %j', async (weights, expected) => {
    const { url } = await stageOf(weights.length, (all) => all.map((one, i) => ({ url: one.url, weight: weights[i] })));
    expect(await turns(url, expected.length)).toEqual(expected);
  });

  it('whose model no backend has is a 404 in the words of OpenAI, and no backend is asked', async () => {
    const { url, backends } = await stageOf(2, (all) => all.map((one, i) => ({ url: one.url, models: [`m${i}`] })));
    const got = await chat(url, { ...CHAT, model: 'm2' });
    expectError(got, 404, 'model_not_found');
    expect(got.json().error.message).toBe('The model `m2` does not exist or you do not have access to it.');
    expectError(await ask(`${url}/v1/embeddings`, { body: '{"model":"m2","input":"a"}' }), 404, 'model_not_found');
    expectError(await get(`${url}/v1/models/m2`), 404, 'model_not_found');
    // Without a model nothing says where to go.
    const { model: _, ...without } = CHAT;
    expectError(await chat(url, without), 400, 'invalid_request', 'model');
    expectError(await ask(`${url}/v1/embeddings`, { body: '{"input":"a"}' }), 400, 'invalid_request', 'model');
    expectError(await get(`${url}/v1/files`), 404, 'not_found');
    expect(seen(backends)).toEqual([[], []]);
  });

  it('of another endpoint goes by the model in its JSON, its form or its path', async () => {
    const { url, backends } = await stageOf(3, named);
    const post = (path: string, body: string, type = 'application/json') =>
      ask(`${url}/v1/${path}`, { body, headers: { 'content-type': type } });
    await post('embeddings', '{"input":"a","model":"a"}');
    await post('embeddings', '{"input":"a","\\u006dodel":"a"}');
    await post('responses', '{"model":"a","input":"a","stream":true}');
    await post('anything', '{"model":"a"}', 'text/plain');
    const form = (model: string) =>
      `--x"y\r\ncontent-disposition: form-data; name="file"; filename="model"\r\n\r\nmodel="b"\r\n--x"y\r\n` +
      `Content-Disposition: form-data; name="model"\r\n\r\n${model}\r\n--x"y--\r\n`;
    await post('audio/transcriptions', form('a').replaceAll('x"y', 'xy'), 'multipart/form-data; boundary=xy');
    await post('audio/translations', form('a').replaceAll('x"y', 'x y'), 'multipart/form-data; boundary="x y"');
    await get(`${url}/v1/models/a?x=1`);
    expect(seen(backends)[0]).toEqual([
      '/v1/embeddings',
      '/v1/embeddings',
      '/v1/responses',
      '/v1/anything',
      '/v1/audio/transcriptions',
      '/v1/audio/translations',
      '/v1/models/a?x=1',
    ]);
    await post('audio/transcriptions', form('c').replaceAll('x"y', 'xy'), 'multipart/form-data; boundary=xy');
    await post('embeddings', '{"input":"a","model":7}');
    await post('anything', 'no JSON: "model": "a"', 'text/plain');
    await post('anything', '--xy\r\nno form', 'multipart/form-data; boundary=xy');
    expect(seen(backends)[1]).toEqual([]);
    expect(seen(backends)[2]).toHaveLength(4);
  });

  it('with a large body goes by its model too', async () => {
    const { url, backends } = await stageOf(3, named);
    const input = 'x'.repeat(400_000);
    await ask(`${url}/v1/embeddings`, { body: JSON.stringify({ input, model: 'a' }) });
    await chat(url, { model: 'a', messages: [{ role: 'user', content: input }] });
    expect(seen(backends)).toEqual([['/v1/embeddings', '/v1/chat/completions'], [], []]);
  });

  it('without a model goes to the first backend that names none, which keeps what it is about', async () => {
    const { url, backends } = await stageOf(3, ([a, b, c]) => [
      { url: a?.url, models: ['a'] },
      { url: b?.url },
      { url: c?.url, weight: 9 },
    ]);
    for (const path of ['files', 'files/f-1/content', 'responses/r-1']) await get(`${url}/v1/${path}`);
    await ask(`${url}/v1/files/f-1`, { method: 'DELETE' });
    await ask(`${url}/v1/batches`, { body: '{"input_file_id":"f-1"}' });
    expect(seen(backends)[1]).toHaveLength(5);
    expect(seen(backends)[2]).toEqual([]);
  });

  it('reaches its backend as it would reach the only one, and the log says which one it was', async () => {
    const { url, backends, lines } = await stageOf(3, named);
    const body = '{"model":"a","messages":[{"role":"user","content":"\\u00e9"}],"x":1.0}';
    const got = await chat(url, body, { authorization: 'Bearer client', 'x-other': '1' });
    expect(got.text).toBe(chatBody('from 0'));
    expect(backends[0]?.seen[0]).toMatchObject({ url: '/v1/chat/completions', body });
    const { headers } = backends[0]?.seen[0] ?? {};
    expect(headers).toMatchObject({ host: new URL(backends[0]?.url ?? '').host, 'x-other': '1' });
    expect(headers?.authorization).toBeUndefined();
    await chat(url, CHAT);
    await eventually(() => lines.filter(({ route }) => route === '/v1/chat/completions').length === 2);
    expect(lines.map(({ backend }) => backend).filter((name) => name !== undefined)).toEqual(['first', '2']);
    expect(JSON.stringify(got.headers)).not.toContain('first');
  });

  it('on one connection of its client goes to each backend with the head that is right for it', async () => {
    const { url, backends } = await stageOf(3, (all, folder) => [
      { url: all[0]?.url, api_key_file: keyFile(folder.path, 'zero') },
      { url: all[1]?.url?.replace('/v1', '/other/v1') },
      { url: all[2]?.url, api_key_file: keyFile(folder.path, 'two') },
    ]);
    const other = backends[1] as Backend;
    const { script, models } = other;
    // Probes at the other path are the script's.
    other.script = (request, response) =>
      (request.method === 'GET' ? answer(models as string) : script)(request, response);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    afterwards(() => agent.destroy());
    for (let i = 0; i < 6; i++) await ask(`${url}/v1/chat/completions`, { body: JSON.stringify(CHAT), agent });
    const asked = backends.map(({ seen }) =>
      seen
        .filter(({ method }) => method === 'POST')
        .map(({ url, headers }) => [url, headers.host, headers.authorization]),
    );
    const host = (i: number) => new URL(backends[i]?.url ?? '').host;
    const zero = ['/v1/chat/completions', host(0), 'Bearer zero'];
    const one = ['/other/v1/chat/completions', host(1), undefined];
    const two = ['/v1/chat/completions', host(2), 'Bearer two'];
    expect(asked).toEqual([
      [zero, zero],
      [one, one],
      [two, two],
    ]);
  });
});

function keyFile(folder: string, key: string): string {
  const path = join(folder, `key-${key}`);
  writeFileSync(path, `${key}\n`);
  return path;
}

describe('GET /v1/models', () => {
  it('lists each model once, in the order of the file, and only what the file lets a backend serve', async () => {
    const { url, backends } = await stageOf(4, ([a, b, c, d]) => [
      { url: a?.url, models: ['x', 'y', 'not-there'] },
      { url: b?.url },
      { url: c?.url, models: ['z'] },
      { url: d?.url },
    ]);
    const list = (...ids: string[]) => JSON.stringify({ object: 'list', data: ids.map((id) => ({ id, n: 1 })) });
    const lists = [list('y', 'x', 'unnamed'), list('x', 'z', 'p'), list('z'), list('p', 'q')];
    for (const [i, models] of lists.entries()) (backends[i] as Backend).models = models;
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const got = await get(`${url}/v1/models`);
    expect(got.headers['content-type']).toMatch(/^application\/json/);
    expect(got.json()).toEqual({ object: 'list', data: ['y', 'x', 'p', 'z', 'q'].map((id) => ({ id, n: 1 })) });
    expect((await modelsAt(`${url}`)).length).toBe(5);
  });

  it('is without those of a backend that is down or tells no list, and no error', async () => {
    const { url, backends } = await stageOf(3);
    await (backends[0] as Backend).stop();
    (backends[1] as Backend).models = '<html>';
    await eventually(async () => (await modelsAt(url)).join() === 'm2');
  });

  it('shows a restricted key its own models alone', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const keys = join(folder.path, 'keys');
    const digest = createHash('sha256').update('k').digest('hex');
    writeFileSync(keys, `some:sha256:${digest} models=m1,m2\nall\n`);
    const { url, backends } = await stageOf(3, undefined, { API_KEYS_FILE: keys });
    const some = { authorization: 'Bearer k' };
    expect(await modelsAt(url, some)).toEqual(['m1', 'm2']);
    expect(await modelsAt(url, { authorization: 'Bearer all' })).toEqual(['m0', 'm1', 'm2']);
    expectError(await get(`${url}/v1/models/m0`, some), 404, 'model_not_found');
    expectError(await chat(url, { ...CHAT, model: 'm0' }, some), 404, 'model_not_found');
    expectError(await get(`${url}/v1/models`), 401, 'invalid_api_key');
    expect((await chat(url, { ...CHAT, model: 'm1' }, some)).status).toBe(200);
    expect(backends.map((one) => one.seen.length).reduce((sum, n) => sum + n)).toBe(1);
  });
});

describe('an answer with tee', () => {
  it('is proven through each backend, whole and streamed: what was signed is what that one sent', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const sidecar = await startSidecar(folder);
    afterwards(() => sidecar.close());
    const { url, backends, lines } = await stageOf(2, undefined, { SIDECAR_SOCKET: sidecar.socket });
    const simulatedRoot = sidecar.attester.simulated?.root ?? '';
    const answered: string[] = [];
    for (let i = 0; i < 4; i++) {
      const body = JSON.stringify({ ...CHAT, seed: i, tee: true });
      const got = await ask(`${url}/v1/chat/completions`, { body });
      const { exchange } = await verifyAttestation(got.text, { simulatedRoot, expected: { request: body } });
      expect(exchange.response).toBe(chatBody(`from ${i % 2}`));
      answered.push(splitRaw(got.json().attestation.raw).response);
    }
    expect(new Set(answered).size).toBe(2);
    for (const [i, backend] of backends.entries()) backend.script = chatStream(['from', ` ${i}`, '!']);
    const texts: string[] = [];
    for (let i = 0; i < 2; i++) {
      const body = JSON.stringify({ ...CHAT, seed: i, stream: true, tee: true });
      const got = await ask(`${url}/v1/chat/completions`, { body });
      const bytes = new TextEncoder().encode(got.text);
      const { exchange } = await verifyAttestation(bytes, { simulatedRoot, expected: { request: body } });
      texts.push(JSON.parse(exchange.response).choices[0].message.content);
    }
    expect(texts).toEqual(['from 0!', 'from 1!']);
    await eventually(() => lines.filter(({ tee }) => tee === 'attested').length === 6);
    const of = lines.filter(({ tee }) => tee === 'attested').map(({ backend }) => backend);
    expect(of).toEqual(['0', '1', '0', '1', '0', '1']);
  });

  it('of another endpoint is proven by the backend that has its model', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const sidecar = await startSidecar(folder);
    afterwards(() => sidecar.close());
    const { url, backends } = await stageOf(3, named, { SIDECAR_SOCKET: sidecar.socket });
    for (const backend of backends) backend.script = answer('{"object":"list","data":[]}');
    const got = await ask(`${url}/v1/embeddings`, { body: '{"model":"a","input":"b","tee":true}' });
    const simulatedRoot = sidecar.attester.simulated?.root ?? '';
    const { exchange } = await verifyAttestation(got.text, { simulatedRoot });
    expect([exchange.endpoint, exchange.response]).toEqual(['/v1/embeddings', '{"object":"list","data":[]}']);
    expect(seen(backends)).toEqual([['/v1/embeddings'], [], []]);
  });
});
