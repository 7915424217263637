// A batch: several responses that one GPU nonce commits to, as the leaves of a Merkle tree (RFC 9162 §2.1). Each response carries its
// own path to the root. docs/attestation.md gives the bytes; sidecar, gateway and verifier compute them here.
import { type Bytes, concat } from '../bytes.ts';

export const MAX_LEAVES = 4096;
/** Hashes in the path of a leaf of the largest tree. */
export const MAX_PATH = 12;

/** The member `batch` of an attestation. */
export interface Batch {
  /** 32 random bytes of this leaf only, in hex. Without them, a client of another leaf could confirm a guess of this raw. */
  readonly salt: string;
  /** From 0. The order of leaves is random. */
  readonly leaf_index: number;
  /** At most {@link MAX_LEAVES}. */
  readonly tree_size: number;
  /** Hashes in hex from the leaf's sibling upwards. */
  readonly path: readonly string[];
}

/** The side of a sibling in its pair. */
type Side = 'left' | 'right';

/**
 * The side of each hash in a leaf's path (RFC 9162 §2.1.3.2). The path has exactly as many hashes.
 * @param leaf_index less than `tree_size`
 */
export function sidesOf(leaf_index: number, tree_size: number): readonly Side[] {
  const sides: Side[] = [];
  for (let [index, last] = [leaf_index, tree_size - 1]; last > 0; index >>= 1, last >>= 1)
    if (index % 2 === 1) sides.push('left');
    else if (index < last) sides.push('right');
  return sides;
}

// The messages that the caller hashes with SHA-256.

const encoder = new TextEncoder();
const LEAF = encoder.encode('\0countersign/batch-leaf/v1\0');
const NODE = Uint8Array.of(1);
const NONCE = encoder.encode('countersign/batch-nonce/v1\0');

/** @param rawHash SHA-256 of raw. */
export const leafMessage = (salt: Uint8Array, rawHash: Uint8Array): Bytes => concat([LEAF, salt, rawHash]);

export const nodeMessage = (left: Uint8Array, right: Uint8Array): Bytes => concat([NODE, left, right]);

/** The SHA-256 of this message is the nonce. It includes the tree's size, which a path does not fix. */
export function nonceMessage(tree_size: number, root: Uint8Array): Bytes {
  const size = new Uint8Array(8);
  new DataView(size.buffer).setUint32(4, tree_size);
  return concat([NONCE, size, root]);
}
