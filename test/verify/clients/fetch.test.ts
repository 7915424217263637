import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { UnprovenAnswerError, type VerifyingFetchOptions, verifyingFetch } from '../../../verify/clients/fetch.ts';
import type { Verified } from '../../../verify/index.ts';
import { answer, chatAnswer, chatStream } from '../../support/backend.ts';
import { type Service, startService } from '../../support/harness.ts';
import { readProven } from '../attacks/refusal.ts';

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
  options: VerifyingFetchOptions = {},
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
  return verifyingFetch({ fetch: network, simulatedRoot, onVerified: (proof) => void proofs.push(proof), ...options });
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
    expect(JSON.parse(proofs[0]?.exchange.request ?? '')).toMatchObject({
      messages: MESSAGES,
      tee: { batch: true, challenge: expect.stringMatching(/^[\w-]{43}$/) },
    });
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
    const told: string[] = [];
    const send = checked(between, undefined, { onUnproven: (error) => void told.push(error.code) });
    expect(await readProven(post(send, BODY))).toEqual({ text: '', refused: code });
    expect(told).toEqual([code]);
    expect(proofs).toHaveLength(0);
  });

  it('throws for an answer to another request than the one that was sent', async () => {
    backend.script = chatAnswer('Hello.');
    const send = checked(undefined, (body) => body.replace('Hi', 'Ho'));
    expect((await readProven(post(send, BODY))).refused).toBe('request_mismatch');
  });

  it('throws for an answer without a proof', async () => {
    const stripped = (text: string) => text.replace(/,"attestation":.*\}$/s, '}');
    backend.script = chatAnswer('Hello.');
    expect((await readProven(post(checked(stripped), BODY))).refused).toBe('attestation_missing');
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
      'stream_malformed',
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
    expect(error).toBeInstanceOf(UnprovenAnswerError);
    expect((error as UnprovenAnswerError).code).toBe(code ?? 'attestation_missing');
    expect(text).toContain('data: ');
    expect(text).not.toContain('"stop"');
    expect(proofs).toHaveLength(0);
  });

  const streamed = JSON.stringify({ model: 'm', messages: MESSAGES, stream: true });
  const EVIL = 'data: {"choices":[{"index":0,"delta":{"content":"EVIL"}}]}\n\n';
  const EVIL_END =
    'data: {"choices":[{"index":0,"delta":{"content":"EVIL"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
  const INVENTED_END = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`;

  it.each([
    [
      'hidden from a hash by a byte order mark',
      (text: string) => text.replace('\n\ndata: ', `\n\n\ufeff${EVIL}data: `),
    ],
    ['hidden in a comment behind a line separator', (text: string) => text.replace('\n\n', `\n\n:\u2028${EVIL}`)],
    ['hidden in a comment behind a next-line character', (text: string) => text.replace('\n\n', `\n\n:\u0085${EVIL}`)],
    ['hidden in a comment behind a form feed', (text: string) => text.replace('\n\n', `\n\n:\f${EVIL}`)],
    ['in a stream that was invented whole, its end behind a byte order mark', () => `${EVIL}\n\n\ufeff${EVIL_END}`],
    ['in front of an error that says nothing as a number', () => `${EVIL}data: {"error":0.0}\n\n`],
    ['in front of an error that is minus zero', () => `${EVIL}data: {"error":-0}\n\n`],
    ['in front of an error with an exponent', () => `${EVIL}data: {"error":0e0,"choices":[]}\n\n${INVENTED_END}`],
    [
      'in front of an error that the OpenAI client takes for its own',
      () => `${EVIL}data: {"error":{"message":"FetchRequestCanceledException"}}\n\n`,
    ],
    [
      'with a proof whose fault names what the OpenAI client takes for its own',
      (text: string) =>
        text.replace('"attestation":{', '$&"FetchRequestCanceledException":1,"FetchRequestCanceledException":2,'),
    ],
    ['in front of what only looks like the end', (text: string) => `${beforeEnd(text)}data: [DONE] \n\n`],
    ['in front of the end alone', (text: string) => `${beforeEnd(text)}data: [DONE]\n\n`],
    ['in front of a finish that is no text', () => `${EVIL}data: {"choices":[{"index":0,"finish_reason":1.0}]}\n\n`],
  ])('gives the OpenAI client no end of a stream with words that nobody signed, %s', async (_name, between) => {
    backend.script = chatStream(['Hel', 'lo']);
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'any', fetch: checked(between), maxRetries: 0 });
    const finishes: unknown[] = [];
    const error = await (async () => {
      for await (const { choices } of await client.chat.completions.create({
        model: 'm',
        messages: MESSAGES,
        stream: true,
      }))
        finishes.push(...choices.map((choice) => choice.finish_reason).filter(Boolean));
      return 'a clean end';
    })().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(UnprovenAnswerError);
    expect((error as Error).message).not.toMatch(/FetchRequest|EVIL/);
    expect(finishes).toEqual([]);
    expect(proofs).toHaveLength(0);
  });

  it('hands on no byte of how the server framed its stream', async () => {
    backend.script = chatStream(['Hel', 'lo']);
    const framed = (text: string) => `\ufeff: hi\r\n${text.replaceAll('\n', '\r\n').replaceAll('data: ', 'data:')}`;
    const text = await (await post(checked(framed), streamed)).text();
    expect(text.split('\n\n').every((event) => event === '' || /^data: [^\r\n]+$/.test(event))).toBe(true);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(proofs).toHaveLength(1);
  });

  it.each([
    ['204', new Response(null, { status: 204, headers: { 'content-type': 'text/event-stream' } })],
    ['205', new Response(null, { status: 205, headers: { 'content-type': 'text/event-stream' } })],
    ['201', new Response('{}', { status: 201, headers: { 'content-type': 'application/json' } })],
    ['304', new Response(null, { status: 304 })],
    ['200 and plain text', new Response('Hello.', { headers: { 'content-type': 'text/plain' } })],
    [
      '200 and a type that only begins like one',
      new Response('', { headers: { 'content-type': 'text/event-streams' } }),
    ],
    ['200 and an empty stream', new Response('', { headers: { 'content-type': 'text/event-stream' } })],
  ])('takes no answer of status %s for a proven one', async (_name, response) => {
    const send = verifyingFetch({ fetch: async () => response });
    const { text, refused } = await readProven(post(send, streamed));
    expect([text, refused]).toEqual(['', expect.stringMatching(/^(response_not_provable|attestation_missing)$/)]);
  });

  it.each(['embeddings', 'audio/transcriptions', 'files'])(
    'sends no POST of another type to /v1/%s, whose answer nothing proves, unless it is told to',
    async (path) => {
      backend.script = answer('{"data":[]}', 200);
      const url = `${gateway.url}/v1/${path}`;
      const init = { method: 'POST', headers: { 'content-type': 'multipart/form-data; boundary=b' }, body: '--b--' };
      expect((await readProven(checked()(url, init))).refused).toBe('endpoint_not_proven');
      expect(backend.seen).toHaveLength(0);
      const told = verifyingFetch({ unprovenPaths: [`/v1/${path}`] });
      expect((await told(url, init)).status).toBe(200);
      const near = verifyingFetch({ unprovenPaths: ['/v1'] });
      expect((await readProven(near(url, init))).refused).toBe('endpoint_not_proven');
    },
  );

  it('passes no GET on except for models and attestations', async () => {
    const send = checked();
    expect((await send(`${gateway.url}/v1/models`)).status).toBe(200);
    expect((await send(`${gateway.url}/v1/chat/completions/none/attestation`)).status).toBe(404);
    for (const path of ['chat/completions/c-1', 'responses/r-1', 'files/f-1/content'])
      expect((await readProven(send(`${gateway.url}/v1/${path}`))).refused).toBe('endpoint_not_proven');
  });

  it('passes requests on as they were given, whatever their body is', async () => {
    const received: unknown[] = [];
    const network: typeof fetch = async (input, init) => {
      const request = new Request(input, init);
      received.push([request.method, request.headers.get('x-own'), await request.text()]);
      return new Response('passed');
    };
    const send = verifyingFetch({ fetch: network, unprovenPaths: ['/v1/audio/speech'] });
    const speech = `${gateway.url}/v1/audio/speech`;
    const head = { method: 'POST', headers: { 'x-own': 'a' } };
    const stream = () => ({ ...head, body: new Blob(['text']).stream(), duplex: 'half' as const });
    const used = new Request(speech, { ...head, body: 'used' });
    await used.text();
    for (const [input, init] of [
      [speech, stream()],
      [new URL(speech), { ...head, body: 'text' }],
      [new Request(speech, { ...head, body: 'text' })],
      [new Request(speech, stream())],
      [new Request(speech, { method: 'POST', body: 'text' }), { headers: { 'x-own': 'a' } }],
      [used, { body: 'text' }],
    ] satisfies Parameters<typeof fetch>[]) {
      expect(await (await send(input, init)).text()).toBe('passed');
      expect(received.pop()).toEqual(['POST', 'a', 'text']);
    }
    for (const [path, method, body] of [
      ['models', 'GET', null],
      ['chat/completions', 'HEAD', null],
      ['chat/completions', 'OPTIONS', 'text'],
    ] as const) {
      await send(new Request(`${gateway.url}/v1/${path}`, { method, body }));
      expect(received.pop()).toEqual([method, null, body ?? '']);
    }
    // A used body is the caller's error, as it is for any fetch.
    await expect(send(used)).rejects.toThrow(TypeError);
    expect(received).toEqual([]);
  });

  it('takes no proof twice', async () => {
    backend.script = chatAnswer('Hello.');
    let kept: string | null = null;
    const send = checked((text) => {
      kept ??= text;
      return kept;
    });
    // Of a caller's own tee: another challenge would be another request.
    const body = JSON.stringify({ model: 'm', messages: MESSAGES, tee: true });
    expect((await post(send, body)).status).toBe(200);
    expect((await readProven(post(send, body))).refused).toBe('attestation_seen');
    expect(proofs).toHaveLength(1);
  });

  it('takes no proof that is older than five minutes or more than one ahead, or than it is told', async () => {
    const now_ms = Date.now();
    const at = async (offset_s: number, policy = {}) => {
      backend.script = chatAnswer(`Hello ${offset_s}.`);
      const options = { at: new Date(now_ms + offset_s * 1000), policy };
      const { refused } = await readProven(post(checked(undefined, undefined, options), BODY));
      return refused ?? 'proven';
    };
    expect(await at(0)).toBe('proven');
    expect(await at(290)).toBe('proven');
    expect(await at(330)).toBe('too_old');
    expect(await at(330, { maxAgeSeconds: 400 })).toBe('proven');
    expect(await at(-50)).toBe('proven');
    expect(await at(-90)).toBe('policy_refused');
    expect(await at(-90, { maxAheadSeconds: 120 })).toBe('proven');
    expect(await at(-90, { maxAgeSeconds: 10 })).toBe('policy_refused');
  });

  it('carries a request as its caller wants it carried', async () => {
    const seen: RequestInit[] = [];
    const network: typeof fetch = async (_input, init) => {
      seen.push(init ?? {});
      return new Response('{}', { status: 500 });
    };
    const request = new Request(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      body: BODY,
      redirect: 'error',
      credentials: 'omit',
      headers: { 'x-own': '1' },
    });
    await verifyingFetch({ fetch: network })(request);
    expect(seen[0]).toMatchObject({ method: 'POST', redirect: 'error', credentials: 'omit' });
    expect(new Headers(seen[0]?.headers).get('x-own')).toBe('1');
    for (const body of ['', 'x', '[]', 'null', '5']) {
      const { refused } = await readProven(post(verifyingFetch({ fetch: network }), body));
      expect(refused).toBe('request_not_provable');
    }
  });

  it('leaves errors and other requests as they are', async () => {
    backend.script = answer('{"error":{"message":"no"}}', 429);
    expect((await post(checked(), BODY)).status).toBe(429);
    const models = await checked()(`${gateway.url}/v1/models`);
    expect(models.status).toBe(200);
    expect(proofs).toHaveLength(0);
  });
});
