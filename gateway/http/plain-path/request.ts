// Parses a request of the plain form, which is this and nothing else (ABNF, RFC 5234; token as in RFC 9110 §5.6.2):
//
//   request = "POST " target " HTTP/1.1" CRLF 1*64( field CRLF ) CRLF body
//   target  = "/v1/chat/completions" / "/v1/completions"
//   field   = token ":" *%x20-7E         ; no tab, no octet beyond ASCII, no folding
//   body    = as many octets as Content-Length says, and none after them
//
// No name occurs twice, whatever its case. Host is present and names a host. Content-Length is present and has one to six digits.
// Connection is absent or "keep-alive". Transfer-Encoding, TE, Trailer, Upgrade, Expect, Keep-Alive, Proxy-Connection and HTTP2-Settings are
// absent. The head has at most 16 KiB, the request at most 64 KiB. Every other request is left to Node's parser.
import type { IncomingHttpHeaders } from 'node:http';
import { isHost } from '../../base/target.ts';
import { isFieldName, type SerializedHeaders } from '../outgoing.ts';

/** A request that has arrived with all of its body. */
export interface PlainRequest {
  readonly method: 'POST';
  readonly url: PlainTarget;
  /** Headers as in Node's IncomingMessage: names in lower case. No name occurs twice. */
  readonly headers: IncomingHttpHeaders;
  /** Values computed from the head without its length. The next request with the same head shares them. */
  readonly made: Made;
  /** The body. `readBody` takes it and leaves an empty buffer. */
  body: Buffer;
}

interface Made {
  /** The header lines for the backend. */
  toBackend: SerializedHeaders | null;
}

/** `incomplete`: more bytes may make it a plain request. `other`: they cannot. */
export type ReadResult = PlainRequest | 'incomplete' | 'other';

/** Larger requests go to Node's parser, which has limits of size and time for them. */
export const MAX_PLAIN_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 16 * 1024;
const MAX_FIELDS = 64;
const MAX_CACHED_HEADS = 8;
/** A larger head is not cached. */
const MAX_CACHED_HEAD_BYTES = 2 * 1024;
const LENGTH = 'content-length';
const CRLF = '\r\n';
const END = '\r\n\r\n';
const END_BYTES = Buffer.from(END);

export type PlainTarget = '/v1/chat/completions' | '/v1/completions';
/** The targets by their request lines. */
const TARGETS: ReadonlyMap<string, PlainTarget> = new Map([
  ['POST /v1/chat/completions HTTP/1.1', '/v1/chat/completions'],
  ['POST /v1/completions HTTP/1.1', '/v1/completions'],
]);
/** HTTP also allows tabs and bytes beyond ASCII in a value; the plain form does not. */
const VALUE = /^[\x20-\x7e]*$/;
/** Headers that concern the framing of the message or the state of its connection. */
const NOT_PLAIN = new Set([
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'keep-alive',
  'proxy-connection',
  'http2-settings',
]);

/** `cache` belongs to the connection. A call with the `progress` of an incomplete request must bring the same bytes and more. */
export function readRequest(bytes: Buffer, cache = new HeadCache(), progress = new Progress()): ReadResult {
  if (bytes.length < progress.needed) return 'incomplete';
  const end = bytes.indexOf(END_BYTES, progress.searched);
  // The bytes that end a head may be split between chunks.
  if (end < 0) progress.searched = Math.max(0, bytes.length - END.length + 1);
  if (end < 0) return bytes.length < MAX_HEAD_BYTES && beginsPlain(bytes) ? 'incomplete' : 'other';
  if (end > MAX_HEAD_BYTES) return 'other';
  const text = bytes.toString('latin1', 0, end + CRLF.length);
  const head = cache.read(text);
  return head === null ? 'other' : withBody(bytes, progress, end + END.length, head);
}

/** How far an incomplete request has been read, so that its bytes are not searched again with each chunk. */
export class Progress {
  /** The number of bytes without which the request is incomplete. */
  needed = 0;
  /** The number of bytes in which the head does not end. */
  searched = 0;
}

interface Head {
  readonly url: PlainTarget;
  readonly headers: Readonly<Record<string, string>>;
  readonly made: Made;
}

const LENGTH_LINE = /\r\ncontent-length: (0|[1-9]\d{0,5})(?=\r\n)/i;
/** Stands for the length in a key. It cannot be part of a head, because it would end the head. */
const LENGTH_MARK = '\r\n\r\n';

/** The previous head of a connection, by its text without the length: most clients send the same head each time. */
export class HeadCache {
  /** Also null once the connection has sent too many different heads, as a proxy does for many clients. */
  head: Head | null = null;
  #key = '';
  #heads = 0;

  /** Returns the head with this text, up to the last line end; null where it is not plain. */
  read(text: string): Head | null {
    const length = LENGTH_LINE.exec(text)?.[1];
    const key = text.replace(LENGTH_LINE, LENGTH_MARK);
    if (this.head === null || this.#key !== key) return this.#parse(text, key);
    return length === undefined ? this.head : { ...this.head, headers: { ...this.head.headers, [LENGTH]: length } };
  }

  #parse(text: string, key: string): Head | null {
    const head = parseHead(text);
    if (head === null || text.length > MAX_CACHED_HEAD_BYTES) return head;
    this.head = ++this.#heads > MAX_CACHED_HEADS ? null : head;
    this.#key = key;
    return head;
  }
}

function parseHead(text: string): Head | null {
  let from = text.indexOf(CRLF);
  const url = TARGETS.get(text.slice(0, from));
  if (url === undefined) return null;
  const headers: Record<string, string> = {};
  for (let count = 1; from + CRLF.length < text.length; count++) {
    const to = text.indexOf(CRLF, from + CRLF.length);
    const line = text.slice(from + CRLF.length, to);
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1);
    if (colon < 1 || !isFieldName(name) || !VALUE.test(value) || NOT_PLAIN.has(name)) return null;
    if (name in headers || count > MAX_FIELDS) return null;
    headers[name] = value.trim();
    from = to;
  }
  const { host, connection } = headers;
  if (host === undefined || !isHost(host)) return null;
  if (connection !== undefined && connection.toLowerCase() !== 'keep-alive') return null;
  return /^\d{1,6}$/.test(headers[LENGTH] ?? '') ? { url, headers, made: { toBackend: null } } : null;
}

function withBody(bytes: Buffer, progress: Progress, at: number, { url, headers, made }: Head): ReadResult {
  const total = at + Number(headers[LENGTH]);
  if (total > MAX_PLAIN_BYTES || bytes.length > total) return 'other';
  progress.needed = total;
  return bytes.length < total ? 'incomplete' : { method: 'POST', url, headers, made, body: bytes.subarray(at) };
}

/** Whether the bytes so far are the beginning of one of the two request lines. */
function beginsPlain(bytes: Buffer): boolean {
  for (const line of TARGETS.keys())
    if (line.startsWith(bytes.toString('latin1', 0, Math.min(bytes.length, line.length)))) return true;
  return false;
}
