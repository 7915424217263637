// Reads the head of a backend's answer from its bytes (RFC 9112 §4–6), strictly: what is ambiguous is refused.
import type { AnswerHead } from './engine.ts';
import { BackendFault } from './fault.ts';

export interface ResponseHead extends AnswerHead {
  readonly framing: Framing;
  /** The connection may carry another request after this answer. */
  readonly reusable: boolean;
  /** Bytes that the head took, its empty line included. */
  readonly size: number;
}

/** How the end of the body is known: so many bytes, chunks, or the connection's end. */
export type Framing = number | 'chunked' | 'until_close';

const MAX_HEAD_BYTES = 64 * 1024;
const CRLF = '\r\n';
const END = Buffer.from('\r\n\r\n');
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: .*)?$/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** What neither a value nor a chunk line may hold: control characters, a bare CR among them. */
export const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
/** An empty line behind a bare LF, as some read the end of a head. */
const BARE_ENDS = ['\n\n', '\n\r\n'];
const SP = 0x20;
const TAB = 0x09;
const DIGITS = /^\d{1,15}$/;
const LENGTH = 'content-length';
const DATE = 'date';
const CODING = 'transfer-encoding';

/** Where the values of two headers stand that differ from answer to answer; null where there is not one of a plain form. */
export interface Places {
  length: Place | null;
  date: Place | null;
}
interface Place {
  readonly from: number;
  readonly to: number;
}

/** Whether what came from `from` on may complete a head, or make it too large: while not, it need not be read. */
export function mayEndHead(bytes: Buffer, from: number): boolean {
  return bytes.length > MAX_HEAD_BYTES || bytes.indexOf(END, Math.max(0, from - END.length + 1)) >= 0;
}

/** null while the head is not complete. `places` is told where they are. @throws {BackendFault} not_http */
export function readResponseHead(bytes: Buffer, places?: Places): ResponseHead | null {
  const end = bytes.indexOf(END);
  if (end < 0 ? bytes.length > MAX_HEAD_BYTES : end > MAX_HEAD_BYTES) throw notHttp('a head larger than the limit');
  if (end < 0) {
    if (BARE_ENDS.some((bare) => bytes.includes(bare))) throw notHttp('a head with bare line ends');
    return null;
  }
  const text = bytes.toString('latin1', 0, end + CRLF.length);
  let from = text.indexOf(CRLF);
  const [, minor, code] = STATUS_LINE.exec(text.slice(0, from)) ?? [];
  if (code === undefined) throw notHttp('no status line');
  const headers: Record<string, string> = Object.create(null);
  while (from < end) {
    const to = text.indexOf(CRLF, from + CRLF.length);
    const colon = text.indexOf(':', from + CRLF.length);
    const name = text.slice(from + CRLF.length, colon).toLowerCase();
    const value = trimmed(text, colon + 1, to);
    if (colon < 0 || colon > to || !NAME.test(name) || NO_VALUE.test(value)) throw notHttp('a header that is none');
    if (places !== undefined && (name === LENGTH || name === DATE))
      places[name === LENGTH ? 'length' : 'date'] = name in headers ? null : placeOf(text, value, colon + 1);
    add(headers, name, value);
    from = to;
  }
  const status = Number(code);
  const framing = framingOf(status, headers, minor === '1');
  const reusable =
    minor === '1' &&
    !/\bclose\b/i.test(headers.connection ?? '') &&
    framing !== 'until_close' &&
    !announcesContent(status, headers);
  const length = !hasNoContent(status) && headers[LENGTH] !== undefined ? Number(headers[LENGTH]) : null;
  delete headers[LENGTH];
  delete headers[DATE];
  return { status, headers, length, made: { toClient: null }, framing, reusable, size: end + END.length };
}

/** Without the spaces and tabs around it (RFC 9112 §5): other white space is part of a value. */
function trimmed(text: string, start: number, end: number): string {
  let [from, to] = [start, end];
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

const isBlank = (code: number): boolean => code === SP || code === TAB;

function placeOf(text: string, value: string, after: number): Place | null {
  const from = text.indexOf(value, after);
  return value === '' ? null : { from, to: from + value.length };
}

function add(headers: Record<string, string>, name: string, value: string): void {
  const before = headers[name];
  if (before === undefined) headers[name] = value;
  else if (name !== LENGTH) headers[name] = `${before}, ${value}`;
  else if (before !== value) throw notHttp('two lengths');
}

/** Whatever its headers say (RFC 9112 §6.3). */
export const hasNoContent = (status: number): boolean => status < 200 || status === 204 || status === 304;

/** A 204 that announces content, which it cannot have: what comes behind it may be that, and no other answer. */
function announcesContent(status: number, headers: Record<string, string>): boolean {
  return status === 204 && ((headers[LENGTH] ?? '0') !== '0' || headers[CODING] !== undefined);
}

function framingOf(status: number, headers: Record<string, string>, isHttp11: boolean): Framing {
  const coding = headers[CODING];
  const length = headers[LENGTH];
  if (hasNoContent(status)) return 0;
  if (coding !== undefined) {
    // HTTP/1.0 has no codings: its framing is faulty (RFC 9112 §6.1).
    if (!isHttp11 || coding.toLowerCase() !== 'chunked' || length !== undefined)
      throw notHttp('a framing that is ambiguous');
    return 'chunked';
  }
  if (length === undefined) return 'until_close';
  if (!DIGITS.test(length)) throw notHttp('a length that is none');
  return Number(length);
}

export function notHttp(message: string): BackendFault {
  return new BackendFault('not_http', message);
}
