// A draft is an attestation before it is signed: the answer looked at, raw built from it and hashed, and its JSON begun.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { joined, type Piece } from '../../proto/fold.ts';
import { duplicateMember, parseJson } from '../../proto/json.ts';
import { buildRaw, MAX_RAW_LENGTH, type Nonce, type StreamDigest } from '../../proto/raw.ts';
import { MANY_BYTES } from '../gathering.ts';
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
  /** Bytes behind `start` that are free for those members: a large start is not copied to stand before them. */
  readonly room_bytes: number;
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
  const start = `{"raw":${JSON.stringify(raw)},"nonce":"${nonce}",`;
  return { completionId, raw: bytes, nonce, ...withRoom(start) };
}

/** For the evidence of a dozen devices. Memory that nobody writes to is only an address. */
const ROOM_BYTES = 256 * 1024;

function withRoom(text: string): Pick<Draft, 'start' | 'room_bytes'> {
  if (text.length <= MANY_BYTES) return { start: Buffer.from(text), room_bytes: 0 };
  const memory = Buffer.allocUnsafeSlow(Buffer.byteLength(text) + ROOM_BYTES);
  return { start: memory.subarray(0, memory.write(text)), room_bytes: ROOM_BYTES };
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
  // Of two members of one name one reader takes the first and another the last: what is read would not be what was signed.
  if (duplicateMember(response) !== null) throw badAnswer('The backend sent an answer that names a member twice.');
  const id = (value as { id?: unknown }).id;
  return { response, completionId: typeof id === 'string' && id !== '' ? id : null };
}
