// Chunks of bytes for tests of sealed messages, and what comes of reading them.
import { joined } from '../../sealed/byte-source.ts';
import { SealedError, type SealedErrorCode } from '../../sealed/index.ts';

export const hex = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(Buffer.from(text.replaceAll(/\s/g, ''), 'hex'));

/** The bytes in chunks of `size`. */
export async function* inChunks(
  bytes: Uint8Array,
  size = bytes.length || 1,
): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

export async function* these(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void, undefined> {
  yield* chunks;
}

export async function listOf<T>(values: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const value of values) list.push(value);
  return list;
}

export async function all(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  return joined(await listOf(chunks));
}

/** The code of the error that `reading` ends with; null where it ends well. */
export async function codeOf(reading: Promise<unknown>): Promise<SealedErrorCode | null> {
  try {
    await reading;
    return null;
  } catch (error) {
    if (error instanceof SealedError) return error.code;
    throw error;
  }
}
