// Compares raw with the event stream that the caller kept, byte for byte.
import type { Attestation } from '../proto/attestation.ts';
import { foldPayloads } from '../proto/fold.ts';
import type { RawParts } from '../proto/raw.ts';
import { BYTE_ORDER_MARK, isDone, readPayloads, SseError } from '../proto/sse.ts';
import { concatAll, digest, toHex, utf8 } from './bytes.ts';
import { CheckFailure } from './checks.ts';
import { attestationIn, withoutAttestation } from './spliced.ts';
import type { Limits } from './types.ts';

/** One carries the attestation, in which raw is quoted: twice the 60 Mi characters that raw may have, and what it is beside. */
const MAX_EVENT_BYTES = 256 * 1024 * 1024;

/**
 * @param attestation the one that is checked: it alone may stand in one of the events.
 * @throws {CheckFailure} stream_malformed: it has more than the profile in proto/sse.ts allows; stream_mismatch
 */
export async function compareTranscript(
  attestation: Attestation,
  { stream, response }: RawParts,
  transcript: Uint8Array,
): Promise<void> {
  if (stream === undefined) throw mismatch('raw is about a whole response, not about a stream');
  const payloads = withoutSpliced(payloadsOf(transcript), attestation);
  if (payloads.length !== stream.events)
    throw mismatch(`the transcript has ${payloads.length} events, the stream that was signed had ${stream.events}`);
  const bytes = concatAll(payloads.map((payload) => utf8(`${payload}\n`)));
  if (toHex(await digest('SHA-256', bytes)) !== stream.sha256)
    throw mismatch('the events are others than those that were signed');
  if (folded(payloads) !== response) throw mismatch('the events do not fold into the response in raw');
}

function folded(payloads: readonly string[]): string {
  try {
    return foldPayloads(payloads);
  } catch (cause) {
    throw new CheckFailure('stream_mismatch', 'the events do not fold', { cause });
  }
}

/** The attestation as the first event that carries one has it, character for character. @throws {CheckFailure} stream_malformed, not_an_attestation */
export function attestationOf(transcript: Uint8Array, { maxCharacters = MAX_EVENT_BYTES }: Limits = {}): string {
  if (transcript.length > maxCharacters)
    throw new CheckFailure('too_large', `a stream of more than ${maxCharacters} bytes`);
  for (const payload of payloadsOf(transcript)) {
    const attestation = attestationIn(payload);
    if (attestation !== null) return attestation;
  }
  throw new CheckFailure('not_an_attestation', 'no event of the stream carries an attestation');
}

/** Every `data:` payload but `[DONE]`. DESIGN §5 hashes the bytes as UTF-8. */
function payloadsOf(transcript: Uint8Array): string[] {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    // No gateway writes one, and some clients lose the first event behind it.
    if (BYTE_ORDER_MARK.every((byte, i) => transcript[i] === byte)) throw malformed('it begins with a byte order mark');
    const payloads = readPayloads(transcript, MAX_EVENT_BYTES);
    const done = payloads.findIndex(isDone);
    // Clients stop there, so what came after it was not shown to anybody.
    if (done >= 0 && done < payloads.length - 1) throw malformed('events come after [DONE]');
    return (done < 0 ? payloads : payloads.slice(0, -1)).map((payload) => decoder.decode(payload));
  } catch (cause) {
    if (cause instanceof SseError) throw malformed(cause.message, cause);
    if (cause instanceof TypeError) throw malformed('the transcript is not in UTF-8', cause);
    throw cause;
  }
}

/** The payloads as the backend sent them: it sends no attestation, and one is spliced in. */
function withoutSpliced(payloads: readonly string[], attestation: Attestation): string[] {
  const [at, ...more] = payloads.flatMap((payload, i) => (attestationIn(payload) === null ? [] : [i]));
  if (more.length > 0) throw mismatch('several events carry an attestation');
  const cut = payloads.map((payload, i) => (i === at ? withoutAttestation(payload, attestation) : payload));
  if (cut.some((payload, i) => i === at && attestationIn(payload) !== null))
    throw mismatch('an event carries another attestation than the one that is checked, or carries it twice');
  return cut;
}

const mismatch = (message: string) => new CheckFailure('stream_mismatch', message);
const malformed = (message: string, cause?: unknown) => new CheckFailure('stream_malformed', message, { cause });
