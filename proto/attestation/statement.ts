// A session: the statement that a sidecar's GPUs and its processor both sign, and the digests that bind the two to each other and to every
// response. Sidecar, gateway and verifier compute them here. docs/attestation.md §6 gives the bytes.

import { type Bytes, concat, isDigest } from '../bytes.ts';
import { JsonTextError } from '../json.ts';
import { MAX_DEVICES } from './attestation.ts';

/** The sidecar's statement about itself, valid for an hour at most. Times are Unix seconds. */
export interface Statement {
  /** 64 hex digits from the client that requested this session; null in the session that signs responses. */
  readonly challenge: string | null;
  /** The key that signs responses: a P-256 SubjectPublicKeyInfo in base64. */
  readonly key: string;
  /** SHA-256 in hex of the SubjectPublicKeyInfo in each device's second certificate: the boot ROM's key, which firmware updates keep. */
  readonly devices: readonly string[];
  /** SHA-256 in hex of the SubjectPublicKeyInfo of each certificate that the gateway serves TLS with. */
  readonly tls: readonly string[];
  /** The key configuration for sealed prompts in base64; null without one. */
  readonly hpke: string | null;
  /** SHA-256 of the launch file in hex; null without one. */
  readonly launch: string | null;
  readonly not_before: number;
  readonly not_after: number;
}

const PURPOSE = 'countersign.session.v1';
/** The longest validity of a session. */
export const MAX_SESSION_SECONDS = 3_600;
export const MAX_STATEMENT_LENGTH = 16 * 1024;
/** The limit of a key configuration in base64. */
export const MAX_HPKE_LENGTH = 4_096;
const MAX_TLS_KEYS = 16;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** The text that is hashed: these members in this order, without white space. */
export function writeStatement(statement: Statement): string {
  const { challenge, key, devices, tls, hpke, launch, not_before, not_after } = statement;
  return JSON.stringify({ purpose: PURPOSE, challenge, key, devices, tls, hpke, launch, not_before, not_after });
}

/** @throws {JsonTextError} unless `text` is exactly what {@link writeStatement} writes. */
export function readStatement(text: string): Statement {
  if (text.length > MAX_STATEMENT_LENGTH)
    throw new JsonTextError(`the statement has more than ${MAX_STATEMENT_LENGTH} characters`);
  let statement: Statement;
  try {
    statement = JSON.parse(text) as Statement;
  } catch {
    throw new JsonTextError('the statement is not JSON');
  }
  if (typeof statement !== 'object' || statement === null) throw new JsonTextError('the statement is not an object');
  const wrong = wrongMember(statement);
  if (wrong !== null) throw new JsonTextError(`the statement's member ${wrong} is not what it must be`);
  if (writeStatement(statement) !== text)
    throw new JsonTextError('the statement has other members, another order or white space');
  return statement;
}

function wrongMember({ challenge, key, devices, tls, hpke, launch, not_before, not_after }: Statement): string | null {
  if (challenge !== null && !isDigest(challenge)) return 'challenge';
  if (!isBase64(key, 256)) return 'key';
  if (!isListOfDigests(devices, MAX_DEVICES) || devices.length === 0) return 'devices';
  if (!isListOfDigests(tls, MAX_TLS_KEYS)) return 'tls';
  if (hpke !== null && !isBase64(hpke, MAX_HPKE_LENGTH)) return 'hpke';
  if (launch !== null && !isDigest(launch)) return 'launch';
  if (!Number.isSafeInteger(not_before) || not_before < 0) return 'not_before';
  const seconds = not_after - not_before;
  return Number.isSafeInteger(not_after) && seconds > 0 && seconds <= MAX_SESSION_SECONDS ? null : 'not_after';
}

const isBase64 = (value: unknown, max: number) =>
  typeof value === 'string' && value.length <= max && BASE64.test(value);
const isListOfDigests = (value: unknown, max: number) =>
  Array.isArray(value) && value.length <= max && value.every(isDigest);

// The messages that the caller hashes with SHA-256 or signs. Each begins with its own tag, which ends in a NUL, and raw begins with "{", so
// a message for one purpose cannot serve another.

const encoder = new TextEncoder();
const tag = (text: string) => encoder.encode(`countersign/${text}/v1\0`);

/** One device's evidence, decoded: its report, and its certificate chain as PEM. */
interface EvidenceBytes {
  readonly report: Uint8Array;
  readonly chain: Uint8Array;
}

/** The message of all devices' evidence, in its order. */
export const evidenceMessage = (evidence: readonly EvidenceBytes[]): Bytes =>
  concat([
    tag('evidence'),
    u32(evidence.length),
    ...evidence.flatMap(({ report, chain }) => [u32(report.length), report, u32(chain.length), chain]),
  ]);

/**
 * The SHA-256 of this message is the first half of the processor's 64 bytes of report data; the rest is zero. Takes the digests of the
 * statement's text and of the evidence over it.
 */
export const sessionMessage = (statement: Uint8Array, evidence: Uint8Array): Bytes =>
  concat([tag('session'), statement, evidence]);

/** The message that the session's key signs for a response (ECDSA). Takes the digests of the statement, raw and the response's evidence. */
export const answerMessage = (statement: Uint8Array, raw: Uint8Array, evidence: Uint8Array): Bytes =>
  concat([tag('answer'), statement, raw, evidence]);

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}
