// Bytes that are compared here and not by Node: for a few hundred a call into it costs more.

/** Whether the bytes of `one` from `at` on are those of `other` from `from` to `to`; false where `one` has fewer. */
export function isSame(one: Uint8Array, at: number, other: Uint8Array, from: number, to: number): boolean {
  if (at + to - from > one.length) return false;
  for (let i = from; i < to; i++) if (one[at + i - from] !== other[i]) return false;
  return true;
}
