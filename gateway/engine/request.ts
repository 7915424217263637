// Writes a request for the backend: its head, and its body in the same write where that is small.
import { Problem } from '../problem.ts';
import type { EngineRequest } from './engine.ts';
import type { Headers } from './headers.ts';

const NO_PATH = /[^\x21-\x7e\x80-\xff]/;
const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
/** Copying so much costs less than a second piece in the write. */
const ONE_PIECE_BYTES = 64 * 1024;

/** @throws {Problem} invalid_request for a path or header that HTTP cannot carry. */
export function writeRequest({ method, path, headers, body }: EngineRequest, prefix: string, host: string): Buffer[] {
  if (NO_PATH.test(path)) throw new Problem('invalid_request', 'The path holds a character that HTTP cannot carry.');
  const lines = [`${method} ${prefix}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`];
  lines.push(typeof headers === 'string' ? headers : headerLines(headers));
  const length = body === null ? 0 : typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  lines.push(body === null && method === 'GET' ? '\r\n' : `content-length: ${length}\r\n\r\n`);
  const head = lines.join('');
  if (body === null) return [Buffer.from(head, 'latin1')];
  if (length > ONE_PIECE_BYTES)
    return [Buffer.from(head, 'latin1'), typeof body === 'string' ? Buffer.from(body) : body];
  const bytes = Buffer.allocUnsafe(head.length + length);
  bytes.write(head, 0, 'latin1');
  if (typeof body === 'string') bytes.write(body, head.length, 'utf8');
  else body.copy(bytes, head.length);
  return [bytes];
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
