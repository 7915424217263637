// Reads a request body from Node's own IncomingMessage: Fetch's Request carries none on GET, and the limit is ours.
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { ChunkBuffer } from './bytes.ts';
import type { PlainRequest } from './plain-path/request.ts';
import { Problem } from './problem.ts';

/** The client went away before its request was complete. Nobody is left to answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

const clientGone = () => new ClientGone('the client left before its body was complete');

function tooLarge(max_bytes: number): Problem {
  // The adaptor and Node read the rest for a while and drop it: were the connection cut at once, a client that still sends
  // would lose its answer.
  return new Problem('body_too_large', `The request body is larger than ${max_bytes} bytes.`);
}

/** Where a body is kept. @throws {Problem} where it has no room. */
export interface BodyLimits {
  /** `bytes` more are kept, and `coming` are announced. */
  hold(bytes: number, announced: number): void;
  /** All of it is here. */
  received(): void;
}

const UNLIMITED: BodyLimits = { hold: () => {}, received: () => {} };

const EMPTY = Buffer.alloc(0);

/**
 * The whole body, to be asked for once: nothing of it is kept here. No promise where all of it has come already.
 * @throws {Problem} body_too_large, unsupported_encoding, what `room` throws. @throws {ClientGone}
 */
export function readBody(
  incoming: IncomingMessage | PlainRequest,
  max_bytes: number,
  limits: BodyLimits = UNLIMITED,
): Buffer | Promise<Buffer> {
  const encoding = incoming.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    throw new Problem('unsupported_encoding', 'A content-encoding is not supported here: send the body as it is.');
  const announced = Number(incoming.headers['content-length'] ?? 0);
  if (announced > max_bytes) throw tooLarge(max_bytes);
  limits.hold(0, announced);
  if ('body' in incoming) {
    const { body } = incoming;
    limits.hold(body.length, 0);
    limits.received();
    incoming.body = EMPTY;
    return body;
  }
  // The client may have left while something else was waited for, and `close` does not come twice.
  if (incoming.destroyed) throw clientGone();
  return new Promise((resolve, reject) => {
    const chunks = new ChunkBuffer(announced);
    const settle = (error: Error | null) => {
      incoming.off('data', onData).off('end', onEnd).off('error', onGone).off('close', onGone);
      if (error !== null) reject(error);
      else resolve(chunks.whole());
    };
    const onData = (chunk: Buffer) => {
      if (chunks.bytes + chunk.length > max_bytes) return settle(tooLarge(max_bytes));
      try {
        limits.hold(chunk.length, 0);
      } catch (error) {
        return settle(error as Error);
      }
      chunks.add(chunk);
    };
    const onEnd = () => {
      try {
        limits.received();
      } catch (error) {
        return settle(error as Error);
      }
      settle(null);
    };
    const onGone = () => settle(clientGone());
    incoming.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/** Names and values in a stranger's JSON: as many as a prompt of a million tokens has. Of the worst kind they take a second and 200 MB. */
export const MAX_JSON_VALUES = 1_000_000;

const REPLACEMENT = '\ufffd';

/** The body as text, exactly: what is hashed later is this string. @throws {Problem} invalid_json when it is not UTF-8. */
export function bodyText(body: Buffer): string {
  const text = body.toString('utf8');
  // It stands wherever something was not UTF-8, and may have been written by the client too.
  if (text.includes(REPLACEMENT) && !isUtf8(body))
    throw new Problem('invalid_json', 'The request body is not valid UTF-8.');
  return text;
}
