// Cases about which endpoint raw is of, and about the streams of each of them.
import type { RawParts } from '../../proto/attestation/raw.ts';
import { withLastMember } from '../../proto/json.ts';
import { digestOf, type EndpointExchange, EXCHANGES, finalEvent, type Sent, savedStream } from './endpoints.ts';
import { rawOf } from './exchange.ts';
import { forge } from './forge.ts';
import { ALONE, type Case, fail, json, type Kit, pass, SELF_ASSERTED } from './kit.ts';

type Name = keyof typeof EXCHANGES;
const all = Object.entries(EXCHANGES) as [Name, EndpointExchange][];
const streams = all.flatMap(([name, { endpoint, stream }]) =>
  stream === undefined ? [] : [{ name, endpoint, ...stream, named: stream.events[0]?.name !== null }],
);

/** The file of an attestation that several cases share. */
async function shared({ world, part, attestation_file }: Kit, name: string, parts: RawParts): Promise<string> {
  if (name === 'chat') return attestation_file;
  const attestation = await forge(world, { parts });
  return part(`parts/attestation-${name}.json`, () => json(attestation));
}

/** Signed so: the raw is what a dishonest gateway could have a device sign. */
const signed = async ({ world }: Kit, parts: RawParts) => ({ attestation: await forge(world, { parts }) });
const without = (events: readonly Sent[], i: number) => events.filter((_, at) => at !== i);
const changed = (events: readonly Sent[], i: number, change: Partial<Sent>) =>
  events.map((event, at) => (at === i ? { ...event, ...change } : event));
const DELTA = 'Hel';
const deltaOf = (events: readonly Sent[]) => events.findIndex(({ payload }) => payload.includes(DELTA));

const WHOLE = all.flatMap(([name, { endpoint, whole }]): Case[] => [
  pass('expected_exchange', `${name}-whole`, async (kit) => ({
    description: `${endpoint}: the caller holds the endpoint, the request and the response`,
    attestation_file: await shared(kit, name, whole),
    options: { expected: { endpoint, request: whole.request, response: whole.response } },
    skipped: SELF_ASSERTED,
  })),
  fail('expected_exchange', `${name}-another-endpoint`, 'endpoint_mismatch', async (kit) => ({
    description: `${endpoint}: the same request and response, moved to another endpoint`,
    attestation_file: await shared(kit, name, whole),
    options: {
      expected: {
        endpoint: name === 'chat' ? '/v1/completions' : '/v1/chat/completions',
        request: whole.request,
        response: whole.response,
      },
    },
  })),
]);

const SAYS = (['chat', 'completions', 'responses', 'messages'] as const).map((name, i, names): Case => {
  const { endpoint } = EXCHANGES[name];
  const other = EXCHANGES[names[(i + 1) % names.length] as Name];
  return fail('expected_exchange', `${name}-says-another`, 'endpoint_mismatch', async (kit) => ({
    description: `raw is about ${endpoint}, its response says that it is of ${other.endpoint}, and it was signed so`,
    ...(await signed(kit, { ...EXCHANGES[name].whole, response: other.whole.response })),
  }));
});

const STREAMS = streams.flatMap(({ name, endpoint, parts, events, named }): Case[] => {
  const streamed = async (kit: Kit, sent: readonly Sent[]) => ({
    attestation_file: await shared(kit, `${name}-stream`, parts),
    options: { expected: { endpoint, request: parts.request, transcript: savedStream(sent) } },
  });
  const delta = deltaOf(events);
  const one = events[delta] as Sent;
  const cases = [
    pass('expected_exchange', `${name}-stream`, async (kit) => ({
      description: `${endpoint}: the caller holds the stream, byte for byte, as it came without an attestation in it`,
      ...(await streamed(kit, events)),
      skipped: SELF_ASSERTED,
    })),
    fail('expected_exchange', `${name}-stream-changed`, 'stream_mismatch', async (kit) => ({
      description: `${endpoint}: a delta of the stream was changed`,
      ...(await streamed(kit, changed(events, delta, { payload: one.payload.replace(DELTA, 'Hal') }))),
    })),
    fail('expected_exchange', `${name}-stream-left-out`, 'stream_mismatch', async (kit) => ({
      description: `${endpoint}: an event of the stream is missing`,
      ...(await streamed(kit, without(events, delta))),
    })),
    fail('expected_exchange', `${name}-stream-response-changed`, 'stream_mismatch', async (kit) => ({
      description: `${endpoint}: the response in raw is not what the events fold into, and it was signed so`,
      ...(await signed(kit, { ...parts, response: parts.response.replace('Hello.', 'Goodbye.') })),
      options: { expected: { endpoint, transcript: savedStream(events) } },
    })),
    fail('expected_exchange', `${name}-stream-two-attestations`, 'stream_mismatch', async (kit) => ({
      description: `${endpoint}: two events of the stream have a member attestation`,
      attestation_file: await shared(kit, `${name}-stream`, parts),
      options: { expected: { endpoint, transcript: savedStream(events, {}, [delta, finalEvent(events)]) } },
    })),
  ];
  if (!named) return cases;
  return [
    ...cases,
    pass('expected_exchange', `${name}-stream-carried`, async (kit) => {
      const { attestation } = await signed(kit, parts);
      const transcript = savedStream(events, attestation, [finalEvent(events)]);
      return {
        description: `${endpoint}: the stream with its attestation ${name === 'responses' ? 'in the response of its final event' : 'in message_delta'}`,
        attestation,
        options: { expected: { endpoint, transcript } },
        skipped: SELF_ASSERTED,
      };
    }),
    fail('expected_exchange', `${name}-stream-renamed`, 'stream_mismatch', async (kit) => ({
      description: `${endpoint}: an event has another name`,
      ...(await streamed(kit, changed(events, delta, { name: 'ping' }))),
    })),
    fail('expected_exchange', `${name}-stream-without-name`, 'stream_malformed', async (kit) => ({
      description: `${endpoint}: an event has no name`,
      ...(await streamed(kit, changed(events, delta, { name: null }))),
    })),
    fail('expected_exchange', `${name}-stream-of-another-form`, 'stream_mismatch', async (kit) => {
      const other = EXCHANGES[name === 'responses' ? 'messages' : 'responses'].stream;
      return {
        description: `${endpoint}: the events are those of the other endpoint, and it was signed so`,
        ...(await signed(kit, { ...parts, stream: digestOf(other.events) })),
        options: { expected: { endpoint, transcript: savedStream(other.events) } },
      };
    }),
  ];
});

const { responses, messages, embeddings } = EXCHANGES;
const eventAlone = async (
  kit: Kit,
  { parts, events }: { parts: RawParts; events: readonly Sent[] },
): Promise<string> => {
  const { attestation } = await signed(kit, parts);
  const saved = savedStream(events, attestation, [finalEvent(events)]);
  return /data: (.*"attestation":.*)/.exec(saved)?.[1] ?? '';
};

const EVENT = { expected: { event: true } };

const ALONE_EVENTS: readonly Case[] = [
  pass('expected_exchange', 'responses-event', async (kit) => ({
    description: 'the final event of /v1/responses alone: its response is the one in raw',
    text: await eventAlone(kit, responses.stream),
    options: EVENT,
    skipped: SELF_ASSERTED,
  })),
  fail('expected_exchange', 'responses-event-changed', 'response_mismatch', async (kit) => ({
    description: 'the final event of /v1/responses alone, with another text in its response',
    text: (await eventAlone(kit, responses.stream)).replace('"text":"Hello."', '"text":"Goodbye."'),
    options: EVENT,
  })),
  fail('form', 'responses-event-with-output', 'unsigned_member', async (kit) => ({
    description: 'the final event of /v1/responses alone, with an output beside its response that nobody signed',
    text: (await eventAlone(kit, responses.stream)).replace('{', '{"output":[],'),
    options: EVENT,
  })),
  pass('form', 'messages-event', async (kit) => ({
    description: 'the message_delta that ends a message alone: a part of the message in raw',
    text: await eventAlone(kit, messages.stream),
    options: EVENT,
    skipped: ALONE,
  })),
  fail('expected_exchange', 'messages-event-changed', 'response_mismatch', async (kit) => ({
    description: 'the message_delta that ends a message alone, with another stop_reason',
    text: (await eventAlone(kit, messages.stream)).replace('"stop_reason":"tool_use"', '"stop_reason":"end_turn"'),
    options: EVENT,
  })),
  fail('form', 'responses-event-not-said', 'event_not_expected', async (kit) => ({
    description: 'the final event of /v1/responses alone, of which the caller does not say that it is an event',
    text: await eventAlone(kit, responses.stream),
  })),
  fail('expected_exchange', 'messages-event-not-said', 'event_not_expected', async (kit) => ({
    description: 'the message_delta that ends a message alone, of which the caller does not say that it is an event',
    text: await eventAlone(kit, messages.stream),
  })),
  fail('form', 'response-wrapped', 'event_not_expected', async (kit) => {
    const { attestation } = await signed(kit, responses.whole);
    const answer = withLastMember(responses.whole.response, 'attestation', JSON.stringify(attestation));
    return {
      description:
        'a whole answer in what looks like a final event, beside which stands an output_text that nobody signed',
      text: `{"type":"response.completed","response":${answer},"output_text":"Goodbye."}`,
    };
  }),
  fail('form', 'attestation-with-results', 'unsigned_member', async ({ world }) => ({
    description: 'an attestation by itself, beside whose members stand results that nobody signed',
    text: JSON.stringify({ ...(await forge(world)), results: [{ flagged: false }] }),
  })),
];

const NAMED = '"endpoint":"/v1/embeddings",';
const rawWith = (member: string): string => rawOf(embeddings.whole).replace(NAMED, member);
const badRaw = (what: string, description: string, raw: () => string, member = 'endpoint'): Case =>
  fail('raw_members', `${member}-${what}`, 'raw_malformed', async ({ world }) => ({
    description: `${description}, and was signed so`,
    attestation: await forge(world, { raw: raw() }),
  }));

const SESSION = 'ab'.repeat(32);
const badSession = (what: string, description: string, members: string): Case =>
  badRaw(what, description, () => rawWith(members), 'session');

const RAW: readonly Case[] = [
  pass('raw_members', 'endpoint', async (kit) => ({
    description: 'raw of /v1/embeddings: it begins with its endpoint',
    attestation_file: await shared(kit, 'embeddings', embeddings.whole),
    skipped: ALONE,
  })),
  badRaw('of-chats', 'raw names /v1/chat/completions, which has no name', () =>
    rawWith('"endpoint":"/v1/chat/completions",'),
  ),
  badRaw('last', 'raw has its endpoint as last member', () => rawWith('').replace(/\}$/, `,${NAMED.slice(0, -1)}}`)),
  badRaw('escaped', 'raw has its endpoint with an escape', () => rawWith('"endpoint":"/v1/\\u0065mbeddings",')),
  badRaw('twice', 'raw has two endpoints, one of them named with an escape', () =>
    rawWith(`${NAMED}"\\u0065ndpoint":"/v1/rerank",`),
  ),
  pass('raw_members', 'session', async (kit) => ({
    description: 'raw names the session of a processor, of which no evidence came: a GPU signed, and no more is proven',
    ...(await signed(kit, { ...embeddings.whole, session: SESSION })),
    skipped: ALONE,
  })),
  badSession('first', 'raw names its session before its endpoint', `"session":"${SESSION}",${NAMED}`),
  badSession('upper-case', 'raw names a session in upper case', `${NAMED}"session":"${SESSION.toUpperCase()}",`),
  badSession('escaped', 'raw names its session with an escape', `${NAMED}"\\u0073ession":"${SESSION}",`),
  badRaw(
    'last',
    'raw names its session behind the request',
    () => rawOf(embeddings.whole).replace(/\}$/, `,"session":"${SESSION}"}`),
    'session',
  ),
  badRaw('with-query', 'raw has an endpoint with a query', () => rawWith('"endpoint":"/v1/embeddings?a=1",')),
];

export const ENDPOINT_CASES: readonly Case[] = [...WHOLE, ...SAYS, ...STREAMS, ...ALONE_EVENTS, ...RAW];
