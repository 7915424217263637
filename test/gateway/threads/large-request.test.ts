import { afterAll, describe, expect, it } from 'vitest';
import { MANY_BYTES } from '../../../gateway/base/bytes.ts';
import { MAX_JSON_VALUES } from '../../../gateway/http/body.ts';
import { ANYONE, type Caller, NO_LIMITS } from '../../../gateway/keys/keys.ts';
import {
  type Endpoint,
  type PassThroughRequest,
  parseGeneration,
  parsePassThrough,
} from '../../../gateway/threads/jobs.ts';
import { createOffload } from '../../../gateway/threads/offload.ts';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { ask } from '../../support/client.ts';
import { useService } from '../../support/service.ts';
import { expectError } from '../expect-error.ts';
import { CLIENT } from './here.ts';

/** More than is read at once, with characters of one to four bytes. */
const TEXT = 'the Danube fließt – 東京 \\u0041\\n 😀; '.repeat(14_000);
const MESSAGES = `"messages":[{"role":"user","content":"${TEXT}"}]`;
/** JSON has no opinion on it, and next to `tee` it goes with it. */
const SPACE = ' '.repeat(300_000);
const SOME_MODELS: Caller = { ...ANYONE, limits: { ...NO_LIMITS, models: new Set(['small']) } };

const broken = (text: string) => Buffer.concat([Buffer.from(text), Buffer.from([0xff]), Buffer.from('"}]}')]);

async function resultOf(read: () => object | Promise<object>) {
  try {
    const made = Object.entries(await read());
    return Object.fromEntries(made.map(([name, value]) => [name, Buffer.isBuffer(value) ? value.toString() : value]));
  } catch (error) {
    const { name, message, code, param } = error as { name: string; message: string; code?: string; param?: string };
    return { name, message, code, param };
  }
}

describe('a large request, read on a thread,', () => {
  const offload = createOffload();
  afterAll(() => offload.close());

  it.each<[string, Endpoint, string | Buffer, Caller, object]>([
    ['without tee', 'chat', `{"model":"m",${MESSAGES}}`, ANYONE, { tee: null, model: 'm', choices: 1 }],
    [
      'with tee',
      'chat',
      `{ "tee" : true , ${MESSAGES},"seed":1.0}`,
      ANYONE,
      { tee: { batch: false, compact: false }, stream: false },
    ],
    ['with tee that is false', 'chat', `{${MESSAGES},"tee":false}`, ANYONE, { tee: null }],
    ['a stream of three', 'chat', `{"stream":true,"n":3,${MESSAGES}}`, ANYONE, { stream: true, choices: 3 }],
    ['of prompts', 'completion', `{"prompt":["${TEXT}","b"],"n":2}`, ANYONE, { choices: 4 }],
    ['for a model that may be asked', 'chat', `{"model":"small",${MESSAGES}}`, SOME_MODELS, { model: 'small' }],
    ['for another', 'chat', `{"model":"large",${MESSAGES}}`, SOME_MODELS, { code: 'model_not_found' }],
    ['for two', 'chat', `{"model":"small",${MESSAGES},"model":"large"}`, SOME_MODELS, { param: 'model' }],
    ['not UTF-8', 'chat', broken(`{"messages":[{"role":"user","content":"${TEXT}`), ANYONE, { code: 'invalid_json' }],
    ['not JSON', 'chat', `{${MESSAGES}`, ANYONE, { code: 'invalid_json' }],
    ['an array', 'chat', `[{${MESSAGES}}]`, ANYONE, { code: 'invalid_request', param: null }],
    ['with a bad member', 'chat', `{${MESSAGES},"n":"two"}`, ANYONE, { code: 'invalid_request', param: 'n' }],
    [
      'that is short without tee',
      'chat',
      `{"messages":[{"role":"user"}],${SPACE}"tee":true}`,
      ANYONE,
      { tee: { batch: false, compact: false } },
    ],
    ['of many tokens', 'completion', `{"prompt":[${'1,'.repeat(MAX_JSON_VALUES - 10)}1]}`, ANYONE, { choices: 1 }],
    ['of more', 'completion', `{"prompt":[${'1,'.repeat(MAX_JSON_VALUES)}1]}`, ANYONE, { code: 'body_too_large' }],
    ['of objects', 'chat', `{${MESSAGES},"x":[${'{},'.repeat(600_000)}1]}`, ANYONE, { code: 'body_too_large' }],
    ['that is deep', 'chat', `{${MESSAGES},"x":${'['.repeat(1_100_000)}`, ANYONE, { code: 'body_too_large' }],
    ['of many texts', 'completion', `{"prompt":[${'"",'.repeat(300_000)}""]}`, ANYONE, { param: 'prompt' }],
    ['of many lists', 'completion', `{"prompt":[${'[],'.repeat(300_000)}[]]}`, ANYONE, { param: 'prompt' }],
    ['of many messages', 'chat', `{"messages":[${'{},'.repeat(300_000)}{}],"n":1}`, ANYONE, { param: 'messages' }],
    ['with tee twice', 'chat', `{"tee":true,${MESSAGES},"tee":true}`, ANYONE, { param: 'tee' }],
  ])('is the same as one read at once: %s', async (_name, endpoint, text, caller, expected) => {
    const body = Buffer.from(text);
    expect(body.length).toBeGreaterThan(MANY_BYTES);
    const onThread = await resultOf(() => offload.parse(endpoint, body, caller, CLIENT));
    expect(onThread).toEqual(await resultOf(() => parseGeneration(endpoint, body, caller)));
    expect(onThread).toMatchObject(expected);
  });

  it.each<[string, string | Buffer, Partial<PassThroughRequest>, object]>([
    ['a stream', `{"stream":true,"input":"${TEXT}"}`, {}, { stream: true }],
    ['with tee that is false', `{"tee":false,"input":"${TEXT}"}`, {}, { stream: false }],
    ['short without tee', `{"tee":${SPACE}false,"input":""}`, {}, { stream: false }],
    ['with tee', `{"input":"${TEXT}","tee":true}`, {}, { tee: { batch: false, compact: false }, object: true }],
    [
      'with tee in a header',
      `{"model":"small","input":"${TEXT}"}`,
      { mayAttest: true },
      { object: true, model: 'small' },
    ],
    ['with tee of another form', `{"input":"${TEXT}","tee":1}`, {}, { code: 'invalid_request', param: 'tee' }],
    ['with tee in a body of another type', `{"input":"${TEXT}","tee":true}`, { json: false }, { stream: false }],
    ['of another type, with a stream', `{"input":"${TEXT}","stream":true}`, { json: false }, { stream: true }],
    ['not JSON', `{"tee":1,"input":"${TEXT}"`, {}, { code: 'invalid_json' }],
    ['of objects', `{"stream":true,"x":[${'{},'.repeat(600_000)}1]}`, {}, { code: 'body_too_large' }],
    ['of lines', `--b\r\n${'{"stream":true},'.repeat(400_000)}`, { json: false }, { stream: false }],
    [
      'for another model',
      `{"model":"large","input":"${TEXT}"}`,
      { restrictedCaller: SOME_MODELS },
      { code: 'model_not_found' },
    ],
  ])('is passed through as one read at once: %s', async (_name, text, how, expected) => {
    const passing = { body: Buffer.from(text), json: true, restrictedCaller: null, mayAttest: false, ...how };
    const onThread = await resultOf(() => offload.passThrough(passing, CLIENT));
    expect(onThread).toEqual(await resultOf(() => parsePassThrough(passing)));
    expect(onThread).toMatchObject(expected);
  });

  it('goes to the backend as the bytes that came, where nothing was cut out', async () => {
    const body = Buffer.from(`{${MESSAGES}}`);
    expect((await offload.parse('chat', body, ANYONE, CLIENT)).forward).toBe(body);
    const passing = {
      body: Buffer.from(`{"input":"${TEXT}"}`),
      json: true,
      restrictedCaller: null,
      mayAttest: false,
    };
    const unchanged = offload.passThrough({ ...passing, body: Buffer.from('{"audio":"teestream"}') }, CLIENT);
    expect(unchanged).toMatchObject({ forward: Buffer.from('{"audio":"teestream"}'), stream: false, tee: null });
    expect((await offload.passThrough(passing, CLIENT)).forward).toBe(passing.body);
  });

  it('takes next to nothing of the thread that chats', async () => {
    const message = { role: 'user', content: 'what is it? '.repeat(20) };
    const body = Buffer.from(JSON.stringify({ tee: true, messages: Array(9_000).fill(message) }));
    const shared = Buffer.from(new SharedArrayBuffer(body.length));
    shared.set(body);
    await offload.parse('chat', shared, ANYONE, CLIENT);
    const [all, own] = [process.cpuUsage(), process.threadCpuUsage()];
    for (let i = 0; i < 10; i++) await offload.parse('chat', shared, ANYONE, CLIENT);
    expect(sum(process.threadCpuUsage(own)) / sum(process.cpuUsage(all))).toBeLessThan(0.4);
  });

  it('fails as one that may be sent again when the thread ends, and the next one is read', async () => {
    const body = Buffer.from(`{${MESSAGES}}`);
    const lost = resultOf(() => offload.parse('chat', body, ANYONE, CLIENT));
    await offload.close();
    expect(await lost).toMatchObject({ name: 'Problem', code: 'overloaded' });
    expect(await resultOf(() => offload.parse('chat', body, ANYONE, CLIENT))).toMatchObject({ choices: 1 });
  });
});

const sum = ({ user, system }: { user: number; system: number }) => user + system;

describe('a large request', () => {
  const service = useService();
  const post = (path: string, body: string, chunked: boolean) =>
    ask(`${service.gateway.url}${path}`, { body, chunked });

  it.each([
    ['with its length', false],
    ['in chunks', true],
  ])('reaches the backend and raw byte for byte: %s', async (_name, chunked) => {
    const request = `{${MESSAGES}, "tee" : true ,"seed":1.0}`;
    const got = await post('/v1/chat/completions', request, chunked);
    expect(service.backend.seen[0]?.body).toBe(request.replace(' "tee" : true ,', ' '));
    expect(splitRaw(got.json().attestation.raw).request).toBe(request);
    await post('/v1/responses', `{"input":"${TEXT}","stream":false}`, chunked);
    expect(service.backend.seen[1]?.body).toBe(`{"input":"${TEXT}","stream":false}`);
  });

  it('is refused as a small one is', async () => {
    expectError(await post('/v1/chat/completions', `{${MESSAGES},"n":0}`, false), 400, 'invalid_request', 'n');
    expectError(await post('/v1/responses', `{"input":"${TEXT}","tee":1}`, false), 400, 'invalid_request', 'tee');
  });

  it('that is not sent to its end costs nobody anything', async () => {
    const body = `{${MESSAGES}}`;
    const [from, left] = [new URL(service.gateway.url), new AbortController()];
    const headers = { 'content-length': Buffer.byteLength(body) + 1 };
    const cut = ask(`${from.origin}/v1/chat/completions`, { body, headers, signal: left.signal });
    setTimeout(() => left.abort(), 100);
    await expect(cut).rejects.toMatchObject({ name: 'AbortError' });
    expect((await post('/v1/chat/completions', body, false)).status).toBe(200);
  });
});
