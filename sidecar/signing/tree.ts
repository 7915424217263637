// The Merkle tree of a batch: salts, hashes, the nonce that the GPU signs, and each leaf's path (RFC 9162 §2.1, proto/attestation/batch.ts).
import { hash, randomBytes, randomInt } from 'node:crypto';
import { type Batch, leafMessage, nodeMessage, nonceMessage } from '../../proto/attestation/batch.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';

const SALT_BYTES = 32;
const sha256 = (bytes: Uint8Array): Buffer => hash('sha256', bytes, 'buffer');

/** A response that shares a nonce: salt and hash in hex. The hash is made on arrival, so that closing a batch is quick. */
export interface Leaf {
  readonly salt: string;
  readonly hash: string;
}

/** @param digest the SHA-256 of raw, in hex. */
export function makeLeaf(digest: Nonce): Leaf {
  const salt = randomBytes(SALT_BYTES);
  return { salt: salt.toString('hex'), hash: hash('sha256', leafMessage(salt, Buffer.from(digest, 'hex'))) };
}

interface Tree<L extends Leaf> {
  readonly nonce: Nonce;
  /** The proof that is sent with each leaf's result. */
  readonly proofs: ReadonlyMap<L, Batch>;
}

/** The leaves are shuffled, so that an index does not reveal when its request arrived. */
export function makeTree<L extends Leaf>(leaves: Iterable<L>): Tree<L> {
  const order = shuffled([...leaves]);
  const levels = levelsOf(order.map((leaf) => Buffer.from(leaf.hash, 'hex')));
  const tree_size = order.length;
  const root = levels.at(-1)?.[0];
  if (root === undefined) throw new RangeError('a batch without answers has no root');
  const nonce = sha256(nonceMessage(tree_size, root)).toString('hex') as Nonce;
  const hex = levels.map((level) => level.map((one) => one.toString('hex')));
  const proofs = order.map((leaf, leaf_index): [L, Batch] => [
    leaf,
    { salt: leaf.salt, leaf_index, tree_size, path: pathOf(leaf_index, hex) },
  ]);
  return { nonce, proofs: new Map(proofs) };
}

/** From the leaves to the root. A node without a sibling moves up unchanged, which gives RFC 9162's tree. */
function levelsOf(leaves: readonly Buffer[]): readonly (readonly Buffer[])[] {
  const levels = [leaves];
  for (let below = leaves; below.length > 1; ) {
    const level: Buffer[] = [];
    for (let i = 0; i < below.length; i += 2) {
      const [left, right] = [below[i] as Buffer, below[i + 1]];
      level.push(right === undefined ? left : sha256(nodeMessage(left, right)));
    }
    levels.push(level);
    below = level;
  }
  return levels;
}

function pathOf(leaf_index: number, levels: readonly (readonly string[])[]): string[] {
  const path: string[] = [];
  for (const [height, level] of levels.entries()) {
    const sibling = level[(leaf_index >> height) ^ 1];
    if (sibling !== undefined) path.push(sibling);
  }
  return path;
}

/** A Fisher-Yates shuffle, in place. */
function shuffled<T>(list: T[]): readonly T[] {
  for (let i = list.length - 1; i > 0; i--) {
    const j = randomInt(i + 1);
    [list[i], list[j]] = [list[j] as T, list[i] as T];
  }
  return list;
}
