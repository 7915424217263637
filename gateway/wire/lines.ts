// The lines of an answer's head: what is the same in many answers is written once.
import { type OutgoingHttpHeaders, STATUS_CODES } from 'node:http';
import { type SharedHeaders, writtenOf } from '../shared-headers.ts';

/** How the end of the body is known. */
export type Framing = 'length' | 'chunked';

const NO_NAME = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;
const OK = 'HTTP/1.1 200 OK\r\n';
const CLOSE = 'connection: close\r\n\r\n';

export function statusLine(status: number): string {
  return status === 200 ? OK : `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
}

/** A line for each value. @throws {TypeError} where HTTP cannot carry it. */
export function headerLines(name: string, value: OutgoingHttpHeaders[string]): string {
  if (value === undefined) return '';
  if (Array.isArray(value)) return value.map((one) => headerLines(name, one)).join('');
  const text = String(value);
  const before = known.get(name);
  if (before?.value === text) return before.line;
  if ((before === undefined && NO_NAME.test(name)) || !isValue(text))
    throw new TypeError(`the header ${name} cannot be sent`);
  if (before !== undefined) return `${before.start}${text}\r\n`;
  const start = `${name}: `;
  const line = `${start}${text}\r\n`;
  if (known.size < MAX_KNOWN) known.set(name, { start, value: text, line });
  return line;
}

/** The first line of each name: most headers say the same in every answer. */
const known = new Map<string, { readonly start: string; readonly value: string; readonly line: string }>();
const MAX_KNOWN = 64;
const TAB = 0x09;

/** A tab, or printable Latin-1. */
function isValue(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if ((code < 0x20 && code !== TAB) || (code > 0x7e && code < 0x80) || code > 0xff) return false;
  }
  return true;
}

/** What stands at the end of a head. `keep_alive_ms` null: the connection ends with this answer. */
export function endLines(framing: Framing, keep_alive_ms: number | null): string {
  const coding = framing === 'chunked' ? 'transfer-encoding: chunked\r\n' : '';
  return `${coding}${dateLine()}${keep_alive_ms === null ? CLOSE : keepAlive(keep_alive_ms)}`;
}

interface End {
  readonly first: SharedHeaders;
  readonly framing: Framing;
  readonly keep_alive_ms: number | null;
  readonly date: string;
  readonly bytes: Uint8Array;
}

/** The lines of `first`, those of `then`, and the end, which are made once a second; null where a name is in both. */
export function sharedEnd(
  first: SharedHeaders,
  then: SharedHeaders,
  framing: Framing,
  keep_alive_ms: number | null,
): Uint8Array | null {
  const written = writtenOf(then);
  const before = written.kept as End | null;
  if (
    before !== null &&
    before.first === first &&
    before.framing === framing &&
    before.keep_alive_ms === keep_alive_ms &&
    before.date === dateLine()
  )
    return before.bytes;
  for (const name in then) if (name in first) return null;
  const bytes = Buffer.from(`${allLines(first)}${allLines(then)}${endLines(framing, keep_alive_ms)}`, 'latin1');
  written.kept = { first, framing, keep_alive_ms, date: dateLine(), bytes: new Uint8Array(bytes) } satisfies End;
  return bytes;
}

const allLines = (headers: SharedHeaders): string =>
  Object.entries(headers)
    .map(([name, value]) => headerLines(name, value))
    .join('');

let date = '';

/** It changes once a second, and so is it made. */
function dateLine(): string {
  if (date !== '') return date;
  const now_ms = Date.now();
  date = `date: ${new Date(now_ms).toUTCString()}\r\n`;
  setTimeout(
    () => {
      date = '';
    },
    1_000 - (now_ms % 1_000),
  ).unref();
  return date;
}

let kept = { ms: Number.NaN, lines: '' };

function keepAlive(ms: number): string {
  if (kept.ms !== ms)
    kept = { ms, lines: `connection: keep-alive\r\nkeep-alive: timeout=${Math.floor(ms / 1000)}\r\n\r\n` };
  return kept.lines;
}
