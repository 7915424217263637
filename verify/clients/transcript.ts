// What a verifying fetch hands to a transcript: one record for each proven exchange, small enough to keep them all.
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { attestationOf } from '../binding/exchange.ts';
import { attestationIn } from '../binding/input.ts';
import type { Bundles } from '../common/bundles.ts';
import type { Verified } from '../policy/options.ts';

/** One proven exchange. Its request and its response are in the attestation's raw. */
export interface TranscriptRecord {
  /** The path of the request, such as `/v1/chat/completions`. */
  readonly endpoint: string;
  /** As it was received: a compact one names its bundle. */
  readonly attestation: Readonly<Record<string, unknown>>;
  /** The exact text of that bundle, a line; null: the attestation is whole. Records with the same bundle have the same text. */
  readonly bundle: string | null;
}

/** Called once for each proven exchange. The answer (or the end of its stream) is handed over when the sink has taken it, and not if it throws. */
export type TranscriptSink = (record: TranscriptRecord) => void | Promise<void>;

/** @param answer the text of a whole response, or the bytes of a stream */
export async function recordOf(
  answer: string | Uint8Array,
  { exchange: { endpoint }, attestation: whole }: Verified,
  bundles: Bundles,
): Promise<TranscriptRecord> {
  const { token, bundle: sha256, cpu, batch } = received(answer);
  const text = typeof sha256 === 'string' ? ((await bundles.find(sha256))?.text ?? null) : null;
  if (text === null || /[\r\n]/.test(text)) return { endpoint, attestation: { ...whole }, bundle: null };
  const { raw, nonce, evidence } = whole;
  const own = { ...(token === undefined ? {} : { token, evidence }), ...(batch === undefined ? {} : { batch }) };
  return {
    endpoint,
    attestation: { raw, nonce, ...own, ...(cpu === undefined ? {} : { cpu }), bundle: sha256 },
    bundle: text,
  };
}

/** The attestation of a verified answer. It may be a JSON string of one. */
function received(answer: string | Uint8Array): Partial<Attestation> & { readonly bundle?: unknown } {
  const value: unknown = JSON.parse(
    (typeof answer === 'string' ? attestationIn(answer) : attestationOf(answer)) ?? '{}',
  );
  return (typeof value === 'string' ? JSON.parse(value) : value) as Partial<Attestation>;
}
