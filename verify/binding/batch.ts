// Checks a batched proof: from raw's hash along its path to the root, and from there to the nonce. docs/attestation.md §8 has the bytes.
import {
  type Batch,
  leafMessage,
  MAX_LEAVES,
  nodeMessage,
  nonceMessage,
  sidesOf,
} from '../../proto/attestation/batch.ts';
import { digest, fromHex, isDigest, toHex } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';

/** SHA-256: WebCrypto's by default. Node's own takes a thirtieth of its time for such short messages. */
type Sha256 = (message: Uint8Array) => Uint8Array | Promise<Uint8Array>;

const webCrypto: Sha256 = (message) => digest('SHA-256', message);

/**
 * Checks that a nonce commits to this raw among others (RFC 9162 §2.1.3.2).
 * @param batch the attestation's member, unparsed. @param rawHash SHA-256 of raw in hex. @param nonce 64 lowercase hex digits.
 * @returns the parsed member.
 * @throws {CheckFailure} batch_malformed, batch_proof_invalid
 */
export async function checkBatch(
  batch: unknown,
  rawHash: string,
  nonce: string,
  sha256: Sha256 = webCrypto,
): Promise<Batch> {
  const read = readBatch(batch);
  if ((await batchNonce(rawHash, read, sha256)) !== nonce)
    throw new CheckFailure('batch_proof_invalid', 'the path leads from raw to another nonce');
  return read;
}

/** The nonce that commits to the raw with this hash, in hex. The path must have as many hashes as {@link sidesOf} returns sides. */
export async function batchNonce(
  rawHash: string,
  { salt, leaf_index, tree_size, path }: Batch,
  sha256: Sha256 = webCrypto,
): Promise<string> {
  let hash = await sha256(leafMessage(fromHex(salt), fromHex(rawHash)));
  for (const [i, side] of sidesOf(leaf_index, tree_size).entries()) {
    const sibling = fromHex(path[i] ?? '');
    hash = await sha256(side === 'left' ? nodeMessage(sibling, hash) : nodeMessage(hash, sibling));
  }
  return toHex(await sha256(nonceMessage(tree_size, hash)));
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
