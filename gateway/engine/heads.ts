// The heads that a backend says: one that it said before, byte for byte but for its length and its date, is not read again.
import { digitAt, isSame } from '../bytes.ts';
import { hasNoContent, type Places, type ResponseHead, readResponseHead } from './response-head.ts';

/** A backend has one for whole answers, one for streams, and few others. */
const MAX_HEADS = 4;
const MAX_BYTES = 2 * 1024;
/** After so many heads in a row that were all new, only one in `ONE_IN` is remembered: this backend writes something else into each. */
const MAX_STRANGERS = 8;
const ONE_IN = 64;
const MAX_DIGITS = 15;

interface Known {
  /** What stays the same, in order. */
  readonly pieces: readonly Uint8Array[];
  /** What stands between them: digits of the length, or a date of as many characters. */
  readonly gaps: readonly (number | 'length')[];
  readonly head: ResponseHead;
}

/** The last heads of one backend. */
export class Heads {
  #known: readonly Known[] = [];
  #strangers = 0;

  /** The head that `bytes` have between `from` and `to`; null while it is not complete. @throws {BackendFault} not_http */
  read(bytes: Buffer, from: number, to: number): ResponseHead | null {
    for (const known of this.#known) {
      const head = readAgain(bytes, from, to, known);
      if (head === null) continue;
      this.#strangers = 0;
      return head;
    }
    const places: Places = { length: null, date: null };
    const all = bytes.subarray(from, to);
    const head = readResponseHead(all, places);
    // An answer without content may say a length that means nothing.
    if (head !== null && !hasNoContent(head.status) && head.size <= MAX_BYTES) this.#remember(all, head, places);
    return head;
  }

  #remember(bytes: Buffer, head: ResponseHead, places: Places): void {
    if (++this.#strangers > MAX_STRANGERS && this.#strangers % ONE_IN !== 0) return;
    this.#known = [knownOf(bytes, head, places), ...this.#known.slice(0, MAX_HEADS - 1)];
  }
}

function knownOf(bytes: Buffer, head: ResponseHead, { length, date }: Places): Known {
  const gaps = [
    ...(length === null ? [] : [{ ...length, gap: 'length' as const }]),
    ...(date === null ? [] : [{ ...date, gap: date.to - date.from }]),
  ].sort((a, b) => a.from - b.from);
  // Memory of its own: a part of what was read would keep all of it.
  const own = (from: number, to: number) => new Uint8Array(bytes.subarray(from, to));
  const pieces = gaps.map(({ from }, i) => own(gaps[i - 1]?.to ?? 0, from));
  return { pieces: [...pieces, own(gaps.at(-1)?.to ?? 0, head.size)], gaps: gaps.map(({ gap }) => gap), head };
}

function readAgain(bytes: Buffer, from: number, to: number, { pieces, gaps, head }: Known): ResponseHead | null {
  let { framing, length } = head;
  let at = from;
  for (let i = 0; i < pieces.length; i++) {
    const piece = pieces[i] as Uint8Array;
    if (at + piece.length > to || !isSame(bytes, at, piece, 0, piece.length)) return null;
    at += piece.length;
    const gap = gaps[i];
    if (gap === undefined) continue;
    const end = gap === 'length' ? endOfDigits(bytes, at) : endOfText(bytes, at, gap);
    if (end < 0) return null;
    if (gap === 'length') framing = length = numberIn(bytes, at, end);
    at = end;
  }
  const { status, headers, made, reusable } = head;
  return { status, headers, length, made, framing, reusable, size: at - from };
}

/** -1 where there is none, or too many. */
function endOfDigits(bytes: Buffer, from: number): number {
  let at = from;
  while (digitAt(bytes, at) >= 0) at++;
  return at === from || at > from + MAX_DIGITS ? -1 : at;
}

function numberIn(bytes: Buffer, from: number, to: number): number {
  let number = 0;
  for (let at = from; at < to; at++) number = number * 10 + digitAt(bytes, at);
  return number;
}

/** -1 where one of the characters is not printable ASCII. */
function endOfText(bytes: Buffer, from: number, length: number): number {
  for (let at = from; at < from + length; at++) {
    const byte = bytes[at];
    if (byte === undefined || byte < 0x20 || byte > 0x7e) return -1;
  }
  return from + length;
}
