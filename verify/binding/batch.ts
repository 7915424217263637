// Checks a batched proof: from raw's hash along its path to the root, and from there to the nonce. docs/attestation.md §8 has the bytes.
import {
  type Batch,
  leafMessage,
  MAX_LEAVES,
  nodeMessage,
  nonceMessage,
  sidesOf,
} from '../../proto/attestation/batch.ts';
import { type Bytes, fromHex, isDigest, toHex } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';

/**
 * Checks that a nonce commits to this raw among others (RFC 9162 §2.1.3.2).
 * @param batch the attestation's member, unparsed. @param rawHash SHA-256 of raw in hex. @param nonce 64 lowercase hex digits.
 * @returns the parsed member.
 * @throws {CheckFailure} batch_malformed, batch_proof_invalid
 */
export function checkBatch(batch: unknown, rawHash: string, nonce: string): Batch {
  const read = readBatch(batch);
  if (batchNonce(rawHash, read) !== nonce)
    throw new CheckFailure('batch_proof_invalid', 'the path leads from raw to another nonce');
  return read;
}

/** The nonce that commits to the raw with this hash, in hex. The path must have as many hashes as {@link sidesOf} returns sides. */
export function batchNonce(rawHash: string, { salt, leaf_index, tree_size, path }: Batch): string {
  let hash = sha256(leafMessage(fromHex(salt), fromHex(rawHash)));
  for (const [i, side] of sidesOf(leaf_index, tree_size).entries()) {
    const sibling = fromHex(path[i] ?? '');
    hash = sha256(side === 'left' ? nodeMessage(sibling, hash) : nodeMessage(hash, sibling));
  }
  return toHex(sha256(nonceMessage(tree_size, hash)));
}

/** @param member `batch`, unparsed. @throws {CheckFailure} batch_malformed */
export function readBatch(member: unknown): Batch {
  const { salt, leaf_index, tree_size, path, ...more } = { ...(member as Readonly<Record<string, unknown>>) };
  if (Object.keys(more).length > 0) throw bad('batch has a member that is not known');
  if (!isWhole(tree_size, MAX_LEAVES) || tree_size === 0 || !isWhole(leaf_index, tree_size - 1))
    throw bad(`tree_size is not 1 to ${MAX_LEAVES}, or leaf_index not less`);
  const { length } = sidesOf(leaf_index, tree_size);
  if (!Array.isArray(path) || path.length !== length) throw bad(`the path of this leaf is not a list of ${length}`);
  // Index by index: a list that was given parsed may have holes.
  const hashes = Array.from({ length }, (_, i) => path[i] as unknown);
  if (!isDigest(salt) || !hashes.every(isDigest)) throw bad('salt and hashes are not 64 lowercase hex digits each');
  return { salt, leaf_index, tree_size, path: hashes };
}

const bad = (message: string) => new CheckFailure('batch_malformed', message);
const isWhole = (value: unknown, most: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most;

// Synchronous SHA-256 (FIPS 180-4) for short messages. WebCrypto takes some 40 µs for a hash of any size, which along a long path is a
// fifth of a whole verification. Nothing here is secret.

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
