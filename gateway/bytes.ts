// Bytes that are compared, read and written here and not by Node: for a few hundred a call into it costs more.

/** Whether the bytes of `one` from `at` on are those of `other` from `from` to `to`; false where `one` has fewer. */
export function isSame(one: Uint8Array, at: number, other: Uint8Array, from: number, to: number): boolean {
  if (at + to - from > one.length) return false;
  for (let i = from; i < to; i++) if (one[at + i - from] !== other[i]) return false;
  return true;
}

const ZERO = 0x30;

/** Below zero where there is none. */
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
