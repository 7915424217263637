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

interface Proof {
  readonly salt: string;
  readonly leaf_index: number;
  readonly tree_size: number;
  readonly path: readonly string[];
}

/** The nonce that a leaf's path leads to, as RFC 9162 §2.1.3.2 words it. */
export function nonceOfLeaf(raw: string, { salt, leaf_index, tree_size, path }: Proof): string {
  let fn = leaf_index;
  let sn = tree_size - 1;
  let r: Uint8Array = leafHash(salt, createHash('sha256').update(raw).digest('hex'));
  for (const one of path) {
    const p = Buffer.from(one, 'hex');
    if (sn === 0) throw new Error('the path is too long');
    if (fn % 2 === 1 || fn === sn) {
      r = sha256(Uint8Array.of(1), p, r);
      while (fn % 2 === 0 && fn !== 0) {
        fn >>= 1;
        sn >>= 1;
      }
    } else r = sha256(Uint8Array.of(1), r, p);
    fn >>= 1;
    sn >>= 1;
  }
  if (sn !== 0) throw new Error('the path is too short');
  const size = Buffer.alloc(8);
  size.writeBigUInt64BE(BigInt(tree_size));
  return sha256(Buffer.from('countersign/batch-nonce/v1\0'), size, r).toString('hex');
}
