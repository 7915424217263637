// A small DER writer (ITU-T X.690): definite lengths, shortest form, the universal types that X.509 and OCSP need.

/** One tag-length-value. `tag` is the identifier octet itself; tags above 30 are never needed here. */
function tlv(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.of(tag), lengthOctets(content.length), content]);
}

function lengthOctets(length: number): Buffer {
  if (length < 0x80) return Buffer.of(length);
  if (length < 0x1_00) return Buffer.of(0x81, length);
  if (length < 0x1_00_00) return Buffer.of(0x82, length >> 8, length & 0xff);
  throw new RangeError(`no DER value here is as long as ${length} bytes`);
}

export const sequence = (...items: readonly Uint8Array[]): Buffer => tlv(0x30, ...items);
export const set = (...items: readonly Uint8Array[]): Buffer => tlv(0x31, ...items);
export const octetString = (bytes: Uint8Array): Buffer => tlv(0x04, bytes);
export const utf8String = (text: string): Buffer => tlv(0x0c, Buffer.from(text, 'utf8'));
export const printableString = (text: string): Buffer => tlv(0x13, Buffer.from(text, 'ascii'));
export const boolean = (value: boolean): Buffer => tlv(0x01, Buffer.of(value ? 0xff : 0));
export const nil = (): Buffer => tlv(0x05);
export const enumerated = (value: number): Buffer => tlv(0x0a, Buffer.of(value));
/** `[n]` around whole values (EXPLICIT), or in place of a constructed type's own tag (IMPLICIT). */
export const context = (n: number, ...items: readonly Uint8Array[]): Buffer => tlv(0xa0 | n, ...items);
/** `[n]` in place of a primitive type's own tag (IMPLICIT). */
export const contextPrimitive = (n: number, bytes: Uint8Array): Buffer => tlv(0x80 | n, bytes);

/** A non-negative INTEGER from its big-endian bytes (X.690 §8.3). */
export function integer(magnitude: Uint8Array | number): Buffer {
  let bytes = typeof magnitude === 'number' ? Buffer.of(magnitude) : Buffer.from(magnitude);
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return tlv(0x02, (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), bytes]) : bytes);
}

/** BIT STRING of whole bytes, or of named bits when `unused` low bits of the last byte are not part of it (§8.6). */
export const bitString = (bytes: Uint8Array, unused = 0): Buffer => tlv(0x03, Buffer.of(unused), bytes);

/** OBJECT IDENTIFIER from its dotted form (§8.19). */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  return tlv(0x06, Buffer.from([first * 40 + second, ...rest].flatMap(base128)));
}

function base128(arc: number): number[] {
  const digits = [arc % 128];
  for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128)) digits.unshift(0x80 | (left % 128));
  return digits;
}

/** GeneralizedTime in whole seconds, UTC (RFC 5280 §4.1.2.5.2). */
export const generalizedTime = (date: Date): Buffer => tlv(0x18, Buffer.from(`${compact(date)}Z`, 'ascii'));

/** UTCTime through 2049, GeneralizedTime from 2050 (RFC 5280 §4.1.2.5). */
export function time(date: Date): Buffer {
  if (date.getUTCFullYear() >= 2050) return generalizedTime(date);
  return tlv(0x17, Buffer.from(`${compact(date).slice(2)}Z`, 'ascii'));
}

const compact = (date: Date): string => date.toISOString().slice(0, 19).replace(/[-:T]/g, '');
