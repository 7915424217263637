// A proof in the part of an address that browsers send to nobody.
import { fromBase64Url, toBase64Url } from '../../verify/common/bytes.ts';
import { attestationIn, type Subject } from './subject.ts';

const NAME = '#proof=';
/** Longer addresses are cut by what people send them with. */
const MAX_CHARACTERS = 64_000;
/** No link is made of more, so none is unpacked further: 64,000 characters could unpack to 48 MiB. */
const MAX_UNPACKED_BYTES = 4 * 1024 * 1024;

/** @throws {RangeError} where it is too long for an address. */
export async function linkTo(subject: Subject, origin: string): Promise<string> {
  const attestation = attestationIn(subject);
  const text = attestation === null ? subject.text : JSON.stringify(attestation);
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > MAX_UNPACKED_BYTES) throw new RangeError('too long for a link');
  const packed = await through(new CompressionStream('deflate-raw'), bytes, MAX_CHARACTERS);
  const fragment = NAME + toBase64Url(packed);
  if (fragment.length > MAX_CHARACTERS) throw new RangeError('too long for a link');
  return `${origin}/${fragment}`;
}

export const isLink = (hash: string): boolean => hash.startsWith(NAME);

/** The text that an address carries, or why it carries none that is read. */
export async function proofIn(hash: string): Promise<Uint8Array<ArrayBuffer> | 'damaged' | 'too_large'> {
  try {
    return await through(
      new DecompressionStream('deflate-raw'),
      fromBase64Url(hash.slice(NAME.length)),
      MAX_UNPACKED_BYTES,
    );
  } catch (error) {
    return error instanceof RangeError ? 'too_large' : 'damaged';
  }
}

/** @throws {RangeError} where more than `max` bytes come out. @throws {TypeError} where the bytes are not compressed. */
async function through(
  stream: CompressionStream | DecompressionStream,
  bytes: Uint8Array<ArrayBuffer>,
  max: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    length += part.value.length;
    if (length > max) {
      await reader.cancel();
      throw new RangeError('too long for a link');
    }
    parts.push(part.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
