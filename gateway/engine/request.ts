// Writes a request for the backend: its head, and its body in the same write where that is small.
import { Problem } from '../problem.ts';
import type { EngineRequest } from './engine.ts';

const NO_PATH = /[^\x21-\x7e\x80-\xff]/;
const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
/** Copying so much costs less than a second piece in the write. */
const ONE_PIECE_BYTES = 64 * 1024;

/** @throws {Problem} invalid_request for a path or header that HTTP cannot carry. */
export function writeRequest({ method, path, headers, body }: EngineRequest, prefix: string, host: string): Buffer[] {
  if (NO_PATH.test(path)) throw new Problem('invalid_request', 'The path holds a character that HTTP cannot carry.');
  let head = `${method} ${prefix}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`;
  for (const name in headers) {
    const value = headers[name] as string | string[];
    if (typeof value === 'string') head += line(name, value);
    else for (const one of value) head += line(name, one);
  }
  if (body === null)
    return [Buffer.from(method === 'GET' ? `${head}\r\n` : `${head}content-length: 0\r\n\r\n`, 'latin1')];
  const length = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  head += `content-length: ${length}\r\n\r\n`;
  if (length > ONE_PIECE_BYTES)
    return [Buffer.from(head, 'latin1'), typeof body === 'string' ? Buffer.from(body) : body];
  const bytes = Buffer.allocUnsafe(head.length + length);
  bytes.write(head, 0, 'latin1');
  if (typeof body === 'string') bytes.write(body, head.length, 'utf8');
  else body.copy(bytes, head.length);
  return [bytes];
}

function line(name: string, value: string): string {
  if (NO_VALUE.test(value)) throw new Problem('invalid_request', `The header ${name} cannot be sent on.`);
  return `${name}: ${value}\r\n`;
}
