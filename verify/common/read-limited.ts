// Reads the body of an HTTP response with a limit.
import { concat } from './bytes.ts';

/** The whole body. @throws {RangeError} more than `max_bytes`. */
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
      throw new RangeError(`an answer of more than ${max_bytes} bytes`);
    }
    chunks.push(part.value);
  }
  return concat(chunks);
}
