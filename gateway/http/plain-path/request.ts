// Parses a whole request of the plain form. Every other request is left to Node's parser.
import type { IncomingHttpHeaders } from 'node:http';
import { digitAt, isSame } from '../bytes.ts';
import type { SerializedHeaders } from '../outgoing.ts';
import { isHost } from '../target.ts';

/** A request that has arrived with all of its body. */
export interface PlainRequest {
  readonly method: 'POST';
  readonly url: string;
  /** Headers as in Node's IncomingMessage: names in lower case. No name occurs twice. */
  readonly headers: IncomingHttpHeaders;
  /** What was made from the head, apart from its length. The next request with the same head shares it. */
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
const MAX_HEADERS = 64;
const MAX_CACHED_HEADS = 8;
/** A larger head is not cached. */
const MAX_CACHED_HEAD_BYTES = 2 * 1024;
const LENGTH = 'content-length';
const CRLF = '\r\n';
const END = '\r\n\r\n';
const END_BYTES = Buffer.from(END);

const TARGETS = new Map(
  ['/v1/chat/completions', '/v1/completions'].map((target) => [`POST ${target} HTTP/1.1`, target]),
);
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** A value may also have tabs and bytes beyond ASCII in HTTP; in the plain form it has neither. */
const VALUE = /^[\x20-\x7e]*$/;
/** Headers that say how the message is framed or what becomes of its connection. */
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

/**
 * Parses the plain form: one of two request lines; every line ends in CR LF and none is folded; names are tokens and none comes twice;
 * values are printable ASCII; one Host, one Content-Length of digits; nothing about coding, trailers or upgrades; and not a byte after the
 * body. `cache` belongs to the connection. A call with the `progress` of an incomplete request must bring the same bytes and more.
 */
export function readRequest(bytes: Buffer, cache = new HeadCache(), progress = new Progress()): ReadResult {
  if (bytes.length < progress.needed) return 'incomplete';
  const cached = cache.head === null ? null : readCached(bytes, progress, cache.head);
  return cached ?? parseHead(bytes, cache, progress);
}

/** How far an incomplete request has been read, so that its bytes are not searched again with each chunk. */
export class Progress {
  /** The number of bytes without which the request is incomplete. */
  needed = 0;
  /** The number of bytes in which the head does not end. */
  searched = 0;
}

/** The previous head of a connection; null once the connection has sent too many different heads, as a proxy does for many clients. */
export class HeadCache {
  head: Head | null = null;
  #heads = 0;

  remember(head: () => Head): void {
    this.head = ++this.#heads > MAX_CACHED_HEADS ? null : head();
  }
}

/** A parsed head, and the place of its Content-Length. */
interface Head {
  /** A copy of all bytes before the body. */
  readonly bytes: Uint8Array;
  readonly digits: number;
  readonly afterDigits: number;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly made: Made;
}

/** A client sends the same head each time, except for the length. A head with the same bytes is not parsed again. null: it differs. */
function readCached(bytes: Buffer, progress: Progress, head: Head): ReadResult | null {
  const { digits, afterDigits } = head;
  let at = digits;
  let length = 0;
  for (let digit = digitAt(bytes, at); digit >= 0 && at < digits + MAX_DIGITS; digit = digitAt(bytes, ++at))
    length = length * 10 + digit;
  // The length has no leading zero, as `String` writes it. A digit above MAX_DIGITS fails the comparison below.
  if (at === digits || (digitAt(bytes, digits) === 0 && at > digits + 1)) return null;
  const end = at + head.bytes.length - afterDigits;
  if (!isSame(bytes, 0, head.bytes, 0, digits)) return null;
  if (!isSame(bytes, at, head.bytes, afterDigits, head.bytes.length)) return null;
  const headers = { ...head.headers };
  headers[LENGTH] = String(length);
  return withBody(bytes, progress, end, length, { url: head.url, headers, made: head.made });
}

const MAX_DIGITS = 6;

function parseHead(bytes: Buffer, cache: HeadCache, progress: Progress): ReadResult {
  const end = bytes.indexOf(END_BYTES, progress.searched);
  // The bytes that end a head may be split between chunks.
  if (end < 0) progress.searched = Math.max(0, bytes.length - END.length + 1);
  if (end < 0) return bytes.length < MAX_HEAD_BYTES && beginsPlain(bytes) ? 'incomplete' : 'other';
  if (end > MAX_HEAD_BYTES) return 'other';
  const text = bytes.toString('latin1', 0, end + CRLF.length);
  let from = text.indexOf(CRLF);
  const url = TARGETS.get(text.slice(0, from));
  if (url === undefined) return 'other';
  const headers: Record<string, string> = {};
  let lengthLine = 0;
  for (let count = 1; from < end; count++) {
    const to = text.indexOf(CRLF, from + CRLF.length);
    const header = headerOf(text.slice(from + CRLF.length, to));
    if (header === null || header.name in headers || count >= MAX_HEADERS) return 'other';
    headers[header.name] = header.value;
    if (header.name === LENGTH) lengthLine = from + CRLF.length;
    from = to;
  }
  const { host, connection } = headers;
  if (host === undefined || !isHost(host) || (connection !== undefined && connection.toLowerCase() !== 'keep-alive'))
    return 'other';
  const length = headers[LENGTH];
  if (length === undefined || !/^\d{1,6}$/.test(length)) return 'other';
  const digits = text.indexOf(length, lengthLine + LENGTH.length);
  const made: Made = { toBackend: null };
  if (end <= MAX_CACHED_HEAD_BYTES)
    cache.remember(() => {
      // This is a copy: a view would keep a pooled buffer, with other clients' bytes, for as long as the connection is open.
      const copy = new Uint8Array(bytes.subarray(0, end + END.length));
      return { bytes: copy, digits, afterDigits: digits + length.length, url, headers, made };
    });
  return withBody(bytes, progress, end + END.length, Number(length), { url, headers, made });
}

function withBody(
  bytes: Buffer,
  progress: Progress,
  at: number,
  length: number,
  { url, headers, made }: Pick<Head, 'url' | 'headers' | 'made'>,
): ReadResult {
  const total = at + length;
  if (total > MAX_PLAIN_BYTES || bytes.length > total) return 'other';
  progress.needed = total;
  return bytes.length < total ? 'incomplete' : { method: 'POST', url, headers, made, body: bytes.subarray(at) };
}

interface Header {
  readonly name: string;
  readonly value: string;
}

/** Headers that a client library writes the same way each time. None of them holds a secret. */
const REPEATED =
  /^(host|accept|accept-[a-z]+|connection|content-type|user-agent|sec-fetch-[a-z]+|x-stainless-[a-z-]+)$/;
const MAX_CACHED_HEADERS = 256;
const MAX_CACHED_HEADER_LENGTH = 256;
const headerCache = new Map<string, Header>();

/** Parses a header line; null where it is not plain. */
function headerOf(line: string): Header | null {
  const cached = headerCache.get(line);
  if (cached !== undefined) return cached;
  const colon = line.indexOf(':');
  const name = line.slice(0, colon).toLowerCase();
  const value = line.slice(colon + 1);
  if (colon < 1 || !NAME.test(name) || !VALUE.test(value) || NOT_PLAIN.has(name)) return null;
  const header = { name, value: value.trim() };
  if (line.length > MAX_CACHED_HEADER_LENGTH || !REPEATED.test(name)) return header;
  // These are copies: a substring would keep the text of the whole request in memory.
  if (headerCache.size >= MAX_CACHED_HEADERS) headerCache.clear();
  headerCache.set(copied(line), { name, value: copied(header.value) });
  return header;
}

const copied = (text: string): string => Buffer.from(text, 'latin1').toString('latin1');

/** Whether the bytes so far are the beginning of one of the two request lines. */
function beginsPlain(bytes: Buffer): boolean {
  for (const line of TARGETS.keys())
    if (line.startsWith(bytes.toString('latin1', 0, Math.min(bytes.length, line.length)))) return true;
  return false;
}
