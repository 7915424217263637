// Bytes that are compared, read and written here and not by Node: for a few hundred a call into it costs more.

/** Whether the bytes of `one` from `at` on are those of `other` from `from` to `to`; false where `one` has fewer. */
export function isSame(one: Uint8Array, at: number, other: Uint8Array, from: number, to: number): boolean {
  if (at + to - from > one.length) return false;
  for (let i = from; i < to; i++) if (one[at + i - from] !== other[i]) return false;
  return true;
}

const ZERO = 0x30;
const LOWER_A = 0x61;
const NEAR_BYTES = 512;

/** The value of the decimal digit at `at`; below zero where there is none. */
export function digitAt(bytes: Uint8Array, at: number): number {
  const digit = (bytes[at] ?? 0) - ZERO;
  return digit <= 9 ? digit : -1;
}

/** How many digits a whole number has that is not below zero. */
export function digitsOf(number: number): number {
  let digits = 1;
  for (let rest = number; rest >= 10; rest /= 10) digits++;
  return digits;
}

/** Writes a whole number that is not below zero in decimal digits, the last of them before `end`. */
export function putNumber(bytes: Uint8Array, end: number, number: number): void {
  let at = end;
  let rest = number;
  do {
    bytes[--at] = ZERO + (rest % 10);
    rest = Math.floor(rest / 10);
  } while (rest > 0);
}

/** How many hexadecimal digits a whole number below 2^32 has. */
export function hexDigitsOf(number: number): number {
  return number === 0 ? 1 : 8 - (Math.clz32(number) >> 2);
}

/** Writes a whole number below 2^32 in lower-case hexadecimal digits, the last of them before `end`. */
export function putHex(bytes: Uint8Array, end: number, number: number): void {
  let at = end;
  let rest = number;
  do {
    const digit = rest & 15;
    bytes[--at] = digit < 10 ? ZERO + digit : LOWER_A + digit - 10;
    rest >>>= 4;
  } while (rest > 0);
}

/** As `bytes.indexOf(byte, from)`, which is called where the byte is not near. */
export function indexOfByte(bytes: Uint8Array, byte: number, from: number): number {
  const near = Math.min(bytes.length, from + NEAR_BYTES);
  for (let at = from; at < near; at++) if (bytes[at] === byte) return at;
  return near === bytes.length ? -1 : bytes.indexOf(byte, near);
}
