// A draft is an attestation before it is signed: the answer looked at, raw built from it and hashed, and its JSON begun.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { joined, type Piece } from '../../proto/fold.ts';
import { parseJson } from '../../proto/json.ts';
import { buildRaw, MAX_RAW_LENGTH, type Nonce, type StreamDigest } from '../../proto/raw.ts';
import { Problem } from '../problem.ts';

/** A backend's whole answer as it came: nobody has looked at it. */
export interface Body {
  readonly body: Buffer;
}

/** What the chunks of a stream fold into. */
export interface Folded {
  /** JSON: its text, or the pieces of a large one. */
  readonly response: string | readonly Piece[];
  readonly stream: StreamDigest;
  /** The backend's id of the completion, if it named one. */
  readonly completionId: string | null;
}

export interface Parts {
  /** The client's body, exactly as received: its text, or its bytes. */
  readonly request: string | Buffer;
  readonly answer: Body | Folded;
  /** Unix seconds. */
  readonly timestamp: number;
}

export interface Draft {
  readonly completionId: string | null;
  /** In UTF-8. */
  readonly raw: Uint8Array<ArrayBuffer>;
  readonly nonce: Nonce;
  /** The attestation's JSON up to the members that the sidecar adds, in UTF-8. */
  readonly start: Uint8Array<ArrayBuffer>;
}

export const badAnswer = (message: string) => new Problem('backend_bad_response', message);

/** @throws {Problem} backend_bad_response, and nothing else of its own. */
export function draft({ request, answer, timestamp }: Parts): Draft {
  const { completionId, ...read } = 'body' in answer ? readAnswer(answer.body) : answer;
  const response = typeof read.response === 'string' ? read.response : joined(read.response);
  const raw = buildRaw({ request: request.toString(), ...read, response, timestamp });
  if (raw.length > MAX_RAW_LENGTH) throw badAnswer('Request and answer together are larger than what is attested.');
  const bytes = Buffer.from(raw, 'utf8');
  const nonce = hash('sha256', bytes) as Nonce;
  const start = Buffer.from(`{"raw":${JSON.stringify(raw)},"nonce":"${nonce}",`);
  return { completionId, raw: bytes, nonce, start };
}

/** @throws {Problem} backend_bad_response unless the body is a JSON object that nobody has put an attestation into. */
function readAnswer(body: Buffer): Pick<Folded, 'response' | 'completionId'> {
  if (!isUtf8(body)) throw badAnswer('The backend sent an answer that is not UTF-8.');
  const response = body.toString('utf8');
  let value: unknown;
  try {
    value = parseJson(response);
  } catch {
    throw badAnswer('The backend sent an answer that is not JSON.');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw badAnswer('The backend sent an answer that is not a JSON object.');
  if (Object.hasOwn(value, 'attestation')) throw badAnswer('The backend sent an attestation of its own.');
  if ('error' in value && value.error !== null) throw badAnswer('The backend sent an error as if it were an answer.');
  const id = (value as { id?: unknown }).id;
  return { response, completionId: typeof id === 'string' && id !== '' ? id : null };
}
