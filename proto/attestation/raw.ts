// raw: the string that is hashed. It is spliced once from the original texts, split again by offsets, and never re-encoded.
import { JsonTextError, topLevelMembers } from '../json.ts';

declare const rawBrand: unique symbol;
declare const nonceBrand: unique symbol;
/** The JSON text of {endpoint?, session?, request, response, stream?, timestamp}, exactly as hashed. */
export type Raw = string & { readonly [rawBrand]: true };
/** 64 lowercase hex digits: SHA-256 of raw's UTF-8 bytes, the 32 bytes of an SPDM nonce. */
export type Nonce = string & { readonly [nonceBrand]: true };

/** The longest raw that is attested, in UTF-16 code units. As a JSON string it fits into a frame. */
export const MAX_RAW_LENGTH = 60 * 1024 * 1024;

/** The digest of a stream, for clients that stored its bytes. */
export interface StreamDigest {
  /** Number of `data:` payloads that the backend sent, without `[DONE]`. */
  readonly events: number;
  /** SHA-256 in hex over those payloads in order, each followed by `\n`. Where events have names, each follows its name and `\n`. */
  readonly sha256: string;
}

/** The endpoint of a raw that names none. */
export const CHAT_ENDPOINT = '/v1/chat/completions';

export interface RawParts {
  /** The path of the request, without its query; absent: {@link CHAT_ENDPOINT}. */
  readonly endpoint?: string;
  /** SHA-256 of the session's statement in hex: the GPU signs for that session only. Absent where no processor signs. */
  readonly session?: string | undefined;
  /** The client's body, exactly as received. */
  readonly request: string;
  /** The backend's body, exactly as received; for a stream, the completion that its chunks fold into. */
  readonly response: string;
  readonly stream?: StreamDigest;
  /** Unix seconds at which the response was complete. */
  readonly timestamp: number;
}

/** Whether a path can be spliced into raw as it is, because JSON escapes none of its characters. */
export const isEndpoint = (path: string): boolean => /^\/v1\/[\w.~!$&'()*+,;=:@%/-]{1,250}$/.test(path);

/**
 * Splices the parts into raw. `request` and `response` must each be a JSON text that was parsed before, and `endpoint` must satisfy
 * {@link isEndpoint}.
 */
export function buildRaw(parts: RawParts): Raw {
  const stream = parts.stream ? `,"stream":{"events":${parts.stream.events},"sha256":"${parts.stream.sha256}"}` : '';
  const { endpoint = CHAT_ENDPOINT, session, request, response, timestamp } = parts;
  const first = endpoint === CHAT_ENDPOINT ? '' : `"endpoint":"${endpoint}",`;
  const second = session === undefined ? '' : `"session":"${session}",`;
  return `{${first}${second}"request":${request},"response":${response}${stream},"timestamp":${timestamp}}` as Raw;
}

/**
 * Splits raw into the texts that it was spliced from.
 * @throws {JsonTextError} unless raw is one JSON object of `request`, `response` and `timestamp` (whole seconds), and optionally `stream`
 * and, before all others and in this order, `endpoint` and `session`. Each may occur once.
 */
export function splitRaw(raw: string): RawParts {
  try {
    JSON.parse(raw);
  } catch {
    throw new JsonTextError('raw is not JSON');
  }
  const texts = new Map<string, string>();
  for (const { key, valueStart, valueEnd } of topLevelMembers(raw)) {
    if (texts.has(key)) throw new JsonTextError(`raw names ${JSON.stringify(key.slice(0, 64))} twice`);
    texts.set(key, raw.slice(valueStart, valueEnd));
  }
  const request = texts.get('request');
  const response = texts.get('response');
  const timestamp = texts.get('timestamp');
  const stream = texts.get('stream');
  const endpoint = texts.get('endpoint');
  const session = texts.get('session');
  if (request === undefined || response === undefined || timestamp === undefined)
    throw new JsonTextError('raw lacks request, response or timestamp');
  const known = [request, response, timestamp, stream, endpoint, session].filter((text) => text !== undefined);
  if (texts.size !== known.length) throw new JsonTextError('raw has a member that is not known');
  if (!request.startsWith('{') || !response.startsWith('{'))
    throw new JsonTextError('raw.request and raw.response must be objects');
  if (!/^(0|[1-9][0-9]{0,14})$/.test(timestamp)) throw new JsonTextError('raw.timestamp is not in Unix seconds');
  return {
    ...(endpoint === undefined ? {} : { endpoint: parseEndpoint(endpoint, raw) }),
    ...(session === undefined ? {} : { session: parseSession(session, endpoint, raw) }),
    request,
    response,
    ...(stream === undefined ? {} : { stream: parseStream(stream) }),
    timestamp: Number(timestamp),
  };
}

function parseEndpoint(text: string, raw: string): string {
  const endpoint = text.slice(1, -1);
  if (!raw.startsWith('{"endpoint":"') || !isEndpoint(endpoint))
    throw new JsonTextError('raw.endpoint is not a path, or not the first member');
  if (endpoint === CHAT_ENDPOINT)
    throw new JsonTextError(`raw names ${CHAT_ENDPOINT}, which it is about without a name`);
  return endpoint;
}

function parseSession(text: string, endpoint: string | undefined, raw: string): string {
  const before = endpoint === undefined ? '{' : `{"endpoint":${endpoint},`;
  const [, session] = /^"([0-9a-f]{64})"$/.exec(text) ?? [];
  if (session === undefined || !raw.startsWith(`${before}"session":"`))
    throw new JsonTextError('raw.session is not 64 lowercase hex digits, or not before the request');
  return session;
}

function parseStream(text: string): StreamDigest {
  const match = /^\{"events":(0|[1-9][0-9]{0,14}),"sha256":"([0-9a-f]{64})"\}$/.exec(text);
  if (!match) throw new JsonTextError('raw.stream is not {"events": n, "sha256": hex}');
  return { events: Number(match[1]), sha256: match[2] as string };
}

/** SHA-256 as lowercase hex, by WebCrypto. */
export async function sha256Hex(data: string | Uint8Array<ArrayBuffer>): Promise<string> {
  const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (b) => b.toString(16).padStart(2, '0')).join('');
}

/** nonce = SHA-256(raw). */
export async function nonceOf(raw: string): Promise<Nonce> {
  return (await sha256Hex(raw)) as Nonce;
}
