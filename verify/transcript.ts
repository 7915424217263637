// Compares raw with the event stream that the caller kept, byte for byte.
import type { Attestation } from '../proto/attestation.ts';
import { foldPayloads } from '../proto/fold.ts';
import type { RawParts } from '../proto/raw.ts';
import { isNamed, type SseEvent, SseLimitError, SseSplitter } from '../proto/sse.ts';
import { concat, digest, toHex, utf8 } from './bytes.ts';
import { CheckFailure } from './checks.ts';
import { attestationIn, withoutAttestation } from './spliced.ts';

/** One carries the attestation, in which raw is quoted: twice the 60 Mi characters that raw may have, and what it is beside. */
const MAX_EVENT_BYTES = 256 * 1024 * 1024;

/** @param attestation the one that is checked: it alone may stand in one of the events. @throws {CheckFailure} stream_mismatch */
export async function compareTranscript(
  attestation: Attestation,
  { stream, response }: RawParts,
  transcript: Uint8Array,
): Promise<void> {
  if (stream === undefined) throw mismatch('raw is about a whole response, not about a stream');
  const payloads = withoutSpliced(payloadsOf(transcript), attestation);
  if (payloads.length !== stream.events)
    throw mismatch(`the transcript has ${payloads.length} events, the stream that was signed had ${stream.events}`);
  const bytes = concat(...payloads.map((payload) => utf8(`${payload}\n`)));
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

/** Every `data:` payload but `[DONE]`. DESIGN §5 hashes the bytes as UTF-8. */
function payloadsOf(transcript: Uint8Array): string[] {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    const carrying = events(transcript).filter(({ data }) => data !== null);
    if (carrying.some(isNamed)) throw mismatch('an event has a name');
    const payloads = carrying.map(({ data }) => decoder.decode(data ?? undefined));
    const done = payloads.indexOf('[DONE]');
    // Clients stop there, so what came after it was not shown to anybody.
    if (done >= 0 && done < payloads.length - 1) throw mismatch('events come after [DONE]');
    return done < 0 ? payloads : payloads.slice(0, -1);
  } catch (cause) {
    if (cause instanceof TypeError || cause instanceof SseLimitError)
      throw new CheckFailure('stream_mismatch', 'the transcript is not an event stream in UTF-8', { cause });
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

function events(transcript: Uint8Array): SseEvent[] {
  const splitter = new SseSplitter(MAX_EVENT_BYTES);
  const all = splitter.push(transcript);
  const rest = splitter.end();
  return rest === null ? all : [...all, rest];
}

const mismatch = (message: string) => new CheckFailure('stream_mismatch', message);
