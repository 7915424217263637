// Reads HTTP messages: a response's body with a limit, and the media type of a request or a response.
import { concat } from './bytes.ts';

/** A response's body is larger than its reader accepts. */
export class BodyTooLarge extends RangeError {
  override readonly name = 'BodyTooLarge';
}

/** The whole body. @throws {BodyTooLarge} more than `max_bytes`. */
export async function readLimited(response: Response, max_bytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) break;
    length += part.value.length;
    if (length > max_bytes) {
      await reader?.cancel();
      throw new BodyTooLarge(`an answer of more than ${max_bytes} bytes`);
    }
    chunks.push(part.value);
  }
  return concat(chunks);
}

/** In lower case and without parameters; empty where the message names none. */
export function mediaType({ headers }: Request | Response): string {
  const [type = ''] = (headers.get('content-type') ?? '').split(';', 1);
  return type.trim().toLowerCase();
}
