// A proof in the part of an address that browsers send to nobody.
import { fromBase64Url, toBase64Url } from '../../verify/common/bytes.ts';
import { attestationIn, MAX_INPUT_BYTES, type Subject } from './subject.ts';

const NAME = '#proof=';
/** Longer addresses are cut by what people send them with. */
const MAX_CHARACTERS = 64_000;

/** @throws {RangeError} where it is too long for an address. */
export async function linkTo(subject: Subject): Promise<string> {
  const attestation = attestationIn(subject);
  const text = attestation === null ? subject.text : JSON.stringify(attestation);
  const packed = await through(new CompressionStream('deflate-raw'), new TextEncoder().encode(text), MAX_CHARACTERS);
  const fragment = NAME + toBase64Url(packed);
  if (fragment.length > MAX_CHARACTERS) throw new RangeError('too long for a link');
  return `${location.origin}/${fragment}`;
}

export const isLink = (hash: string): boolean => hash.startsWith(NAME);

/** The text that an address carries; null where it carries none that can be read. */
export async function proofIn(hash: string): Promise<Uint8Array<ArrayBuffer> | null> {
  try {
    return await through(
      new DecompressionStream('deflate-raw'),
      fromBase64Url(hash.slice(NAME.length)),
      MAX_INPUT_BYTES,
    );
  } catch {
    return null;
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
    if (length > max) throw new RangeError('too long for a link');
    parts.push(part.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
