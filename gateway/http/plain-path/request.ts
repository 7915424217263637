// Reads a whole request in its plainest form from bytes. Whatever is not that plain is for Node's own parser to judge.
import type { IncomingHttpHeaders } from 'node:http';
import type { SerializedHeaders } from '../../backend/backend.ts';
import { digitAt, isSame } from '../bytes.ts';
import { isHost } from '../target.ts';

/** A request that is here with all of its body. */
export interface PlainRequest {
  readonly method: 'POST';
  readonly url: string;
  /** As Node's IncomingMessage has them: names in lower case. None is there twice. */
  readonly headers: IncomingHttpHeaders;
  /** What was made of the head, its length aside: shared with the next request that has the same. */
  readonly made: Made;
  /** Whoever reads it takes it away. */
  body: Buffer;
}

interface Made {
  /** The header lines for the backend. */
  toBackend: SerializedHeaders | null;
}

/** `incomplete`: the plain form may still come about. `other`: it cannot. */
export type Reading = PlainRequest | 'incomplete' | 'other';

/** Larger ones take Node's way, where reading them has its limits and times. */
export const MAX_PLAIN_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 16 * 1024;
const MAX_HEADERS = 64;
const MAX_SAID = 8;
/** A larger head is not remembered. */
const MAX_SAID_BYTES = 2 * 1024;
const LENGTH = 'content-length';
const CRLF = '\r\n';
const END = '\r\n\r\n';
const END_BYTES = Buffer.from(END);

const TARGETS = new Map(
  ['/v1/chat/completions', '/v1/completions'].map((target) => [`POST ${target} HTTP/1.1`, target]),
);
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Tabs, and what is beyond ASCII, are allowed in a value; the plain form has neither. */
const VALUE = /^[\x20-\x7e]*$/;
/** They say how the message is framed or what becomes of its connection. */
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
 * The plain form: one of two request lines; every line ends in CR LF and none is folded; names are tokens and none comes
 * twice; values are printable ASCII; one Host, one Content-Length of digits; nothing about coding, trailers or upgrades;
 * and not a byte after the body. `before` is what the same connection has said: it is remembered there, and read by it. With the
 * `progress` of an incomplete request only the same bytes and more may come.
 */
export function readRequest(bytes: Buffer, before = new Said(), progress = new Progress()): Reading {
  if (bytes.length < progress.needed) return 'incomplete';
  const again = before.head === null ? null : readAgain(bytes, progress, before.head);
  return again ?? readAnew(bytes, before, progress);
}

/** How far a request was read that comes in pieces, so that what was looked at is not looked at again with each of them. */
export class Progress {
  /** So many of its bytes must be here. */
  needed = 0;
  /** So many hold no end of its head. */
  searched = 0;
}

/** The last head of a connection; null once it has said too many different ones, as a proxy's for many clients does. */
export class Said {
  head: Head | null = null;
  #heads = 0;

  remember(head: () => Head): void {
    this.head = ++this.#heads > MAX_SAID ? null : head();
  }
}

/** A head that was read, and where its Content-Length is written. */
interface Head {
  /** A copy, up to the body. */
  readonly bytes: Uint8Array;
  readonly digits: number;
  readonly afterDigits: number;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly made: Made;
}

/** A client says the same head each time, but for the length: byte for byte the same is not read again. null: it is another. */
function readAgain(bytes: Buffer, progress: Progress, head: Head): Reading | null {
  const { digits, afterDigits } = head;
  let at = digits;
  let length = 0;
  for (let digit = digitAt(bytes, at); digit >= 0 && at < digits + MAX_DIGITS; digit = digitAt(bytes, ++at))
    length = length * 10 + digit;
  // As `String` writes a number. A digit too many is no part of the rest, either.
  if (at === digits || (digitAt(bytes, digits) === 0 && at > digits + 1)) return null;
  const end = at + head.bytes.length - afterDigits;
  if (!isSame(bytes, 0, head.bytes, 0, digits)) return null;
  if (!isSame(bytes, at, head.bytes, afterDigits, head.bytes.length)) return null;
  const headers = { ...head.headers };
  headers[LENGTH] = String(length);
  return whole(bytes, progress, end, length, { url: head.url, headers, made: head.made });
}

const MAX_DIGITS = 6;

function readAnew(bytes: Buffer, before: Said, progress: Progress): Reading {
  const end = bytes.indexOf(END_BYTES, progress.searched);
  // An end can be cut anywhere.
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
  if (end <= MAX_SAID_BYTES)
    before.remember(() => {
      // Memory of its own: as long as the connection is open, it would hold a pool that others' bytes are in.
      const copy = new Uint8Array(bytes.subarray(0, end + END.length));
      return { bytes: copy, digits, afterDigits: digits + length.length, url, headers, made };
    });
  return whole(bytes, progress, end + END.length, Number(length), { url, headers, made });
}

function whole(
  bytes: Buffer,
  progress: Progress,
  at: number,
  length: number,
  { url, headers, made }: Pick<Head, 'url' | 'headers' | 'made'>,
): Reading {
  const total = at + length;
  if (total > MAX_PLAIN_BYTES || bytes.length > total) return 'other';
  progress.needed = total;
  return bytes.length < total ? 'incomplete' : { method: 'POST', url, headers, made, body: bytes.subarray(at) };
}

interface Header {
  readonly name: string;
  readonly value: string;
}

/** The lines that a client library writes the same each time. No secret is among them. */
const REPEATED =
  /^(host|accept|accept-[a-z]+|connection|content-type|user-agent|sec-fetch-[a-z]+|x-stainless-[a-z-]+)$/;
const MAX_KNOWN = 256;
const MAX_KNOWN_LENGTH = 256;
const known = new Map<string, Header>();

/** null where the line is not plain. */
function headerOf(line: string): Header | null {
  const before = known.get(line);
  if (before !== undefined) return before;
  const colon = line.indexOf(':');
  const name = line.slice(0, colon).toLowerCase();
  const value = line.slice(colon + 1);
  if (colon < 1 || !NAME.test(name) || !VALUE.test(value) || NOT_PLAIN.has(name)) return null;
  const header = { name, value: value.trim() };
  if (line.length > MAX_KNOWN_LENGTH || !REPEATED.test(name)) return header;
  // A string of its own: a part of the request's would keep all of it in memory.
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(copied(line), { name, value: copied(header.value) });
  return header;
}

const copied = (text: string): string => Buffer.from(text, 'latin1').toString('latin1');

/** One of the two request lines, as much of it as is here. */
function beginsPlain(bytes: Buffer): boolean {
  for (const line of TARGETS.keys())
    if (line.startsWith(bytes.toString('latin1', 0, Math.min(bytes.length, line.length)))) return true;
  return false;
}
