// The Merkle tree as RFC 9162 §2.1.1 defines it, by recursion, to compare with: the sidecar builds it level by level.
import { createHash } from 'node:crypto';

const sha256 = (...parts: readonly Uint8Array[]): Buffer => createHash('sha256').update(Buffer.concat(parts)).digest();

/** The largest power of two below n. */
const split = (n: number): number => 2 ** Math.ceil(Math.log2(n) - 1);

/** @param leaves hashes of the leaves. */
export function rootOf(leaves: readonly Uint8Array[]): Uint8Array {
  const [only] = leaves;
  if (only === undefined) throw new Error('no leaves');
  if (leaves.length === 1) return only;
  const k = split(leaves.length);
  return sha256(Uint8Array.of(1), rootOf(leaves.slice(0, k)), rootOf(leaves.slice(k)));
}

export const leafHash = (salt: string, raw: string): Buffer =>
  sha256(
    Uint8Array.of(0),
    Buffer.from('countersign/batch-leaf/v1\0'),
    Buffer.from(salt, 'hex'),
    Buffer.from(raw, 'hex'),
  );

export function nonceOfTree(leaves: readonly Uint8Array[]): string {
  const size = Buffer.alloc(8);
  size.writeBigUInt64BE(BigInt(leaves.length));
  return sha256(Buffer.from('countersign/batch-nonce/v1\0'), size, rootOf(leaves)).toString('hex');
}

/** RFC 9162 §2.1.3.1. */
export function pathTo(index: number, leaves: readonly Uint8Array[]): string[] {
  if (leaves.length === 1) return [];
  const k = split(leaves.length);
  const [near, far] = index < k ? [leaves.slice(0, k), leaves.slice(k)] : [leaves.slice(k), leaves.slice(0, k)];
  return [...pathTo(index < k ? index : index - k, near), Buffer.from(rootOf(far)).toString('hex')];
}
