import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { UnprovenAnswerError, VerificationError, type Verified, verifyingFetch } from '../../verify/index.ts';
import { answer, chatAnswer, chatStream } from '../backend.ts';
import { type Service, startService } from '../harness.ts';

let service: Service;
let backend: Service['backend'];
let sidecar: Service['sidecar'];
let gateway: Service['gateway'];
let proofs: Verified[];

const MESSAGES = [{ role: 'user' as const, content: 'Hi' }];
const BODY = JSON.stringify({ model: 'm', messages: MESSAGES });

beforeAll(async () => {
  service = await startService();
  ({ backend, sidecar, gateway } = service);
});
beforeEach(() => {
  proofs = [];
  backend.seen.length = 0;
});
afterAll(() => service.close());

/** A verifying fetch over a network that does what `between` does to answers, and `before` to requests. */
function checked(
  between: (text: string) => string = (text) => text,
  before: (body: string) => string = (body) => body,
) {
  const network: typeof fetch = async (input, init) => {
    const response = await fetch(input, init?.body == null ? init : { ...init, body: before(String(init.body)) });
    const text = await response.text();
    return new Response(between(text), {
      status: response.status,
      headers: { 'content-type': response.headers.get('content-type') ?? '' },
    });
  };
  const simulatedRoot = sidecar.attester.simulated?.root;
  return verifyingFetch({ fetch: network, simulatedRoot, onVerified: (proof) => void proofs.push(proof) });
}

const post = (send: typeof fetch, body: string) =>
  send(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

/** Of a stream: everything before its finish chunk. */
const beforeEnd = (text: string) => text.slice(0, text.search(/data: [^\n]*"finish_reason":"stop"/));

describe('a verifying fetch', () => {
  it('gives the OpenAI client whole answers that are proven, and asks for the proof by itself', async () => {
    backend.script = chatAnswer('Proven.');
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'any', fetch: checked() });
    const completion = await client.chat.completions.create({ model: 'm', messages: MESSAGES });
    expect(completion.choices[0]?.message.content).toBe('Proven.');
    expect(proofs).toHaveLength(1);
    expect(JSON.parse(proofs[0]?.exchange.request ?? '')).toMatchObject({ messages: MESSAGES, tee: true });
    expect(backend.seen[0]?.body).not.toContain('tee');
  });

  it('gives the OpenAI client streams that are proven, deltas as they come', async () => {
    backend.script = chatStream(['One ', 'two.'], 60);
    const send = verifyingFetch({
      simulatedRoot: sidecar.attester.simulated?.root,
      onVerified: (proof) => void proofs.push(proof),
    });
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'any', fetch: send });
    let text = '';
    let early = false;
    let finish: string | null = null;
    for await (const chunk of await client.chat.completions.create({ model: 'm', messages: MESSAGES, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (text !== '' && proofs.length === 0) early = true;
      finish = chunk.choices[0]?.finish_reason ?? finish;
    }
    expect([text, early, finish, proofs.length]).toEqual(['One two.', true, 'stop', 1]);
  });

  it.each([
    [
      'an answer that was changed',
      (text: string) => text.replace('"content":"Hello."', '"content":"Hullo."'),
      'response_mismatch',
    ],
    [
      'an answer that was changed, and calls itself an attestation',
      (text: string) =>
        JSON.stringify({
          ...JSON.parse(text.replace('"content":"Hello."', '"content":"Hullo."')),
          ...JSON.parse(text).attestation,
        }),
      'response_mismatch',
    ],
    ['a nonce that was changed', (text: string) => text.replace(/"nonce":"./, '"nonce":"g'), 'not_an_attestation'],
  ])('throws for %s', async (_name, between, code) => {
    backend.script = chatAnswer('Hello.');
    const error = await post(checked(between), BODY).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(VerificationError);
    expect((error as VerificationError).code).toBe(code);
    expect(proofs).toHaveLength(0);
  });

  it('throws for an answer to another request than the one that was sent', async () => {
    backend.script = chatAnswer('Hello.');
    const error = await post(
      checked(undefined, (body) => body.replace('Hi', 'Ho')),
      BODY,
    ).catch((cause: unknown) => cause);
    expect((error as VerificationError).code).toBe('request_mismatch');
  });

  it('throws for an answer without a proof', async () => {
    const stripped = (text: string) => text.replace(/,"attestation":.*\}$/s, '}');
    backend.script = chatAnswer('Hello.');
    await expect(post(checked(stripped), BODY)).rejects.toBeInstanceOf(UnprovenAnswerError);
  });

  it.each([
    ['a delta that was changed', (text: string) => text.replace('"Hel"', '"Hol"'), 'stream_mismatch'],
    ['a delta that was dropped', (text: string) => text.replace(/data: [^\n]*"lo"[^\n]*\n\n/, ''), 'stream_mismatch'],
    [
      'a delta that was added',
      (text: string) => text.replace(/(data: [^\n]*"lo"[^\n]*\n\n)/, '$1$1'),
      'stream_mismatch',
    ],
    [
      'a proof that has a member twice',
      (text: string) => text.replace('"attestation":{', '$&"raw":"evil",'),
      'not_an_attestation',
    ],
    [
      'a delta under a name, which the OpenAI client passes over',
      (text: string) => text.replace(/data: [^\n]*"lo"/, 'event: thread.x\n$&'),
      'stream_mismatch',
    ],
    ['an error that says nothing', (text: string) => `${beforeEnd(text)}data: {"error":false,"choices":[]}\n\n`, null],
    [
      'choices that are no list',
      (text: string) => `${beforeEnd(text)}data: {"choices":{"0":{"index":0,"delta":{},"finish_reason":"stop"}}}\n\n`,
      null,
    ],
    ['a missing proof', (text: string) => text.replace(/,"attestation":.*?\}(?=\n\n)/s, '}'), null],
    [
      'a missing end',
      (text: string) =>
        text.slice(
          0,
          text.lastIndexOf(
            'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"scripted","choices":[{"index":0,"delta":{},',
          ),
        ),
      null,
    ],
  ])('lets no stream end with %s', async (_name, between, code) => {
    backend.script = chatStream(['Hel', 'lo']);
    const response = await post(checked(between), JSON.stringify({ model: 'm', messages: MESSAGES, stream: true }));
    let text = '';
    const error = await (async () => {
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>)
        text += Buffer.from(chunk).toString();
    })().catch((cause: unknown) => cause);
    if (code === null) expect(error).toBeInstanceOf(UnprovenAnswerError);
    else expect((error as VerificationError).code).toBe(code);
    expect(text).toContain('data: ');
    expect(text).not.toContain('"stop"');
    expect(proofs).toHaveLength(0);
  });

  it('leaves errors and other requests as they are', async () => {
    backend.script = answer('{"error":{"message":"no"}}', 429);
    expect((await post(checked(), BODY)).status).toBe(429);
    const models = await checked()(`${gateway.url}/v1/models`);
    expect(models.status).toBe(200);
    expect(proofs).toHaveLength(0);
  });
});
