// The verifying fetch over every endpoint: what is proven is handed over, the end of a stream only then, and nothing else.
import { describe, expect, it } from 'vitest';
import { verifyingFetch } from '../../../verify/clients/fetch.ts';
import type { Verified } from '../../../verify/index.ts';
import { answer, chatStream, stream } from '../../support/backend.ts';
import {
  functionCallEvents,
  messageBody,
  messageEvents,
  named,
  namedStream,
  responseBody,
  responseEvents,
} from '../../support/named-streams.ts';
import { useService } from '../../support/service.ts';
import { readProven } from '../attacks/refusal.ts';

const service = useService();

type Between = (text: string) => string;
interface Network {
  /** What the network does to an answer. */
  readonly between?: Between;
  /** The path that a request is sent to in place of its own. */
  readonly path?: string;
  readonly headers?: Record<string, string>;
  /** What is sent in place of the request's body. */
  readonly before?: Between;
}

/** A verifying fetch over such a network, and what it proved. */
function checked({ between = (text) => text, path, headers = {}, before = (body) => body }: Network = {}) {
  const proofs: Verified[] = [];
  const network: typeof fetch = async (input, init) => {
    const url = path === undefined ? String(input) : service.url + path;
    const response = await fetch(url, {
      ...init,
      body: before(String(init?.body)),
      headers: { 'content-type': 'application/json', ...headers },
    });
    const type = response.headers.get('content-type') ?? '';
    return new Response(between(await response.text()), { status: response.status, headers: { 'content-type': type } });
  };
  const simulatedRoot = service.sidecar.attester.simulated?.root;
  const send = verifyingFetch({ fetch: network, simulatedRoot, onVerified: (proof) => void proofs.push(proof) });
  const post = (to: string, body: object) =>
    send(service.url + to, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  return { post, proofs };
}

const stripped: Between = (text) => text.replace(/,"attestation":\{.*?\}\](?:,"batch":\{.*?\})?\}(?=\})/s, '');

const EMBEDDINGS = { object: 'list', data: [{ object: 'embedding', index: 0, embedding: [0.25] }], model: 'm' };
const WHOLE = [
  ['/v1/responses', { input: 'Hi' }, responseBody('Hello.'), 'Hello.'],
  ['/v1/messages', { max_tokens: 5, messages: [] }, messageBody([{ type: 'text', text: 'Hello.' }]), 'Hello.'],
  ['/v1/embeddings', { input: 'Hi' }, EMBEDDINGS, '0.25'],
] as const;

describe.each(WHOLE)('a whole answer of %s', (path, request, response, word) => {
  it('is handed over when it is proven', async () => {
    service.backend.script = answer(JSON.stringify(response));
    const { post, proofs } = checked();
    expect(await (await post(path, request)).json()).toMatchObject(response);
    expect(proofs.map(({ exchange }) => exchange.endpoint)).toEqual([path]);
  });

  it.each<[string, Network, string]>([
    ['a change', { between: (text) => text.replace(word, '9.99') }, 'response_mismatch'],
    ['another request', { before: (body) => body.replace('Hi', 'Ho').replace('[]', '[1]') }, 'request_mismatch'],
    ['no attestation', { between: stripped }, 'attestation_missing'],
    ['the proof of another endpoint', { path: '/v1/rerank' }, 'endpoint_mismatch'],
    [
      'an attestation that is to be had by id alone',
      { headers: { 'x-tee': 'header' }, before: (body) => body.replace(/,?"tee":\{.*?\}/, '') },
      'attestation_missing',
    ],
    ['a list around it', { between: (text) => `[${text}]` }, 'attestation_missing'],
  ])('is not with %s', async (_name, network, code) => {
    service.backend.script = answer(JSON.stringify(response));
    const { post, proofs } = checked(network);
    const { text, refused } = await readProven(post(path, request));
    expect([refused, text, proofs.length]).toEqual([code, '', 0]);
  });
});

const STREAMS = [
  ['/v1/responses', { input: 'Hi' }, responseEvents(['Hel', 'lo']), 'response.completed', 1],
  ['/v1/messages', { max_tokens: 5, messages: [] }, messageEvents(['Hel', 'lo']), 'message_delta', 2],
] as const;

describe.each(STREAMS)('a stream of %s', (path, request, events, final, held) => {
  const asked = { ...request, stream: true };
  const early = events.slice(0, -held);

  it('is handed over as it comes, and its end when it is proven', async () => {
    const open = Promise.withResolvers<void>();
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(early.map(named).join(''));
      await open.promise;
      response.end(events.slice(-held).map(named).join(''));
    };
    const log: string[] = [];
    const send = verifyingFetch({
      simulatedRoot: service.sidecar.attester.simulated?.root,
      onVerified: ({ exchange }) => void log.push(`proof of ${exchange.endpoint}`),
    });
    const response = await send(service.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(asked),
    });
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      for (const [, name = ''] of Buffer.from(chunk)
        .toString()
        .matchAll(/^event: (.*)$/gm))
        log.push(name);
      if (log.length === early.length) open.resolve();
    }
    const names = events.map(({ type }) => type);
    expect(log).toEqual([...names.slice(0, -held), `proof of ${path}`, ...names.slice(-held)]);
  });

  const beforeEnd = (text: string) => text.slice(0, text.indexOf(`event: ${final}\n`));
  it.each<[string, Network, string]>([
    ['a delta that was changed', { between: (text) => text.replace('"Hel"', '"Hol"') }, 'stream_mismatch'],
    [
      'an event less',
      { between: (text) => text.replace(/event: [^\n]*\n[^\n]*"lo"[^\n]*\n\n/, '') },
      'stream_mismatch',
    ],
    ['an event more', { between: (text) => text.replace(/(?=event: )/, named({ type: 'ping' })) }, 'stream_mismatch'],
    [
      'an event under another name, by which some clients go',
      { between: (text) => text.replace(/event: [^\n]*(?=\n[^\n]*"lo")/, 'event: message_stop') },
      'stream_malformed',
    ],
    [
      'an event without a name',
      { between: (text) => text.replace(/event: [^\n]*\n(?=[^\n]*"lo")/, '') },
      'stream_malformed',
    ],
    ['another field', { between: (text) => text.replace(/(?=event: )/, 'id: 1\n') }, 'stream_malformed'],
    ['another request', { before: (body) => body.replace('Hi', 'Ho').replace('[]', '[1]') }, 'request_mismatch'],
    ['no attestation', { between: stripped }, 'attestation_missing'],
    ['no end', { between: beforeEnd }, 'attestation_missing'],
    [
      'an end that was invented',
      { between: (text) => beforeEnd(text) + events.slice(-held).map(named).join('') },
      'attestation_missing',
    ],
    [
      'the failure of a server',
      { between: (text) => `${beforeEnd(text)}${named({ type: 'error' })}` },
      'attestation_missing',
    ],
    [
      'an attestation that is to be had by id alone',
      { headers: { 'x-tee': 'header' }, before: (body) => body.replace(/,?"tee":\{.*?\}/, '') },
      'attestation_missing',
    ],
  ])('does not end with %s', async (_name, network, code) => {
    service.backend.script = namedStream(events);
    const { post, proofs } = checked(network);
    const { text, refused } = await readProven(post(path, asked));
    expect([refused, proofs.length]).toEqual([code, 0]);
    expect(text).not.toMatch(new RegExp(`event: (${final}|message_stop|error)\n`));
  });

  it('is no whole answer, and a whole answer no stream', async () => {
    service.backend.script = namedStream(events);
    expect((await readProven(checked().post(path, request))).refused).toBe('response_not_provable');
    service.backend.script = answer('{"id":"x"}');
    expect((await readProven(checked().post(path, asked))).refused).toBe('response_not_provable');
  });
});

const chunk = (delta: object, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
const CALL = { index: 0, id: 'call_1', type: 'function', function: { name: 'wire_money', arguments: '{}' } };
const FUNCTION = functionCallEvents('wire_money', ['{', '}']);
const ITEM = { id: 'item_1', call_id: 'call_1', type: 'custom_tool_call', name: 'wire_money', input: 'all' };
/** Each with the number of its events that are forwarded at once. */
const CALLS: readonly (readonly [
  name: string,
  path: string,
  request: object,
  events: readonly string[],
  early: number,
])[] = [
  [
    'chat tools',
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'Hi' }] },
    [
      chunk({ role: 'assistant', content: 'Hel', tool_calls: [] }),
      chunk({ content: 'lo', tool_calls: null }),
      chunk({ tool_calls: [CALL] }),
      chunk({ content: ' more' }),
      chunk({}, 'tool_calls'),
      'data: [DONE]\n\n',
    ],
    2,
  ],
  ['/v1/responses', '/v1/responses', { input: 'Hi' }, FUNCTION.map(named), 1],
  [
    '/v1/messages',
    '/v1/messages',
    { max_tokens: 5, messages: [] },
    messageEvents(['Hel', 'lo'], ['{', '}']).map(named),
    6,
  ],
];

describe.each(CALLS)('a tool call of %s', (_name, path, request, events, early) => {
  const asked = { ...request, stream: true };
  const isEvent = /(^event: .*\n)?^data: .*\n\n/gm;

  it('is held from its first part on, and handed over when it is proven', async () => {
    const open = Promise.withResolvers<void>();
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(events.slice(0, -1).join(''));
      await open.promise;
      response.end(events.at(-1));
    };
    let proofs = 0;
    const simulatedRoot = service.sidecar.attester.simulated?.root;
    const send = verifyingFetch({ simulatedRoot, onVerified: () => void proofs++ });
    const headers = { 'content-type': 'application/json' };
    const response = await send(service.url + path, { method: 'POST', headers, body: JSON.stringify(asked) });
    let [before, after] = ['', ''];
    for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
      if (proofs === 0) before += Buffer.from(part);
      else after += Buffer.from(part);
      if (before.match(isEvent)?.length === early) setTimeout(() => open.resolve(), 50);
    }
    expect(before).toBe(events.slice(0, early).join(''));
    expect([before.includes('wire_money'), after.match(isEvent)?.length]).toEqual([false, events.length - early]);
    expect(after).toMatch(/wire_money|weather/);
  });

  it('never reaches the application where the answer was changed', async () => {
    service.backend.script = stream(events);
    const changed = checked({ between: (text) => text.replace(/wire_money|weather/, 'burn_money') });
    const { text, refused } = await readProven(changed.post(path, asked));
    expect([refused, changed.proofs.length]).toEqual(['stream_mismatch', 0]);
    expect(text).not.toMatch(/_money|weather/);
    expect((await readProven(checked().post(path, asked))).refused).toBeNull();
  });
});

describe('every kind of tool call', () => {
  const asked = { input: 'Hi', stream: true };
  const begin = { type: 'response.created', response: { output: [] } };
  it.each([
    [asked, '/v1/responses', { type: 'response.output_item.added', output_index: 0, item: ITEM }],
    [
      asked,
      '/v1/responses',
      { type: 'response.output_item.done', output_index: 0, item: { ...ITEM, type: 'mcp_call' } },
    ],
    [asked, '/v1/responses', { type: 'response.output_item.added', item: { ...ITEM, type: 'computer_call' } }],
    [asked, '/v1/responses', { type: 'response.mcp_call_arguments.delta', delta: 'wire_money' }],
    [asked, '/v1/responses', { type: 'response.custom_tool_call_input.delta', delta: 'wire_money' }],
    [asked, '/v1/responses', { type: 'response.in_progress', response: { output: [ITEM] } }],
    [
      asked,
      '/v1/messages',
      { type: 'message_start', message: { content: [{ type: 'tool_use', name: 'wire_money' }] } },
    ],
    [
      asked,
      '/v1/messages',
      { type: 'content_block_start', content_block: { type: 'server_tool_use', name: 'wire_money' } },
    ],
    [
      asked,
      '/v1/messages',
      { type: 'content_block_delta', delta: { type: 'input_json_delta', partial_json: 'wire_money' } },
    ],
  ])('is held: %# of %s', async (body, path, event) => {
    const first = path === '/v1/messages' ? { type: 'ping' } : begin;
    const sent = named(first) + named(event) + named({ type: 'ping' });
    const network: typeof fetch = async () => new Response(sent, { headers: { 'content-type': 'text/event-stream' } });
    const send = verifyingFetch({ fetch: network });
    const headers = { 'content-type': 'application/json' };
    const reading = send(`http://x.test${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    const { text, refused } = await readProven(reading);
    expect([refused, text]).toEqual(['attestation_missing', named(first)]);
  });

  it('is held as a function of the old form too, and words are not', async () => {
    const words = chunk({ content: 'Hel', function_call: null });
    const sent = words + chunk({ function_call: { name: 'wire_money' } }) + chunk({ content: 'lo' });
    const network: typeof fetch = async () => new Response(sent, { headers: { 'content-type': 'text/event-stream' } });
    const headers = { 'content-type': 'application/json' };
    const reading = verifyingFetch({ fetch: network })('http://x.test/v1/chat/completions', {
      ...{ method: 'POST', headers, body: '{"stream":true}' },
    });
    expect((await readProven(reading)).text).toBe(words);
  });
});

describe('a stream that is of another endpoint', () => {
  it('has no end, although request and events are valid for both', async () => {
    service.backend.script = chatStream(['Hel', 'lo']);
    const body = { messages: [{ role: 'user', content: 'Hi' }], prompt: 'Hi', stream: true };
    const { post, proofs } = checked({ path: '/v1/chat/completions' });
    const { text, refused } = await readProven(post('/v1/completions', body));
    expect([refused, proofs.length]).toEqual(['endpoint_mismatch', 0]);
    expect(text).toContain('"Hel"');
    expect(text).not.toContain('"stop"');
  });

  it('is refused where no rule folds it', async () => {
    service.backend.script = stream(['event: image.partial\ndata: {"type":"image.partial"}\n\n']);
    const { refused } = await readProven(
      checked({ headers: { 'x-tee': '1' }, before: () => '{"stream":true}' }).post('/v1/images/generations', {
        stream: true,
      }),
    );
    expect(refused).toBe('response_not_provable');
  });
});
