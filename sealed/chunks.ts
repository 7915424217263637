// The chunks of a sealed message (draft-ietf-ohai-chunked-ohttp): each after its length, the last after a zero and up to the end of the
// message. The last one is sealed with other additional data, so that a truncated message never looks complete.
import { type ByteSource, type Bytes, varint } from './byte-source.ts';
import { malformed, SealedError, tooLarge } from './errors.ts';

/** The length that every receiver must accept (§3), and our limit for a chunk. */
export const MAX_CHUNK_BYTES = 16 * 1024;
/** The length of the tag of each of our AEADs. */
export const TAG_BYTES = 16;
const MAX_SEALED_BYTES = MAX_CHUNK_BYTES + TAG_BYTES;

export const NO_BYTES: Bytes = new Uint8Array();
/** The additional data of the last chunk. */
export const FINAL: Bytes = new TextEncoder().encode('final');

/** The prefix of a sealed chunk of that length. */
export const chunkHead = (length: number, isFinal: boolean): Bytes => varint(isFinal ? 0 : length);

/** Opens the next chunk. Rejects if that fails. */
type OpenChunk = (sealed: Bytes, aad: Bytes) => Promise<Uint8Array>;

/**
 * Opens all chunks of a message. The message is complete only when this has ended.
 * @throws {SealedError} sealed_malformed, sealed_truncated, sealed_not_opened, sealed_too_large
 */
export async function* openChunks(bytes: ByteSource, open: OpenChunk): AsyncGenerator<Uint8Array, void, undefined> {
  for (;;) {
    const length = await bytes.varint('a sealed message');
    const isFinal = length === 0;
    if (length > MAX_SEALED_BYTES) throw chunkTooLarge();
    // A chunk of nothing but its tag has no content, and only the last may have none.
    if (!isFinal && length <= TAG_BYTES) throw malformed('A chunk that is not the last is empty.');
    const sealed = isFinal ? bytes.rest(MAX_SEALED_BYTES, chunkTooLarge) : bytes.take(length, 'a chunk');
    let chunk = await opened(await sealed, isFinal, open);
    if (chunk.length > 0) yield chunk;
    // It is not kept while the next one is waited for.
    chunk = NO_BYTES;
    if (isFinal) return;
  }
}

const chunkTooLarge = () => tooLarge(`A chunk holds more than ${MAX_CHUNK_BYTES} bytes.`);

async function opened(sealed: Bytes, isFinal: boolean, open: OpenChunk): Promise<Uint8Array> {
  if (sealed.length < TAG_BYTES) throw new SealedError('sealed_truncated', 'The last chunk breaks off.');
  try {
    return await open(sealed, isFinal ? FINAL : NO_BYTES);
  } catch {
    const which = isFinal ? 'The last chunk' : 'A chunk';
    throw new SealedError('sealed_not_opened', `${which} cannot be opened: it was changed, or is not the next one.`);
  }
}

/** Divides `chunks` into parts that fit a sealed chunk, and marks the last. An empty message has one empty part. */
export async function* partsOf(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ readonly part: Uint8Array; readonly isFinal: boolean }, void, undefined> {
  let waiting: Uint8Array = NO_BYTES;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; at += MAX_CHUNK_BYTES) {
      if (waiting.length > 0) yield { part: waiting, isFinal: false };
      waiting = chunk.subarray(at, at + MAX_CHUNK_BYTES);
    }
  }
  yield { part: waiting, isFinal: true };
}
