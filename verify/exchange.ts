// Compares raw with what the caller holds: the request sent, the response or the event stream received.
import { foldPayloads } from '../proto/fold.ts';
import { JsonTextError, parseObjectOnce, topLevelMembers, withoutMember, withoutSpaceAround } from '../proto/json.ts';
import type { RawParts } from '../proto/raw.ts';
import { type SseEvent, SseLimitError, SseSplitter } from '../proto/sse.ts';
import { concat, digest, toHex, utf8 } from './bytes.ts';
import { type Outcome, seen, skipped } from './checklist.ts';
import { CheckFailure } from './checks.ts';
import type { Carrier } from './form.ts';
import { isPartOf, sameTokens, sameValue } from './same-json.ts';
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
  // Splitting raw leaves the space around a value behind.
  if (text !== null && withoutSpaceAround(text) === raw.response) return true;
  return (text === null || raw.stream !== undefined) && sameValue(value, JSON.parse(raw.response));
}

/** The finish chunk of a stream carries the attestation too: folded by itself it must be a part of what all of them fold into. */
function isChunkOf(raw: RawParts, { text, value }: Carrier): boolean {
  if (raw.stream === undefined || !looksLikeFinishChunk(value)) return false;
  try {
    return isPartOf(JSON.parse(foldPayloads([text ?? JSON.stringify(value)])), JSON.parse(raw.response));
  } catch {
    // What does not fold is no chunk.
    return false;
  }
}

/** A chat completion says in two ways that it is whole. Of a text completion only the stream can tell a chunk from a whole. */
function looksLikeFinishChunk({ object, choices }: Readonly<Record<string, unknown>>): boolean {
  if (object === 'chat.completion' || !Array.isArray(choices)) return false;
  const bags = choices.filter((choice) => typeof choice === 'object' && choice !== null);
  return bags.some(({ finish_reason }) => Boolean(finish_reason)) && !bags.some((choice) => 'message' in choice);
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
    const payloads = events(transcript).flatMap(({ data }) => (data === null ? [] : [decoder.decode(data)]));
    const done = payloads.indexOf('[DONE]');
    // Clients stop there, so what came after it was not shown to anybody.
    if (done >= 0 && done < payloads.length - 1) throw mismatch('events come after [DONE]');
    return (done < 0 ? payloads : payloads.slice(0, -1)).map(withoutSpliced);
  } catch (cause) {
    if (cause instanceof TypeError || cause instanceof SseLimitError)
      throw new CheckFailure('stream_mismatch', 'the transcript is not an event stream in UTF-8', { cause });
    if (cause instanceof JsonTextError)
      throw new CheckFailure('stream_mismatch', `an event of the transcript: ${cause.message}`, { cause });
    throw cause;
  }
}

/** The chunk as the backend sent it. @throws {JsonTextError} */
function withoutSpliced(payload: string): string {
  if (!payload.includes('attestation')) return payload;
  // The bytes that are cut out are in no hash, so the chunk is read with them in it.
  parseObjectOnce(payload);
  return withoutAttestation(payload);
}

function events(transcript: Uint8Array): SseEvent[] {
  const splitter = new SseSplitter(MAX_EVENT_BYTES);
  const all = splitter.push(transcript);
  const rest = splitter.end();
  return rest === null ? all : [...all, rest];
}

const mismatch = (message: string) => new CheckFailure('stream_mismatch', message);
