// Writes a request for the backend: its head, and its body in the same write where that is small.
import { Problem } from '../problem.ts';
import type { EngineRequest } from './engine.ts';
import type { Headers } from './headers.ts';

const NO_PATH = /[^\x21-\x7e\x80-\xff]/;
const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
/** Copying so much costs less than a second piece in the write. */
const ONE_PIECE_BYTES = 64 * 1024;

/** Header lines that go to the backend again and again, with one method and one path, of requests that have a body. */
export class SharedLines {
  readonly text: string;
  /** All that comes before the length, once it was written. */
  head: Uint8Array | null = null;

  constructor(text: string) {
    this.text = text;
  }
}

/** @throws {Problem} invalid_request for a path or header that HTTP cannot carry. */
export function writeRequest(request: EngineRequest, prefix: string, host: string): Buffer[] {
  const { method, body, headers } = request;
  const length = body === null ? 0 : typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  const lengthLine = body === null && method === 'GET' ? '\r\n' : `content-length: ${length}\r\n\r\n`;
  const head =
    headers instanceof SharedLines
      ? sharedHead(request, headers, prefix, host)
      : headOf(request, headerLines(headers), prefix, host);
  const pieces = body !== null && length <= ONE_PIECE_BYTES;
  const bytes = Buffer.allocUnsafe(head.length + lengthLine.length + (pieces ? length : 0));
  bytes.set(head);
  bytes.write(lengthLine, head.length, 'latin1');
  if (body === null) return [bytes];
  if (!pieces) return [bytes, typeof body === 'string' ? Buffer.from(body) : body];
  if (typeof body === 'string') bytes.write(body, head.length + lengthLine.length, 'utf8');
  else bytes.set(body, head.length + lengthLine.length);
  return [bytes];
}

function sharedHead(request: EngineRequest, shared: SharedLines, prefix: string, host: string): Uint8Array {
  // Memory of its own: as long as it is kept, it would hold a pool that others' bytes are in.
  shared.head ??= new Uint8Array(headOf(request, shared.text, prefix, host));
  return shared.head;
}

/** Up to the length. */
function headOf({ method, path }: EngineRequest, lines: string, prefix: string, host: string): Buffer {
  if (NO_PATH.test(path)) throw new Problem('invalid_request', 'The path holds a character that HTTP cannot carry.');
  const first = `${method} ${prefix}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`;
  return Buffer.from(first + lines, 'latin1');
}

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
