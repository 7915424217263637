// Synchronous SHA-256 (FIPS 180-4) for short messages. WebCrypto takes some 40 µs for a hash of any size, which along a long path is a
// fifth of a whole verification. Nothing here is secret, and WebCrypto hashes long messages.
import type { Bytes } from './bytes.ts';

const primes: number[] = [];
for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
/** The first 32 bits of the fractional part. */
const fraction = (root: number) => (root % 1) * 2 ** 32;
/** §4.2.2. */
const K = Int32Array.from(primes, (p) => fraction(Math.cbrt(p)));
/** §5.3.3. */
const INITIAL = Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)));

/** @returns 32 bytes. */
export function sha256(message: Uint8Array): Bytes {
  const padded = new Uint8Array((message.length + 72) & ~63);
  padded.set(message);
  padded[message.length] = 0x80;
  const blocks = new DataView(padded.buffer);
  blocks.setUint32(padded.length - 4, 8 * message.length);
  const state = new DataView(new ArrayBuffer(32));
  for (const [i, word] of INITIAL.entries()) state.setInt32(4 * i, word);
  for (let at = 0; at < padded.length; at += 64) compress(state, blocks, at);
  return new Uint8Array(state.buffer);
}

const rotated = (word: number, by: number) => (word >>> by) | (word << (32 - by));
const schedule = new Int32Array(64);
const w = (i: number) => schedule[i] as number;

/** §6.2.2. */
function compress(state: DataView, blocks: DataView, at: number): void {
  for (let i = 0; i < 16; i++) schedule[i] = blocks.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const w15 = w(i - 15);
    const w2 = w(i - 2);
    const sigma0 = rotated(w15, 7) ^ rotated(w15, 18) ^ (w15 >>> 3);
    const sigma1 = rotated(w2, 17) ^ rotated(w2, 19) ^ (w2 >>> 10);
    schedule[i] = w(i - 16) + sigma0 + w(i - 7) + sigma1;
  }
  const of = (i: number) => state.getInt32(4 * i);
  let [a, b, c, d, e, f, g, h] = [of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)];
  for (let i = 0; i < 64; i++) {
    const sum1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
    const sum0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
    const t1 = (h + sum1 + ((e & f) ^ (~e & g)) + (K[i] as number) + w(i)) | 0;
    const t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  const sums = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < 8; i++) state.setInt32(4 * i, of(i) + (sums[i] as number));
}
