// Merkle trees as RFC 9162 §2.1 defines them, and the nonce over one: a second implementation of docs/attestation.md §8, with nothing of
// proto/attestation/batch.ts.
import { createHash } from 'node:crypto';

export type Hash = (...parts: readonly (string | Uint8Array)[]) => Buffer;

export const sha256: Hash = (...parts) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

export const leafOf: Hash = (salt, rawHash) =>
  sha256('\0countersign/batch-leaf/v1\0', salt as Uint8Array, rawHash as Uint8Array);
export const nodeOf: Hash = (left, right) => sha256('\u0001', left as Uint8Array, right as Uint8Array);

/** MTH of §2.1.1, of leaves that are hashed already. */
export function rootOf(leaves: readonly Buffer[], node: Hash = nodeOf): Buffer {
  const [only] = leaves;
  if (only !== undefined && leaves.length === 1) return only;
  const k = splitOf(leaves.length);
  return node(rootOf(leaves.slice(0, k), node), rootOf(leaves.slice(k), node));
}

/** PATH of §2.1.3.1: from the leaf's sibling upwards. */
export function pathOf(index: number, leaves: readonly Buffer[], node: Hash = nodeOf): Buffer[] {
  if (leaves.length === 1) return [];
  const k = splitOf(leaves.length);
  const [left, right] = [leaves.slice(0, k), leaves.slice(k)];
  return index < k
    ? [...pathOf(index, left, node), rootOf(right, node)]
    : [...pathOf(index - k, right, node), rootOf(left, node)];
}

/** The largest power of two below n. */
function splitOf(n: number): number {
  let k = 1;
  while (2 * k < n) k *= 2;
  return k;
}

export function nonceOver(size: number, root: Uint8Array): string {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(size));
  return sha256('countersign/batch-nonce/v1\0', bytes, root).toString('hex');
}
