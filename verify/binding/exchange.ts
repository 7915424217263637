// Compares raw with the caller's own record: the endpoint and request sent, the response or the event stream received.
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { CHAT_ENDPOINT, type RawParts } from '../../proto/attestation/raw.ts';
import { duplicateMember, topLevelMembers, withoutSpaceAround } from '../../proto/json.ts';
import { parseKeepingNumbers } from '../../proto/kept-numbers.ts';
import { SET_BY_DELTA, SET_BY_EVENT } from '../../proto/stream/events.ts';
import { FoldError, foldPayloads } from '../../proto/stream/fold.ts';
import { choicesAsked, type StreamForm, streamFormOf } from '../../proto/stream/forms.ts';
import { BYTE_ORDER_MARK, isDone, readEvents, SseError } from '../../proto/stream/sse.ts';
import { concat, digest, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure, type Limits, type Outcome, seen, skipped } from '../common/checks.ts';
import { bounded } from '../common/limited.ts';
import type { Expected } from '../policy/options.ts';
import { attestationIn, type Carrier, noDuplicates, withoutAttestation } from './input.ts';
import { isPartOf, sameTokens, sameValue } from './json-equality.ts';

/**
 * @param raw the parts of the attestation's raw.
 * @throws {CheckFailure} endpoint_mismatch, request_mismatch, response_mismatch, event_not_expected, stream_mismatch, stream_not_foldable
 */
export async function compareExchange(
  attestation: Attestation,
  raw: RawParts,
  expected: Expected,
  carrier: Carrier | null,
): Promise<Outcome<true>> {
  const compared: string[] = [];
  const { endpoint = CHAT_ENDPOINT } = raw;
  compareEndpoint(endpoint, raw.response, expected.endpoint);
  if (expected.endpoint !== undefined) compared.push(`the endpoint ${endpoint}`);
  const about = expected.endpoint === undefined && raw.endpoint !== undefined ? `; it is about ${endpoint}` : '';
  if (expected.request !== undefined) {
    if (!sameTokens(expected.request, raw.request))
      throw new CheckFailure(
        'request_mismatch',
        'raw holds another request than the one that was sent: a router before the gateway that writes JSON anew would do that',
      );
    compared.push('the request');
  }
  if (expected.response !== undefined) {
    if (!sameTokens(withoutAttestation(expected.response, attestation), raw.response))
      throw new CheckFailure('response_mismatch', 'raw holds another response than the one that was received');
    compared.push('the response');
  }
  if (expected.transcript !== undefined) {
    await compareTranscript(attestation, raw, expected.transcript);
    compared.push(`the ${raw.stream?.events} events of the stream, byte for byte`);
  }
  const chunk = carrier !== null && expected.event === true && isChunkOf(raw, carrier);
  if (carrier !== null && !chunk) {
    if (carrier.text !== null && duplicateMember(carrier.text) !== null)
      throw new CheckFailure('response_mismatch', 'the response that carries the attestation names a member twice');
    if (!isResponse(raw, carrier))
      throw expected.event !== true && isChunkOf(raw, carrier)
        ? new CheckFailure(
            'event_not_expected',
            'it is an event of a stream by itself: it counts only where the caller says so',
          )
        : new CheckFailure('response_mismatch', 'the response that carries the attestation is not the one in raw');
    compared.push('the response that carries the attestation');
  }
  if (compared.length === 0)
    return skipped(
      `the caller passed no request or response to compare with${chunk ? '; the chunk that carries it fits, its time and usage left out' : ''}${about}`,
    );
  return seen(`raw holds ${compared.join(', ')}${about}`);
}

/** The endpoint of a response, by its member `object` or `type`. */
const ENDPOINT_BY_TYPE: Readonly<Record<string, string>> = {
  'chat.completion': CHAT_ENDPOINT,
  text_completion: '/v1/completions',
  response: '/v1/responses',
  message: '/v1/messages',
};

/** @throws {CheckFailure} endpoint_mismatch */
function compareEndpoint(endpoint: string, response: string, expected: string | undefined): void {
  if (expected !== undefined && expected !== endpoint)
    throw new CheckFailure('endpoint_mismatch', `raw is about ${endpoint}, not about the endpoint that was asked`);
  const known = Object.values(ENDPOINT_BY_TYPE).includes(endpoint);
  for (const { key, valueStart, valueEnd } of known ? topLevelMembers(response) : []) {
    if (key !== 'object' && key !== 'type') continue;
    // The value may be written in escapes.
    const typeName: unknown = response[valueStart] === '"' ? JSON.parse(response.slice(valueStart, valueEnd)) : null;
    if (
      typeof typeName === 'string' &&
      Object.hasOwn(ENDPOINT_BY_TYPE, typeName) &&
      ENDPOINT_BY_TYPE[typeName] !== endpoint
    )
      throw new CheckFailure(
        'endpoint_mismatch',
        `raw is about ${endpoint}, and its response is of ${ENDPOINT_BY_TYPE[typeName]}`,
      );
  }
}

/** A whole response without its attestation is the backend's bytes (docs/attestation.md §4). For a stream, only values are compared. */
function isResponse({ response, stream }: RawParts, { text, value }: Carrier): boolean {
  // A parsed object has lost the source texts of its numbers.
  if (text === null) return sameValue(value, JSON.parse(response));
  // Splitting raw drops the white space around a value.
  if (withoutSpaceAround(text) === response) return true;
  try {
    return stream !== undefined && sameValue(exactly(text), exactly(response));
  } catch {
    return false;
  }
}

/** Whether the carrier is the final event of the stream. Folded by itself, a chunk must be a part of the folded response. */
function isChunkOf(raw: RawParts, carrier: Carrier): boolean {
  const { response, stream, endpoint = CHAT_ENDPOINT } = raw;
  const { text, value } = carrier;
  if (stream === undefined) return false;
  const form = streamFormOf(endpoint);
  if (form === 'message') return isMessageDelta(response, carrier);
  if (form !== 'completion' || !looksLikeFinishChunk(value)) return false;
  try {
    if (text === null)
      return isPartOf(lasting(JSON.parse(foldPayloads([JSON.stringify(value)], null)), value), JSON.parse(response));
    noDuplicates(text);
    return isPartOf(lasting(exactly(foldPayloads([text], null)), value), exactly(response));
  } catch {
    // A carrier that does not fold is no chunk.
    return false;
  }
}

/** A message_delta sets its members on the message; only its usage may be changed by a later one. It may have no other members. */
function isMessageDelta(response: string, { text, value }: Carrier): boolean {
  if (value.type !== 'message_delta') return false;
  try {
    const { type: _, delta, usage: __, ...others } = (text === null ? value : exactly(text)) as Record<string, unknown>;
    const whole = (text === null ? JSON.parse(response) : exactly(response)) as Record<string, unknown>;
    const isSet = ([name, value]: [string, unknown], names: readonly string[]) =>
      names.includes(name) && sameValue(value, whole[name] ?? null);
    return (
      Object.entries(others).every((member) => isSet(member, SET_BY_EVENT)) &&
      Object.entries((delta ?? {}) as object).every((member) => isSet(member, SET_BY_DELTA))
    );
  } catch {
    return false;
  }
}

/**
 * Keeps those members of a folded chunk that other chunks do not change: it drops the time and the usage (docs/attestation.md §3), and a
 * role that the chunk does not name.
 */
function lasting(folded: unknown, { object, choices }: Readonly<Record<string, unknown>>): unknown {
  const part = { ...(folded as Record<string, unknown>) };
  // A text completion with this object may be a whole response.
  if (object === 'chat.completion.chunk') for (const name of ['created', 'usage']) delete part[name];
  const named = (choices as readonly { delta?: { role?: unknown } | null }[]).some(({ delta }) => delta?.role != null);
  if (!named)
    part.choices = (part.choices as readonly { message?: object }[]).map((choice) =>
      choice.message === undefined ? choice : { ...choice, message: { ...choice.message, role: null } },
    );
  return part;
}

/** Parses JSON with numbers kept as text. @throws {CheckFailure} where a name occurs twice in an object, at any depth. */
function exactly(text: string): unknown {
  noDuplicates(text);
  return parseKeepingNumbers(text);
}

/** A whole chat completion differs from a chunk by `object` and by `message`. A text completion's chunk looks like a whole one. */
function looksLikeFinishChunk({ object, choices }: Readonly<Record<string, unknown>>): boolean {
  if (object === 'chat.completion' || !Array.isArray(choices)) return false;
  const objects = choices.filter((choice) => typeof choice === 'object' && choice !== null);
  return (
    objects.some(({ finish_reason: reason }) => (reason ?? '') !== '') && !objects.some((choice) => 'message' in choice)
  );
}

// Compares raw with the event stream that the caller kept, byte for byte.

/** One event carries the attestation, which quotes raw: up to twice raw's limit of 60 Mi characters, and the rest of the event. */
const MAX_EVENT_BYTES = 256 * 1024 * 1024;

/**
 * @param attestation the only one that an event may carry.
 * @throws {CheckFailure} stream_malformed: the transcript is not of the form in proto/stream/sse.ts; stream_mismatch,
 * stream_not_foldable
 */
export async function compareTranscript(
  attestation: Attestation,
  { endpoint = CHAT_ENDPOINT, request, stream, response }: RawParts,
  transcript: Uint8Array,
): Promise<void> {
  if (stream === undefined) throw mismatch('raw is about a whole response, not about a stream');
  const form = streamFormOf(endpoint);
  if (form === null) throw mismatch('raw is about a stream of an endpoint whose streams no rule folds');
  const events = withoutSpliced(eventsOf(transcript), attestation);
  for (const { name } of events)
    if ((name === null) !== (form === 'completion'))
      throw malformed(name === null ? 'an event has no name' : 'a line is neither data nor a comment');
  if (events.length !== stream.events)
    throw mismatch(`the transcript has ${events.length} events, the stream that was signed had ${stream.events}`);
  const hashed = events.map(({ name, text }) => utf8(name === null ? `${text}\n` : `${name}\n${text}\n`));
  if (toHex(await digest('SHA-256', concat(hashed))) !== stream.sha256)
    throw mismatch('the events are others than those that were signed');
  if ((await folded(form, events, choicesAsked(endpoint, request))) !== response)
    throw mismatch('the events do not fold into the response in raw');
}

interface TextEvent {
  readonly name: string | null;
  /** Its payload. */
  readonly text: string;
}

async function folded(form: StreamForm, events: readonly TextEvent[], max_choices: number): Promise<string> {
  try {
    if (form === 'completion')
      return foldPayloads(
        events.map(({ text }) => text),
        max_choices,
      );
    const { recordEvents } = await import('../../proto/stream/record-events.ts');
    const record = recordEvents(form);
    for (const { name, text } of events)
      if (record.add(name, text) === 'error') throw mismatch('the stream ended with an error');
    return record.text();
  } catch (cause) {
    if (cause instanceof CheckFailure) throw cause;
    if (!(cause instanceof FoldError)) throw new CheckFailure('stream_mismatch', 'the events do not fold', { cause });
    const code = cause.reason === 'rule' ? 'stream_not_foldable' : 'stream_mismatch';
    throw new CheckFailure(code, `the events do not fold: ${cause.message}`, { cause });
  }
}

/** The exact text of the attestation in the first event that carries one. @throws {CheckFailure} stream_malformed, not_an_attestation */
export function attestationOf(transcript: Uint8Array, limits: Limits = {}): string {
  const { maxCharacters = MAX_EVENT_BYTES } = limits;
  if (transcript.length > maxCharacters)
    throw new CheckFailure('too_large', `a stream of more than ${maxCharacters} bytes`);
  const events = eventsOf(transcript, limits);
  for (const { text } of events) {
    const attestation = attestationIn(text);
    if (attestation !== null) return attestation;
  }
  throw new CheckFailure('not_an_attestation', 'no event of the stream carries an attestation');
}

/** Every event but `[DONE]`. @throws {CheckFailure} stream_malformed, too_large */
function eventsOf(transcript: Uint8Array, limits: Limits = {}): TextEvent[] {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    // No gateway writes a byte order mark, and some clients lose the first event after one.
    if (BYTE_ORDER_MARK.every((byte, i) => transcript[i] === byte)) throw malformed('it begins with a byte order mark');
    const events = readEvents(transcript, MAX_EVENT_BYTES);
    const done = events.findIndex(({ name, payload }) => name === null && isDone(payload));
    // Clients stop at [DONE], so nobody saw the events after it.
    if (done >= 0 && done < events.length - 1) throw malformed('events come after [DONE]');
    const read = (done < 0 ? events : events.slice(0, -1)).map(({ name, payload }) => ({
      name,
      text: decoder.decode(payload),
    }));
    bounded(read.map(({ text }) => text).join(), { ...limits, maxCharacters: Number.POSITIVE_INFINITY });
    return read;
  } catch (cause) {
    if (cause instanceof SseError) throw malformed(cause.message, cause);
    if (cause instanceof TypeError) throw malformed('the transcript is not in UTF-8', cause);
    throw cause;
  }
}

/** The events as the backend sent them, without the attestation that the gateway spliced in. */
function withoutSpliced(events: readonly TextEvent[], attestation: Attestation): TextEvent[] {
  const [at, ...more] = events.flatMap(({ text }, i) => (attestationIn(text) === null ? [] : [i]));
  if (more.length > 0) throw mismatch('several events carry an attestation');
  const cut = events.map((event, i) =>
    i === at ? { name: event.name, text: withoutAttestation(event.text, attestation) } : event,
  );
  if (cut.some(({ text }, i) => i === at && attestationIn(text) !== null))
    throw mismatch('an event carries another attestation than the one that is checked, or carries it twice');
  return cut;
}

/** Whether a text is a saved event stream and not JSON. */
export const isTranscript = (text: string): boolean => /^\ufeff?\s*(data|event|id|retry)?:/.test(text.slice(0, 64));

const mismatch = (message: string) => new CheckFailure('stream_mismatch', message);

const malformed = (message: string, cause?: unknown) => new CheckFailure('stream_malformed', message, { cause });
