// Compares raw with what the caller holds: the request sent, the response or the event stream received.
import { foldPayloads } from '../proto/fold.ts';
import { topLevelMembers, withoutMember } from '../proto/json.ts';
import type { RawParts } from '../proto/raw.ts';
import { type SseEvent, SseLimitError, SseSplitter } from '../proto/sse.ts';
import { concat, digest, toHex, utf8 } from './bytes.ts';
import { type Outcome, seen, skipped } from './checklist.ts';
import { CheckFailure } from './checks.ts';
import type { Carrier } from './form.ts';
import type { Expected } from './types.ts';

const MAX_EVENT_BYTES = 64 * 1024 * 1024;

/** @throws {CheckFailure} request_mismatch, response_mismatch, stream_mismatch */
export async function compareExchange(
  raw: RawParts,
  expected: Expected,
  carrier: Carrier | null,
): Promise<Outcome<true>> {
  const compared: string[] = [];
  if (expected.request !== undefined) {
    if (!sameTokens(expected.request, raw.request))
      throw new CheckFailure('request_mismatch', 'raw holds another request than the one that was sent');
    compared.push('the request');
  }
  if (expected.response !== undefined) {
    if (!sameTokens(withoutAttestation(expected.response), raw.response))
      throw new CheckFailure('response_mismatch', 'raw holds another response than the one that was received');
    compared.push('the response');
  }
  if (expected.transcript !== undefined) {
    await compareTranscript(raw, expected.transcript);
    compared.push(`the ${raw.stream?.events} events of the stream, byte for byte`);
  }
  if (carrier !== null && !isChunkOf(raw, carrier)) {
    if (!isResponse(raw, carrier))
      throw new CheckFailure('response_mismatch', 'the response that carries the attestation is not the one in raw');
    compared.push('the response that carries the attestation');
  }
  if (compared.length === 0) return skipped('the caller passed no request or response to compare with');
  return seen(`raw holds ${compared.join(', ')}`);
}

/** DESIGN §6: taken out of its response, the attestation leaves the backend's bytes. A stream has none to leave. */
function isResponse(raw: RawParts, { text, value }: Carrier): boolean {
  if (text === raw.response) return true;
  return (text === null || raw.stream !== undefined) && sameValue(value, JSON.parse(raw.response));
}

/** The finish chunk of a stream carries the attestation too: a piece of the response, which ends with what it adds. */
function isChunkOf(raw: RawParts, { value }: Carrier): boolean {
  if (raw.stream === undefined) return false;
  const whole = JSON.parse(raw.response) as Completion;
  const { id, choices } = value as Completion;
  if (id !== whole.id || !Array.isArray(choices) || value.object === 'chat.completion') return false;
  return choices.every((choice) => {
    const full = whole.choices?.find(({ index }) => index === choice?.index);
    return full !== undefined && (contentOf(full) ?? '').endsWith(contentOf(choice) ?? '');
  });
}

interface Choice {
  readonly index?: unknown;
  readonly text?: unknown;
  readonly delta?: { readonly content?: unknown } | null;
  readonly message?: { readonly content?: unknown } | null;
}

interface Completion {
  readonly id?: unknown;
  readonly choices?: readonly Choice[];
}

function contentOf({ text, delta, message }: Choice): string | null {
  const content = text ?? delta?.content ?? message?.content;
  return typeof content === 'string' ? content : null;
}

/** A response in which the attestation still stands, or one without. */
function withoutAttestation(response: string): string {
  try {
    const members = topLevelMembers(response);
    const at = members.findIndex(({ key }) => key === 'attestation');
    return at < 0 ? response : withoutMember(response, members, at);
  } catch {
    return response;
  }
}

/** Equal but for white space between JSON tokens. */
function sameTokens(a: string, b: string): boolean {
  return a === b || tokens(a) === tokens(b);
}

function tokens(text: string): string {
  return text.replace(/("(?:[^"\\]|\\.)*")|\s+/gs, (_, string: string | undefined) => string ?? '');
}

function sameValue(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [names, others] = [Object.keys(a), Object.keys(b)];
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  return (
    names.length === others.length &&
    names.every((name) => Object.hasOwn(b, name) && sameValue(left[name], right[name]))
  );
}

async function compareTranscript(raw: RawParts, transcript: Uint8Array): Promise<void> {
  const { stream } = raw;
  if (stream === undefined) throw mismatch('raw is about a whole response, not about a stream');
  const payloads = payloadsOf(transcript);
  if (payloads.length !== stream.events)
    throw mismatch(`the transcript has ${payloads.length} events, the stream that was signed had ${stream.events}`);
  const bytes = concat(...payloads.map((payload) => utf8(`${payload}\n`)));
  if (toHex(await digest('SHA-256', bytes)) !== stream.sha256)
    throw mismatch('the events are others than those that were signed');
  if (folded(payloads) !== raw.response) throw mismatch('the events do not fold into the response in raw');
}

function folded(payloads: readonly string[]): string {
  try {
    return foldPayloads(payloads);
  } catch (cause) {
    throw new CheckFailure('stream_mismatch', 'the events do not fold', { cause });
  }
}

/** Every `data:` payload but `[DONE]`, with the spliced attestation cut out. DESIGN §5 hashes the bytes as UTF-8. */
function payloadsOf(transcript: Uint8Array): string[] {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    return events(transcript).flatMap(({ data }) => {
      const payload = data === null ? '[DONE]' : decoder.decode(data);
      return payload === '[DONE]' ? [] : [withoutAttestation(payload)];
    });
  } catch (cause) {
    if (cause instanceof TypeError || cause instanceof SseLimitError)
      throw new CheckFailure('stream_mismatch', 'the transcript is not an event stream in UTF-8', { cause });
    throw cause;
  }
}

function events(transcript: Uint8Array): SseEvent[] {
  const splitter = new SseSplitter(MAX_EVENT_BYTES);
  const all = splitter.push(transcript);
  const rest = splitter.end();
  return rest === null ? all : [...all, rest];
}

const mismatch = (message: string) => new CheckFailure('stream_mismatch', message);
