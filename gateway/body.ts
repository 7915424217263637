// Reads a request body from Node's own IncomingMessage: Fetch's Request carries none on GET, and the limit is ours.
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { Problem } from './problem.ts';
import type { WireRequest } from './wire/request.ts';

/** The client went away before its request was complete. Nobody is left to answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

function tooLarge(max_bytes: number): Problem {
  // The rest of it is let by for a while, by the adaptor and by Node: cut at once, a client that still sends would lose its answer.
  return new Problem('body_too_large', `The request body is larger than ${max_bytes} bytes.`);
}

/** The whole body. @throws {Problem} body_too_large, unsupported_encoding. @throws {ClientGone} */
export function readBody(incoming: IncomingMessage | WireRequest, max_bytes: number): Promise<Buffer> {
  const encoding = incoming.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    return Promise.reject(
      new Problem('unsupported_encoding', 'A content-encoding is not supported here: send the body as it is.'),
    );
  if (Number(incoming.headers['content-length'] ?? 0) > max_bytes) return Promise.reject(tooLarge(max_bytes));
  if ('body' in incoming) return Promise.resolve(incoming.body);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const settle = (error: Error | null) => {
      incoming.off('data', onData).off('end', onEnd).off('error', onGone).off('close', onGone);
      if (error !== null) reject(error);
      else resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > max_bytes) settle(tooLarge(max_bytes));
      else chunks.push(chunk);
    };
    const onEnd = () => settle(null);
    const onGone = () => settle(new ClientGone('the client left before its body was complete'));
    incoming.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/** The body as text, exactly: what is hashed later is this string. @throws {Problem} invalid_json when it is not UTF-8. */
export function bodyText(body: Buffer): string {
  if (!isUtf8(body)) throw new Problem('invalid_json', 'The request body is not valid UTF-8.');
  return body.toString('utf8');
}
