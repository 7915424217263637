// Writes a request for the backend: its head, and its body in the same write where that is small.
import { digitsOf, putNumber } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import { type BackendRequest, SharedLines } from './backend.ts';
import type { Headers } from './headers.ts';

const NO_PATH = /[^\x21-\x7e\x80-\xff]/;
const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const LENGTH = 'content-length: ';
const END = '\r\n\r\n';
const END_BYTES = Buffer.from(END);
/** Copying so much costs less than a second piece in the write. */
const ONE_PIECE_BYTES = 64 * 1024;

/** @throws {Problem} invalid_request for a path or header that HTTP cannot carry. */
export function writeRequest(request: BackendRequest, prefix: string, host: string): Buffer[] {
  const { method, headers, body } = request;
  if (body === null) {
    const end = method === 'GET' ? '\r\n' : `${LENGTH}0${END}`;
    return [Buffer.from(headOf(request, linesOf(headers), prefix, host) + end, 'latin1')];
  }
  const head =
    headers instanceof SharedLines
      ? sharedHead(request, headers, prefix, host)
      : Buffer.from(headOf(request, linesOf(headers), prefix, host) + LENGTH, 'latin1');
  const length = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  const onePiece = length <= ONE_PIECE_BYTES;
  const start = head.length + digitsOf(length) + END.length;
  const bytes = Buffer.allocUnsafe(onePiece ? start + length : start);
  bytes.set(head);
  putNumber(bytes, start - END.length, length);
  bytes.set(END_BYTES, start - END.length);
  if (!onePiece) return [bytes, typeof body === 'string' ? Buffer.from(body) : body];
  if (typeof body === 'string') bytes.write(body, start, 'utf8');
  else bytes.set(body, start);
  return [bytes];
}

function sharedHead(request: BackendRequest, shared: SharedLines, prefix: string, host: string): Uint8Array {
  const kind = request.owner === null ? 'close' : 'keep_alive';
  // Memory of its own: as long as it is kept, it would hold a pool that others' bytes are in.
  shared.head[kind] ??= new Uint8Array(Buffer.from(headOf(request, shared.text, prefix, host) + LENGTH, 'latin1'));
  return shared.head[kind];
}

/** Up to the length. */
function headOf({ method, path, owner }: BackendRequest, lines: string, prefix: string, host: string): string {
  if (NO_PATH.test(path)) throw new Problem('invalid_request', 'The path holds a character that HTTP cannot carry.');
  const connection = owner === null ? 'close' : 'keep-alive';
  return `${method} ${prefix}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: ${connection}\r\n${lines}`;
}

const linesOf = (headers: Headers | SharedLines): string =>
  headers instanceof SharedLines ? headers.text : headerLines(headers);

/** A line for each value. @throws {Problem} invalid_request for one that HTTP cannot carry. */
export function headerLines(headers: Headers): string {
  const lines: string[] = [];
  for (const name in headers) {
    const value = headers[name] as string | string[];
    if (typeof value === 'string') lines.push(line(name, value));
    else for (const one of value) lines.push(line(name, one));
  }
  return lines.join('');
}

function line(name: string, value: string): string {
  if (NO_VALUE.test(value)) throw new Problem('invalid_request', `The header ${name} cannot be sent on.`);
  return `${name}: ${value}\r\n`;
}
