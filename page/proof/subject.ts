// What is checked: an attestation and whatever came with it. Read from an answer, or from a file or text that was kept.

import { type RawParts, splitRaw } from '../../proto/attestation/raw.ts';
import { parseBounded, unquoted } from '../../verify/common/limited.ts';
import { type Attestation, attestationIn as carried, isTranscript, type Kind, kindOf } from '../../verify/index.ts';
import { carrierOf } from '../base/stream.ts';

export interface Subject {
  readonly kind: Kind;
  /** For the verifier, as it came or made whole: an attestation, a response or chunk that carries one, evidence, a session. Empty: the stream itself. */
  readonly text: string;
  /** The bytes of the stream, where there was one. */
  readonly transcript: Uint8Array<ArrayBuffer> | null;
  /** What was sent, where this page sent it or the visitor brought it. */
  readonly request: string | null;
  /** Whether this page asked for it, a moment ago. */
  readonly asked: boolean;
  /** For file names. */
  readonly name: string;
  /** Whether its attestation came compact, and has its bundle's members now. */
  readonly expanded?: boolean;
}

export const MAX_INPUT_BYTES = 64 * 1024 * 1024;

/** Looks at what it is by its form; the verifier decides whether it is right. @param request what was sent, as it was kept. */
export function readStored(bytes: Uint8Array<ArrayBuffer>, name: string, request: string | null = null): Subject {
  const text = textOf(bytes);
  const rest = { request, asked: false, name };
  if (isTranscript(text)) return { kind: 'attestation', text: carrierOf(bytes) ?? '', transcript: bytes, ...rest };
  const kind = kindOf(text);
  return { kind, text: kind === 'session' || kind === 'cpu' ? unquoted(text) : text, transcript: null, ...rest };
}

/** Whether a file may hold a proof: a request does not. */
export function mayBeProof(bytes: Uint8Array<ArrayBuffer>): boolean {
  const text = textOf(bytes);
  return isTranscript(text) || kindOf(text) !== 'attestation' || attestationIn({ kind: 'attestation', text }) !== null;
}

/** What is not UTF-8 has no text, and nothing that a check could pass: one that is nearly right would be the text of other files too. */
export function textOf(bytes: Uint8Array<ArrayBuffer>): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return '';
  }
}

/** The attestation in it, not yet checked; null where none can be read. */
export function attestationIn({ kind, text }: Pick<Subject, 'kind' | 'text'>): Attestation | null {
  if (kind !== 'attestation') return null;
  try {
    const found = parseBounded(carried(text) ?? text);
    const inner = typeof found === 'string' ? parseBounded(carried(found) ?? found) : found;
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
