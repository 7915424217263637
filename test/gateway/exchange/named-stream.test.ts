// Streams of /v1/responses and /v1/messages with tee: events go out at once, the one that ends the answer only with its attestation.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { appraiseAttestation, verifyAttestation } from '../../../verify/index.ts';
import { stream } from '../../support/backend.ts';
import { ask } from '../../support/client.ts';
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

const service = useService({ MAX_ANSWER_BYTES: '65536', BACKEND_TIMEOUT_MS: '2500' });
const options = () => ({ simulatedRoot: service.sidecar.attester.simulated?.root });

type Events = ReturnType<typeof responseEvents>;
type Event = Events[number];

const REQUEST = { responses: { input: 'Hi' }, messages: { max_tokens: 9, messages: [] } } as const;
type Path = keyof typeof REQUEST;
const EVENTS: Record<Path, Events> = {
  responses: responseEvents(['Hel', 'lo ', 'wörld']),
  messages: messageEvents(['Hel', 'lo'], ['{"city":', '"Wien","t":1.0}']),
};

const asked = (path: Path, more: object = {}) => JSON.stringify({ ...REQUEST[path], stream: true, tee: true, ...more });
const post = (path: Path, headers: Record<string, string> = {}) =>
  ask(`${service.url}/v1/${path}`, { body: asked(path), headers });

/** The events of a stream: names and payloads. */
function eventsIn(text: string): { name: string; data: string }[] {
  return [...text.matchAll(/event: (.*)\ndata: (.*)\n\n/g)].map(([, name = '', data = '']) => ({ name, data }));
}

describe.each(['responses', 'messages'] as const)('a stream of /v1/%s with tee', (path) => {
  const events = EVENTS[path];

  it('has the events of the backend, one of them with the attestation', async () => {
    service.backend.script = namedStream(events);
    const { text, headers } = await post(path);
    expect(headers['content-type']).toBe('text/event-stream; charset=utf-8');
    const got = eventsIn(text);
    expect(got.map(({ name }) => name)).toEqual(events.map(({ type }) => type));
    const carriers = got.filter(({ data }) => data.includes('"attestation":'));
    expect(carriers.map(({ name }) => name)).toEqual([path === 'responses' ? 'response.completed' : 'message_delta']);
    const carrier = JSON.parse(carriers[0]?.data ?? '');
    const { attestation } = path === 'responses' ? carrier.response : carrier;
    const raw = splitRaw(attestation.raw);
    expect(raw).toMatchObject({ endpoint: `/v1/${path}`, request: asked(path) });
    const hash = createHash('sha256');
    for (const event of events) hash.update(`${event.type}\n${JSON.stringify(event)}\n`);
    expect(raw.stream).toEqual({ events: events.length, sha256: hash.digest('hex') });
    expect(raw.response).toBe(
      path === 'responses'
        ? JSON.stringify(responseBody('Hello wörld'))
        : JSON.stringify(
            messageBody(
              [
                { type: 'text', text: 'Hello' },
                { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Wien', t: 1 } },
              ],
              'tool_use',
            ),
          ).replace('"t":1}', '"t":1.0}'),
    );
  });

  it('is verified as a stream that was kept, as its event alone, and as what clients keep of it', async () => {
    service.backend.script = namedStream(events);
    const { text } = await post(path);
    const verified = await verifyAttestation(new TextEncoder().encode(text), {
      ...options(),
      expected: { endpoint: `/v1/${path}`, request: asked(path) },
    });
    expect(verified.exchange.stream?.events).toBe(events.length);
    const { data = '' } = eventsIn(text).find(({ data }) => data.includes('"attestation":')) ?? {};
    const event = JSON.parse(data);
    const failed = async (one: unknown, event: boolean) =>
      (await appraiseAttestation(one, { ...options(), expected: { event } })).checks.find(isFailed);
    for (const one of [data, event]) {
      expect(await failed(one, true)).toBeUndefined();
      expect(await failed(one, false)).toBeDefined();
    }
    for (const one of path === 'responses' ? [event.response, JSON.stringify(event.response)] : [])
      expect(await failed(one, false)).toBeUndefined();
    const changed = data.replace(
      path === 'responses' ? 'Hello' : '"stop_reason":"tool_use"',
      '"stop_reason":"end_turn"',
    );
    expect((await failed(changed, true))?.code).toMatch(/response_mismatch|not_json/);
  });

  it('is refused with any event changed, left out, renamed, doubled or moved', async () => {
    service.backend.script = namedStream(events);
    const { text } = await post(path);
    const parts = text.split('\n\n').slice(0, -1);
    const without = parts.filter((_, i) => i !== 2);
    const [a = '', b = '', c = '', d = '', ...rest] = parts;
    for (const [altered, code] of [
      [text.replace('Hel', 'Hal').split('\n\n').slice(0, -1), 'stream_mismatch'],
      [without, 'stream_mismatch'],
      [[a, b, c, c, d, ...rest], 'stream_mismatch'],
      [[a, b, d, c, ...rest], 'stream_mismatch'],
      [[a, b, c.replace(/^event: \S+/, 'event: other'), d, ...rest], 'stream_mismatch'],
      [[a, b, c.replace(/^event: .*\n/, ''), d, ...rest], 'stream_malformed'],
      [[a, b, `id: 1\n${c}`, d, ...rest], 'stream_malformed'],
    ] as const) {
      const { checks } = await appraiseAttestation(new TextEncoder().encode(`${altered.join('\n\n')}\n\n`), options());
      expect(checks.find(isFailed)).toMatchObject({ code });
    }
  });

  it('goes out as it came, and its attestation by id, with x-tee: header', async () => {
    service.backend.script = namedStream(events);
    const body = JSON.stringify({ ...REQUEST[path], stream: true });
    const got = await ask(`${service.url}/v1/${path}`, { body, headers: { 'x-tee': 'header' } });
    expect(got.text).toBe(events.map(named).join(''));
    for (const id of [got.headers['x-attestation-id'], path === 'responses' ? 'resp_1' : 'msg_1']) {
      const kept = await ask(`${service.url}/v1/${path}/${id}/attestation`, { method: 'GET' });
      const transcript = new TextEncoder().encode(got.text);
      const report = await appraiseAttestation(kept.text, { ...options(), expected: { request: body, transcript } });
      expect(report.checks.find(isFailed)).toBeUndefined();
    }
  });

  it('sends every event before the last ones at once', async () => {
    const open = Promise.withResolvers<void>();
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(events.slice(0, 4).map(named).join(''));
      await open.promise;
      response.end(events.slice(4).map(named).join(''));
    };
    const response = await fetch(`${service.url}/v1/${path}`, {
      method: 'POST',
      headers: JSON_TYPE,
      body: asked(path),
    });
    const reader = response.body?.getReader();
    let seen = '';
    while (eventsIn(seen).length < 4) seen += new TextDecoder().decode((await reader?.read())?.value);
    open.resolve();
    for (let done = false; !done; ) ({ done = true } = (await reader?.read()) ?? {});
    expect(eventsIn(seen)).toHaveLength(4);
  });

  it('is signed also where the backend does not end it, or ends it with [DONE]', async () => {
    for (const end of ['data: [DONE]\n\n', null]) {
      service.backend.script = (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(events.map(named).join('') + (end ?? ''));
      };
      const { text } = await post(path);
      expect(text.includes('"attestation":')).toBe(true);
      expect(text).not.toContain('[DONE]');
    }
  });

  it.each(['', 'x-tee'])('is passed on byte for byte without tee', async (header) => {
    const text = `${events.map(named).join('')}id: 7\nretry: 5\ndata: anything\r\r`;
    service.backend.script = stream([text]);
    const body = JSON.stringify({ ...REQUEST[path], stream: true });
    const headers: Record<string, string> = header === '' ? {} : { [header]: '0' };
    expect((await ask(`${service.url}/v1/${path}`, { body, headers })).text).toBe(text);
  });
});

const JSON_TYPE = { 'content-type': 'application/json' };
const isFailed = ({ status }: { status: string }) => status === 'fail';
const at = (events: Events, type: string) => events.findIndex((event) => event.type === type);
const put = (events: Events, i: number, ...more: Event[]) => [...events.slice(0, i), ...more, ...events.slice(i)];
const changed = (events: Events, type: string, change: object) =>
  events.map((event) => (event.type === type ? { ...event, ...change } : event));
const R = EVENTS.responses;
const M = EVENTS.messages;
const [created, , item] = R as [Event, Event, Event];
const completed = R.at(-1) as Event;
const final = (response: object) => changed(R, 'response.completed', { response });

/** Each a stream that must end in an error, never in a final event. */
const BROKEN: readonly (readonly [string, Path, string])[] = [
  ['a second response.completed', 'responses', [...R, completed].map(named).join('')],
  ['an event after the last', 'responses', [...R, item].map(named).join('')],
  ['no response.created', 'responses', R.slice(1).map(named).join('')],
  ['two of them', 'responses', put(R, 1, created).map(named).join('')],
  ['no end', 'responses', R.slice(0, -1).map(named).join('')],
  [
    'a sequence that goes back',
    'responses',
    changed(R, 'response.content_part.done', { sequence_number: 1 }).map(named).join(''),
  ],
  ['another text at the end than was streamed', 'responses', final(responseBody('Hello world')).map(named).join('')],
  [
    'no text at the end',
    'responses',
    final(responseBody('', { output: [] }))
      .map(named)
      .join(''),
  ],
  [
    'another text in its done event',
    'responses',
    changed(R, 'response.output_text.done', { text: 'Hi' }).map(named).join(''),
  ],
  [
    'another id at the end',
    'responses',
    final({ ...responseBody('Hello wörld'), id: 'resp_2' })
      .map(named)
      .join(''),
  ],
  [
    'an error in the final response',
    'responses',
    final(responseBody('Hello wörld', { error: { code: 'x' } }))
      .map(named)
      .join(''),
  ],
  [
    'a final event without a response',
    'responses',
    final([] as never)
      .map(named)
      .join(''),
  ],
  [
    'an attestation of the backend in the response',
    'responses',
    final(responseBody('Hello wörld', { attestation: {} }))
      .map(named)
      .join(''),
  ],
  [
    'an attestation of the backend beside it',
    'responses',
    changed(R, 'response.completed', { attestation: {} }).map(named).join(''),
  ],
  ['a name that is missing', 'responses', R.map(named).join('').replace('event: response.output_text.delta\n', '')],
  [
    'a name that is not the type',
    'responses',
    R.map(named).join('').replace('event: response.output_text.delta', 'event: ping'),
  ],
  ['a delta that is no text', 'responses', changed(R, 'response.output_text.delta', { delta: 1 }).map(named).join('')],
  ['a payload that is no JSON', 'responses', `${named(created)}event: response.x\ndata: {"type":"response.x"\n\n`],
  [
    'a member named twice',
    'responses',
    `${named(created)}event: response.x\ndata: {"type":"response.x","type":"response.x"}\n\n`,
  ],
  ['a name without data', 'responses', `${named(created)}event: response.x\n\n`],
  [
    'an error beside the final response',
    'responses',
    changed(R, 'response.completed', { error: { code: 'no' } })
      .map(named)
      .join(''),
  ],
  ["vLLM's error without a name", 'responses', `${named(created)}data: {"object":"error","message":"no"}\n\n`],
  [
    "vLLM's error with the name of another event",
    'messages',
    changed(M, 'message_delta', { object: 'error' }).map(named).join(''),
  ],
  [
    'an error in the event that ends the message',
    'messages',
    changed(M, 'message_delta', { error: { message: 'no' } })
      .map(named)
      .join(''),
  ],
  ['another field', 'responses', `${named(created)}id: 1\n${named(item)}`],
  [
    'more than is attested',
    'responses',
    put(R, 4, ...Array(800).fill(R[4]))
      .map(named)
      .join(''),
  ],
  [
    'other arguments at the end than were streamed',
    'responses',
    changed(functionCallEvents('f', ['{"a":', '1}']), 'response.function_call_arguments.delta', { delta: '{' })
      .map(named)
      .join(''),
  ],
  ['no message_start', 'messages', M.slice(1).map(named).join('')],
  [
    'two of them',
    'messages',
    put(M, 1, M[0] as Event)
      .map(named)
      .join(''),
  ],
  ['a block out of order', 'messages', changed(M, 'content_block_start', { index: 7 }).map(named).join('')],
  ['a delta of no block', 'messages', changed(M, 'content_block_delta', { index: 3 }).map(named).join('')],
  [
    'a delta after its block',
    'messages',
    put(M, at(M, 'message_delta'), M[3] as Event)
      .map(named)
      .join(''),
  ],
  [
    'content after the stop reason',
    'messages',
    put(M, M.length - 1, M[2] as Event)
      .map(named)
      .join(''),
  ],
  ['no stop reason', 'messages', changed(M, 'message_delta', { delta: {} }).map(named).join('')],
  ['no message_stop', 'messages', M.slice(0, -1).map(named).join('')],
  ['an event after message_stop', 'messages', [...M, M[1] as Event].map(named).join('')],
  ['an input that is no JSON', 'messages', messageEvents(['a'], ['{"a":']).map(named).join('')],
  [
    'a message that begins with content',
    'messages',
    changed(M, 'message_start', { message: messageBody([{}], null) })
      .map(named)
      .join(''),
  ],
  ['an attestation of the backend', 'messages', changed(M, 'message_delta', { attestation: {} }).map(named).join('')],
];

describe('a stream with tee that is not of its form', () => {
  it.each(BROKEN)('ends in an error and not as an answer does: %s', async (_name, path, text) => {
    service.backend.script = stream([text]);
    const got = await post(path);
    const events = eventsIn(got.text);
    expect(events.at(-1)?.name).toBe('error');
    const last = JSON.parse(events.at(-1)?.data ?? '');
    expect(['backend_bad_response', 'stream_not_foldable', 'answer_too_large']).toContain(last.code);
    expect(last).toMatchObject({ type: 'error', error: { code: last.code } });
    const ends = /"type":"(response\.(completed|incomplete)|message_stop)"|"stop_reason":"/;
    expect(got.text).not.toMatch(ends);
    expect(got.text).not.toContain('"attestation":');
    const kept = await ask(`${service.url}/v1/x/${got.headers['x-attestation-id']}/attestation`, { method: 'GET' });
    expect(kept.status).toBe(404);
  });

  it.each([
    [
      'responses',
      { type: 'response.failed', response: { ...responseBody(''), status: 'failed', error: { code: 'x' } } },
    ],
    ['responses', { type: 'error', code: 'server_error', message: 'no' }],
    ['messages', { type: 'error', error: { type: 'overloaded_error', message: 'busy' } }],
  ] as const)('hands on the failure of the backend, which has no proof: %s', async (path, failure) => {
    service.backend.script = namedStream([EVENTS[path][0] as Event, failure, ...EVENTS[path].slice(1)]);
    const { text } = await post(path);
    expect(text).toBe(named(EVENTS[path][0] as Event) + named(failure));
  });

  it('is proven where a response is incomplete, and calls functions', async () => {
    const incomplete = responseBody('Hello wörld', {
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
    });
    for (const events of [
      [...R.slice(0, -1), { ...completed, type: 'response.incomplete', response: incomplete }],
      functionCallEvents('weather', ['{"city":', '"Wien"}']),
    ]) {
      service.backend.script = namedStream(events);
      const { text } = await post('responses');
      const report = await appraiseAttestation(new TextEncoder().encode(text), options());
      expect(report.checks.find(isFailed)).toBeUndefined();
    }
  });
});
