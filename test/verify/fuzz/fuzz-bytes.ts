// Mutations that know nothing of the format: a bit turned, a tail cut, bytes put in, taken out, doubled or made up.
import type { Random } from './fuzz-random.ts';

export type Bytes = Uint8Array<ArrayBuffer>;

/** Values at which lengths and signs turn over. */
const EDGES = [0x00, 0x01, 0x7f, 0x80, 0x81, 0x82, 0x84, 0xfe, 0xff];

export function flipBit(bytes: Uint8Array, random: Random): Bytes {
  const out = Uint8Array.from(bytes);
  const at = random.below(out.length);
  out[at] = (out[at] ?? 0) ^ (1 << random.below(8));
  return out;
}

const setEdge = (bytes: Uint8Array, random: Random): Bytes => {
  const out = Uint8Array.from(bytes);
  out[random.below(out.length)] = random.pick(EDGES);
  return out;
};

export const truncate = (bytes: Uint8Array, at: number): Bytes => Uint8Array.from(bytes.subarray(0, at));

const splice = (bytes: Uint8Array, from: number, to: number, put: Uint8Array): Bytes => {
  const out = new Uint8Array(from + put.length + bytes.length - to);
  out.set(bytes.subarray(0, from));
  out.set(put, from);
  out.set(bytes.subarray(to), from + put.length);
  return out;
};

const insert = (bytes: Uint8Array, random: Random): Bytes => {
  const at = random.below(bytes.length + 1);
  return splice(bytes, at, at, random.bytes(1 + random.below(8)));
};

const remove = (bytes: Uint8Array, random: Random): Bytes => {
  const at = random.below(bytes.length);
  return splice(bytes, at, Math.min(bytes.length, at + 1 + random.below(16)), new Uint8Array(0));
};

/** A piece of the input stands a second time, elsewhere. */
const repeat = (bytes: Uint8Array, random: Random): Bytes => {
  const from = random.below(bytes.length);
  const piece = bytes.subarray(from, from + 1 + random.below(128));
  const at = random.below(bytes.length + 1);
  return splice(bytes, at, at, piece);
};

const noise = (bytes: Uint8Array, random: Random): Bytes => random.bytes(random.below(Math.min(bytes.length, 512)));

/** A good beginning, then noise. */
const noisyTail = (bytes: Uint8Array, random: Random): Bytes => {
  const at = random.below(bytes.length);
  return splice(bytes, at, bytes.length, random.bytes(random.below(64)));
};

export function mutateBytes(bytes: Uint8Array, random: Random): Bytes {
  if (bytes.length === 0) return random.bytes(1 + random.below(32));
  const way = random.pick([flipBit, flipBit, flipBit, setEdge, insert, remove, repeat, noise, noisyTail]);
  return way(bytes, random);
}

/** The same for text, by its UTF-16 units, so that it stays a string. */
export function mutateText(text: string, random: Random): string {
  const units = Uint8Array.from(text, (character) => character.charCodeAt(0) & 0xff);
  return String.fromCharCode(...mutateBytes(units.subarray(0, 60_000), random));
}
