// What is checked: an attestation and whatever came with it. Read from an answer, or from a file or text that was kept.

import { type RawParts, splitRaw } from '../../proto/raw.ts';
import { type Attestation, attestationIn as carried, isTranscript } from '../../verify/index.ts';
import { carrierOf } from '../stream.ts';

export interface Subject {
  readonly kind: 'attestation' | 'evidence';
  /** For the verifier, as it came: an attestation, a response or chunk that carries one, or a list of evidence. Empty: the stream itself. */
  readonly text: string;
  /** The bytes of the stream, where there was one. */
  readonly transcript: Uint8Array<ArrayBuffer> | null;
  /** What was sent, where this page sent it. */
  readonly request: string | null;
  /** For file names. */
  readonly name: string;
}

export const MAX_INPUT_BYTES = 64 * 1024 * 1024;

/** Looks at what it is by its form; the verifier decides whether it is right. */
export function readStored(bytes: Uint8Array<ArrayBuffer>, name: string): Subject {
  const text = textOf(bytes);
  const rest = { request: null, name };
  if (isTranscript(text)) return { kind: 'attestation', text: carrierOf(bytes) ?? '', transcript: bytes, ...rest };
  const kind = text.trimStart().startsWith('[') ? 'evidence' : 'attestation';
  return { kind, text, transcript: null, ...rest };
}

/** What is not UTF-8 has no text, and nothing that a check could pass: one that is nearly right would be the text of other files too. */
function textOf(bytes: Uint8Array<ArrayBuffer>): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return '';
  }
}

/** The attestation in it, not yet checked; null where none can be read. */
export function attestationIn({ kind, text }: Subject): Attestation | null {
  if (kind === 'evidence') return null;
  try {
    const found: unknown = JSON.parse(carried(text) ?? text);
    const inner: unknown = typeof found === 'string' ? JSON.parse(carried(found) ?? found) : found;
    const { raw, nonce, token, evidence = [] } = inner as Partial<Attestation>;
    const parts = evidence.flatMap(({ arch, report, certificate_chain }) => [arch, report, certificate_chain]);
    return [raw, nonce, token, ...parts].every((part) => typeof part === 'string') ? (inner as Attestation) : null;
  } catch {
    return null;
  }
}

/** The same with another attestation in it, every other byte as it was. */
export function withAttestation(subject: Subject, attestation: Attestation): Subject {
  const json = JSON.stringify(attestation);
  const { text } = subject;
  const found = carried(text);
  return { ...subject, text: found === null ? json : text.replace(found, () => json) };
}

/** The texts that raw was spliced from; null where it is none. */
export function partsOf(raw: string): RawParts | null {
  try {
    return splitRaw(raw);
  } catch {
    return null;
  }
}
