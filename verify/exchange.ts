// Compares raw with what the caller holds: the request sent, the response or the event stream received.
import type { Attestation } from '../proto/attestation.ts';
import { foldPayloads } from '../proto/fold.ts';
import { duplicateMember, withoutSpaceAround } from '../proto/json.ts';
import { parseKeepingNumbers } from '../proto/number.ts';
import type { RawParts } from '../proto/raw.ts';
import { type Outcome, seen, skipped } from './checklist.ts';
import { CheckFailure } from './checks.ts';
import { type Carrier, noDuplicates } from './form.ts';
import { isPartOf, sameTokens, sameValue } from './same-json.ts';
import { withoutAttestation } from './spliced.ts';
import { compareTranscript } from './transcript.ts';
import type { Expected } from './types.ts';

/**
 * @param attestation the one that is checked, whose parts `raw` are.
 * @throws {CheckFailure} request_mismatch, response_mismatch, stream_mismatch
 */
export async function compareExchange(
  attestation: Attestation,
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
    if (!sameTokens(withoutAttestation(expected.response, attestation), raw.response))
      throw new CheckFailure('response_mismatch', 'raw holds another response than the one that was received');
    compared.push('the response');
  }
  if (expected.transcript !== undefined) {
    await compareTranscript(attestation, raw, expected.transcript);
    compared.push(`the ${raw.stream?.events} events of the stream, byte for byte`);
  }
  const chunk = carrier !== null && isChunkOf(raw, carrier);
  if (carrier !== null && !chunk) {
    if (carrier.text !== null && duplicateMember(carrier.text) !== null)
      throw new CheckFailure('response_mismatch', 'the response that carries the attestation names a member twice');
    if (!isResponse(raw, carrier))
      throw new CheckFailure('response_mismatch', 'the response that carries the attestation is not the one in raw');
    compared.push('the response that carries the attestation');
  }
  if (compared.length === 0)
    return skipped(
      `the caller passed no request or response to compare with${chunk ? '; the chunk that carries it fits, its time and usage left out' : ''}`,
    );
  return seen(`raw holds ${compared.join(', ')}`);
}

/** DESIGN §6: taken out of its response, the attestation leaves the backend's bytes. A stream has none to leave. */
function isResponse({ response, stream }: RawParts, { text, value }: Carrier): boolean {
  // Of numbers in a parsed object the texts are lost.
  if (text === null) return sameValue(value, JSON.parse(response));
  // Splitting raw leaves the space around a value behind.
  if (withoutSpaceAround(text) === response) return true;
  try {
    return stream !== undefined && sameValue(exactly(text), exactly(response));
  } catch {
    return false;
  }
}

/** The finish chunk of a stream carries the attestation too: folded by itself it must be a part of what all of them fold into. */
function isChunkOf({ response, stream }: RawParts, { text, value }: Carrier): boolean {
  if (stream === undefined || !looksLikeFinishChunk(value)) return false;
  try {
    if (text === null)
      return isPartOf(lasting(JSON.parse(foldPayloads([JSON.stringify(value)])), value), JSON.parse(response));
    noDuplicates(text);
    return isPartOf(lasting(exactly(foldPayloads([text])), value), exactly(response));
  } catch {
    // What does not fold is no chunk.
    return false;
  }
}

/**
 * Of a chunk folded by itself, what the fold of all chunks has as it is here: not the time and the usage, which a later chunk
 * sets anew (docs/attestation.md §3), and not the role that the fold gives to a message of which no chunk names one.
 */
function lasting(folded: unknown, { object, choices }: Readonly<Record<string, unknown>>): unknown {
  const part = { ...(folded as Record<string, unknown>) };
  // A text completion that says this may be the whole one.
  if (object === 'chat.completion.chunk') for (const name of ['created', 'usage']) delete part[name];
  const named = (choices as readonly { delta?: { role?: unknown } | null }[]).some(({ delta }) => delta?.role != null);
  if (!named)
    part.choices = (part.choices as readonly { message?: object }[]).map((choice) =>
      choice.message === undefined ? choice : { ...choice, message: { ...choice.message, role: null } },
    );
  return part;
}

/** Numbers keep their texts. @throws {CheckFailure} where a name stands twice in an object, at any depth. */
function exactly(text: string): unknown {
  noDuplicates(text);
  return parseKeepingNumbers(text);
}

/** A chat completion says in two ways that it is whole. Of a text completion only the stream can tell a chunk from a whole. */
function looksLikeFinishChunk({ object, choices }: Readonly<Record<string, unknown>>): boolean {
  if (object === 'chat.completion' || !Array.isArray(choices)) return false;
  const bags = choices.filter((choice) => typeof choice === 'object' && choice !== null);
  return bags.some(({ finish_reason: reason }) => (reason ?? '') !== '') && !bags.some((choice) => 'message' in choice);
}
