// Reads DER (ITU-T X.690 §10): definite lengths in their shortest form, single-byte tags, nothing past an end.

/** The bytes are not DER, or do not have the expected structure. */
export class DerError extends Error {
  override readonly name = 'DerError';
}

/** One value, by offsets into the bytes it was read from. */
export interface DerValue {
  /** Class, constructed bit and number: 0x30 is a SEQUENCE, 0xa0 a constructed [0]. */
  readonly tag: number;
  /** Tag, length and content. */
  readonly whole: Uint8Array;
  readonly content: Uint8Array;
}

export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  enumerated: 0x0a,
  utf8String: 0x0c,
  printableString: 0x13,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Limit for the values in one sequence; certificates have a dozen, an OCSP response a handful. */
const MAX_VALUES = 1024;

/** The value that begins at `at`. @throws {DerError} */
export function readAt(bytes: Uint8Array, at: number): DerValue {
  const tag = bytes[at];
  const first = bytes[at + 1];
  if (tag === undefined || first === undefined) throw new DerError('a value breaks off');
  if ((tag & 0x1f) === 0x1f) throw new DerError('a tag of several bytes');
  let length = first;
  let start = at + 2;
  if (first >= 0x80) {
    const count = first & 0x7f;
    if (count === 0 || count > 4) throw new DerError('a length is indefinite or too large');
    length = 0;
    for (let i = 0; i < count; i++) length = length * 256 + (bytes[start + i] ?? 0);
    start += count;
    if (length < 0x80 || length < 256 ** (count - 1)) throw new DerError('a length is not in its shortest form');
  }
  if (start + length > bytes.length) throw new DerError('a value breaks off');
  return { tag, whole: bytes.subarray(at, start + length), content: bytes.subarray(start, start + length) };
}

/** Reads bytes that are exactly one value. @throws {DerError} when anything follows it. */
export function readOne(bytes: Uint8Array, tag?: number): DerValue {
  const value = readAt(bytes, 0);
  if (value.whole.length !== bytes.length) throw new DerError('bytes follow the value');
  return tag === undefined ? value : expectTag(value, tag);
}

/** The values inside a constructed one, in order. @throws {DerError} */
export function children(content: Uint8Array): DerValue[] {
  const values: DerValue[] = [];
  for (let at = 0; at < content.length; ) {
    if (values.length === MAX_VALUES) throw new DerError('too many values');
    const value = readAt(content, at);
    values.push(value);
    at += value.whole.length;
  }
  return values;
}

export function expectTag(value: DerValue | undefined, tag: number): DerValue {
  if (value?.tag !== tag)
    throw new DerError(`tag ${value?.tag.toString(16) ?? 'none'} where ${tag.toString(16)} should be`);
  return value;
}

/** The values inside a SEQUENCE. @throws {DerError} */
export function sequence(value: DerValue | undefined): DerValue[] {
  return children(expectTag(value, TAG.sequence).content);
}

/** @throws {DerError} */
export function integer(value: DerValue | undefined): bigint {
  const { content } = expectTag(value, TAG.integer);
  const [first, second] = content;
  if (first === undefined || content.length > 64) throw new DerError('an integer is empty or too long');
  if (content.length > 1 && ((first === 0 && (second ?? 0) < 0x80) || (first === 0xff && (second ?? 0) >= 0x80)))
    throw new DerError('an integer is not in its shortest form');
  let out = first >= 0x80 ? -1n : 0n;
  for (const byte of content) out = (out << 8n) | BigInt(byte);
  return out;
}

/** @throws {DerError} */
export function boolean(value: DerValue): boolean {
  const { content } = expectTag(value, TAG.boolean);
  if (content.length !== 1 || (content[0] !== 0 && content[0] !== 0xff))
    throw new DerError('a boolean is neither 00 nor FF');
  return content[0] === 0xff;
}

/** Dotted form. @throws {DerError} */
export function oid(value: DerValue | undefined): string {
  const { content } = expectTag(value, TAG.oid);
  if (content.length === 0 || content.length > 64 || (content.at(-1) ?? 0x80) >= 0x80)
    throw new DerError('an object identifier breaks off');
  const arcs: bigint[] = [];
  let arc = 0n;
  for (const [i, byte] of content.entries()) {
    if (byte === 0x80 && arc === 0n && (i === 0 || (content[i - 1] ?? 0) < 0x80))
      throw new DerError('an object identifier is not in its shortest form');
    arc = (arc << 7n) | BigInt(byte & 0x7f);
    if (byte < 0x80) {
      arcs.push(arc);
      arc = 0n;
    }
  }
  const [first = 0n, ...rest] = arcs;
  const root = first < 40n ? 0n : first < 80n ? 1n : 2n;
  return [root, first - root * 40n, ...rest].join('.');
}

/** The bits, whole bytes only. @throws {DerError} */
export function bitString(value: DerValue | undefined): Uint8Array {
  const { content } = expectTag(value, TAG.bitString);
  if (content[0] !== 0) throw new DerError('a bit string is not of whole bytes');
  return content.subarray(1);
}

/** Named bits (key usage), most significant first. @throws {DerError} */
export function namedBits(value: DerValue): boolean[] {
  const { content } = expectTag(value, TAG.bitString);
  const unused = content[0] ?? 8;
  if (unused > 7 || content.length < 1 || content.length > 4) throw new DerError('named bits are malformed');
  const bits: boolean[] = [];
  for (const byte of content.subarray(1)) for (let i = 7; i >= 0; i--) bits.push(((byte >> i) & 1) === 1);
  return bits.slice(0, bits.length - unused);
}

/** UTCTime or GeneralizedTime in the one form that RFC 5280 §4.1.2.5 allows. @throws {DerError} */
export function time(value: DerValue | undefined): Date {
  const text = String.fromCharCode(...(value?.content.subarray(0, 20) ?? []));
  const match =
    value?.tag === TAG.utcTime
      ? /^(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(text)
      : value?.tag === TAG.generalizedTime
        ? /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(text)
        : null;
  if (match === null) throw new DerError('a time is malformed');
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match.slice(1).map(Number);
  const full = value?.tag === TAG.utcTime ? (year < 50 ? 2000 + year : 1900 + year) : year;
  const ms = Date.UTC(full, month - 1, day, hour, minute, second);
  const date = new Date(ms);
  // Date.UTC maps the years 0 to 99 to 1900 to 1999.
  if (full < 1900) throw new DerError('a time is long past');
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day || hour > 23 || minute > 59 || second > 59)
    throw new DerError('a time is no time');
  return date;
}
