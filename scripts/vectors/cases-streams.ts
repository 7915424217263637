// Cases about what clients show of a stream: what would lose, double, replace or invent some of it does not fold, whatever was signed.
import type { RawParts } from '../../proto/attestation/raw.ts';
import type { FailureCode } from '../../verify/index.ts';
import { digestOf, EXCHANGES, type Sent, savedStream } from './endpoints.ts';
import { forge } from './forge.ts';
import { type Case, fail, type Kit, pass, SELF_ASSERTED } from './kit.ts';

type Name = 'chat' | 'completions' | 'responses' | 'messages';
type Change = (payload: string) => string;

/** Signed so: the response is what a dishonest gateway could have a device sign beside these events. */
async function signed(kit: Kit, name: Name, events: readonly Sent[], response: string) {
  const { endpoint, stream } = EXCHANGES[name];
  const parts: RawParts = { ...stream.parts, response, stream: digestOf(events) };
  return {
    attestation: await forge(kit.world, { parts }),
    options: { expected: { endpoint, transcript: savedStream(events) } },
  };
}

/** The endpoint's own stream, with the payloads that contain `where` changed. */
function changed(name: Name, where: string, change: Change): Sent[] {
  const { events } = EXCHANGES[name].stream;
  return events.map((event) => (event.payload.includes(where) ? { ...event, payload: change(event.payload) } : event));
}

const put =
  (before: string, more: string): Change =>
  (payload) =>
    payload.replace(before, `${more}${before}`);
const instead =
  (from: string, to: string): Change =>
  (payload) =>
    payload.replace(from, to);

interface Shown {
  readonly name: Name;
  readonly what: string;
  readonly description: string;
  readonly events: readonly Sent[];
  /** What is signed beside them; the response of the endpoint's own stream by default. */
  readonly response?: string;
  /** `stream_not_foldable` by default. */
  readonly code?: FailureCode;
}

const MORE = '{"type":"message","id":"msg_2","role":"assistant","content":[{"type":"output_text","text":" Or not."}]}';
const CALL = '"tool_calls":[{"index":0,"id":"a","function":{"name":"pay","arguments":"{}"}}],';
const NO_LOSS: readonly Shown[] = [
  {
    name: 'chat',
    what: 'message-beside-delta',
    description: 'a choice has a message beside its delta',
    events: changed('chat', '"content":"Hel"', put('"delta"', '"message":{"role":"assistant","content":"No."},')),
  },
  {
    name: 'chat',
    what: 'content-changes-type',
    description: 'the content becomes an object after text was shown',
    events: changed('chat', '"content":"lo', (payload) => payload.replace(/"content":"lo[^"]*"/, '"content":{}')),
  },
  {
    name: 'chat',
    what: 'choice-without-index',
    description: 'a choice has no index',
    events: changed('chat', '"content":"Hel"', instead('"index":0,', '')),
  },
  {
    name: 'chat',
    what: 'second-choice',
    description: 'there are two choices where the request asks for one',
    events: changed('chat', '"content":"Hel"', put('{"index":0', '{"index":1,"delta":{"content":"No."}},')),
  },
  {
    name: 'chat',
    what: 'two-calls-under-one-index',
    description: 'two complete calls have the same index',
    events: changed('chat', '"content"', put('"content"', CALL)),
  },
  {
    name: 'chat',
    what: 'model-changes',
    description: 'the model has another name in one chunk',
    events: changed('chat', '"content":"Hel"', instead('"model":"demo"', '"model":"other"')),
  },
  {
    name: 'completions',
    what: 'text-changes-type',
    description: 'a text is a list in one chunk',
    events: changed('completions', '"text":"Hel"', instead('"text":"Hel"', '"text":["Hel"]')),
  },
  {
    name: 'responses',
    what: 'final-says-more',
    description: 'the final response has an item that was not streamed',
    events: changed('responses', '"type":"response.completed"', instead('],"temperature"', `,${MORE}],"temperature"`)),
    response: EXCHANGES.responses.stream.parts.response.replace('],"temperature"', `,${MORE}],"temperature"`),
  },
  {
    name: 'responses',
    what: 'text-under-two-ids',
    description: 'the text is streamed a second time, under the id of no item',
    events: EXCHANGES.responses.stream.events.flatMap((event) =>
      event.payload.includes('"delta":"lo."')
        ? [event, { ...event, payload: event.payload.replace('msg_1', 'ghost').replace('lo.', 'Hello.') }]
        : [event],
    ),
  },
  {
    name: 'responses',
    what: 'item-ends-as-another',
    description: 'response.output_item.done has another item than the final response',
    events: EXCHANGES.responses.stream.events.flatMap((event) => {
      if (!event.payload.includes('output_text.done')) return [event];
      const item =
        '{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Goodbye."}]}';
      const type = 'response.output_item.done';
      const payload = `{"type":"${type}","sequence_number":3,"output_index":0,"item":${item}}`;
      return [event, { name: type, payload }];
    }),
  },
  {
    name: 'messages',
    what: 'delta-of-a-new-type',
    description: 'a delta is of a type that has no rule',
    events: changed('messages', '"text":"lo."', instead('"text_delta"', '"words_delta"')),
  },
  {
    name: 'messages',
    what: 'block-begins-with-text',
    description: 'a block begins with text that is no delta',
    events: changed('messages', '"content_block":{"type":"text"', instead('"text":""', '"text":"No. "')),
    response: EXCHANGES.messages.stream.parts.response.replace('Hello.', 'No. Hello.'),
  },
  {
    name: 'messages',
    what: 'delta-sets-the-model',
    description: 'message_delta sets the model, and it was signed so',
    events: changed('messages', '"type":"message_delta"', put('"stop_reason"', '"model":"other",')),
    response: EXCHANGES.messages.stream.parts.response.replace('"model":"demo"', '"model":"other"'),
    code: 'stream_mismatch',
  },
];

const PARTS = '[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}]';
const FOLDS: readonly Shown[] = [
  {
    name: 'chat',
    what: 'content-in-parts',
    description: 'the content comes as a list of parts and then as text',
    events: changed('chat', '"content":""', instead('"content":""', `"content":${PARTS}`)),
    response: EXCHANGES.chat.stream.parts.response.replace(
      '"content":"Hello."',
      `"content":${PARTS.slice(0, -1)},{"type":"text","text":"Hello."}]`,
    ),
  },
  {
    name: 'responses',
    what: 'indices-of-another-part',
    description: 'the indices of deltas name another part than the final response has',
    events: changed('responses', '"content_index":0', instead('"content_index":0', '"content_index":1')),
  },
  {
    name: 'messages',
    what: 'block-left-open',
    description: 'message_delta comes before the last block has stopped',
    events: EXCHANGES.messages.stream.events.filter(
      ({ payload }) => payload !== '{"type":"content_block_stop","index":1}',
    ),
  },
];

const made = (
  { name, what, description, events, response, code = 'stream_not_foldable' }: Shown,
  check: 'pass' | 'fail',
): Case => {
  const { endpoint, stream } = EXCHANGES[name];
  const make: Case['make'] = async (kit) => ({
    description: `${endpoint}: ${description}`,
    ...(await signed(kit, name, events, response ?? stream.parts.response)),
    ...(check === 'pass' ? { skipped: SELF_ASSERTED } : {}),
  });
  const file = `${name}-stream-${what}`;
  return check === 'pass' ? pass('expected_exchange', file, make) : fail('expected_exchange', file, code, make);
};

export const STREAM_CASES: readonly Case[] = [
  ...NO_LOSS.map((one) => made(one, 'fail')),
  ...FOLDS.map((one) => made(one, 'pass')),
];
