// Cases about batches: one nonce that commits to many answers (docs/attestation.md §8).
import type { RawParts } from '../../proto/attestation/raw.ts';
import { nonceHex, rawOf, WHOLE } from './exchange.ts';
import { type Attestation, forge } from './forge.ts';
import { ALONE, type Case, fail, type Kit, type Made, pass } from './kit.ts';
import { type Hash, leafOf, nodeOf, nonceOver, pathOf, rootOf, sha256 } from './tree.ts';

const TEE = '"tee":{"batch":true,"challenge":"N0t-a-secret_0123456789"}';
export const BATCHED: RawParts = { ...WHOLE, request: WHOLE.request.replace('"tee":true', TEE) };
const RAW = rawOf(BATCHED);

interface Member {
  readonly salt: unknown;
  readonly leaf_index: unknown;
  readonly tree_size: unknown;
  readonly path: readonly unknown[];
}

interface Tree {
  readonly member: Member;
  readonly nonce: string;
  /** The member of another leaf. */
  readonly of: (index: number) => Member;
}

interface Hashes {
  readonly leaf?: Hash;
  readonly node?: Hash;
  readonly nonce?: typeof nonceOver;
}

/** A tree that has our answer at `index`, and others' beside it. */
export function treeOf(
  tree_size: number,
  index: number,
  { leaf = leafOf, node = nodeOf, nonce = nonceOver }: Hashes = {},
): Tree {
  const salts = Array.from({ length: tree_size }, (_, i) => sha256(`salt ${i}`));
  const raws = salts.map((_, i) => (i === index ? sha256(RAW) : sha256(`another answer ${i}`)));
  const leaves = salts.map((salt, i) => (i === index ? leaf : leafOf)(salt, raws[i] as Buffer));
  const of = (leaf_index: number): Member => ({
    salt: salts[leaf_index]?.toString('hex'),
    leaf_index,
    tree_size,
    path: pathOf(leaf_index, leaves, node).map((hash) => hash.toString('hex')),
  });
  return { member: of(index), nonce: nonce(tree_size, rootOf(leaves, node)), of };
}

/** Of seven leaves the third: its path is as long as its neighbour's, and as in a tree of eight. */
const SEVEN = treeOf(7, 2);

const attested = ({ world }: Kit, { nonce }: Tree, member: unknown): Promise<Attestation> =>
  forge(world, { parts: BATCHED, batch: { member, nonce } });

const good = (tree_size: number, index: number, which: string): Case =>
  pass('raw_hash', `batch-of-${tree_size}`, async (kit) => {
    const tree = treeOf(tree_size, index);
    const description = `the nonce commits to ${tree_size} answer${tree_size === 1 ? '' : 's'}, of which this is ${which}`;
    return { description, attestation: await attested(kit, tree, tree.member), skipped: ALONE };
  });

/** The tree is right, and what the devices signed; the member is not. */
const forged = (what: string, code: Case['code'], description: string, change: (right: Member) => unknown): Case =>
  fail('raw_hash', `batch-${what}`, code ?? 'batch_malformed', async (kit) => ({
    description,
    attestation: await attested(kit, SEVEN, change(SEVEN.member)),
  }));

const invalid = (what: string, description: string, change: (right: Member) => unknown): Case =>
  forged(what, 'batch_proof_invalid', description, change);
const malformed = (what: string, description: string, change: (right: Member) => unknown): Case =>
  forged(what, 'batch_malformed', description, change);

/** The devices signed the nonce of a tree that is hashed in another way, by which the path would lead to it. */
const otherwise = (what: string, description: string, hashes: Hashes): Case =>
  fail('raw_hash', `batch-${what}`, 'batch_proof_invalid', async (kit) => {
    const tree = treeOf(7, 2, hashes);
    return { description, attestation: await attested(kit, tree, tree.member) };
  });

const swapped = ([a, b, ...rest]: readonly unknown[]) => [b, a, ...rest];
const HASH = sha256('some hash').toString('hex');
const upper = (text: unknown) => String(text).toUpperCase();

async function expecting(kit: Kit, description: string, nonce: string): Promise<Made> {
  return { description, attestation: await attested(kit, SEVEN, SEVEN.member), options: { expected: { nonce } } };
}

export const BATCH_CASES: readonly Case[] = [
  good(1, 0, 'all'),
  good(2, 1, 'the second'),
  good(3, 2, 'the last: its path is shorter than the others'),
  good(7, 6, 'the last: on its way up it is passed over once'),
  good(8, 3, 'the fourth'),
  good(255, 254, 'the last'),
  good(4096, 2025, 'one, of as many as may be'),
  pass('raw_hash', 'batch-expected-nonce', async (kit) => ({
    ...(await expecting(kit, 'the caller expects the nonce that was signed', SEVEN.nonce)),
    skipped: ALONE,
  })),
  fail('raw_hash', 'batch-expected-hash', 'raw_hash_mismatch', (kit) =>
    expecting(kit, "the caller expects raw's own hash as the nonce", nonceHex(RAW)),
  ),
  fail('raw_hash', 'batch-left-out', 'raw_hash_mismatch', async (kit) => {
    const { batch: _, ...attestation } = await attested(kit, SEVEN, SEVEN.member);
    return { description: 'the member batch is left out of a batched proof', attestation };
  }),
  fail('raw_hash', 'batch-added', 'batch_proof_invalid', async ({ world }) => {
    const { member } = treeOf(1, 0);
    const attestation = { ...(await forge(world, { parts: BATCHED })), batch: member };
    return { description: "a proof of raw's own hash, beside which a member batch was put", attestation };
  }),
  fail('form', 'batch-member-twice', 'not_an_attestation', async (kit) => {
    const text = JSON.stringify(await attested(kit, SEVEN, SEVEN.member)).replace('"salt"', '"tree_size":7,"salt"');
    return { description: 'a member of batch stands twice', text };
  }),

  invalid('another-answer', "another leaf's salt, place and path", () => SEVEN.of(3)),
  invalid('another-path', "another leaf's place and path", ({ salt }) => ({ ...SEVEN.of(3), salt })),
  invalid('another-salt', "another leaf's salt", (right) => ({ ...right, salt: SEVEN.of(3).salt })),
  invalid('another-index', "another leaf's place", (right) => ({ ...right, leaf_index: 3 })),
  invalid('another-size', 'a tree of eight, whose path would be as long', (right) => ({ ...right, tree_size: 8 })),
  invalid('order', 'two hashes of the path changed places', (right) => ({ ...right, path: swapped(right.path) })),
  invalid('level-left-out', 'the leaf in the place of the node above it, in a tree of half the height', (right) => ({
    ...right,
    leaf_index: 1,
    tree_size: 4,
    path: right.path.slice(1),
  })),
  otherwise('node-as-leaf', 'in the place of the leaf the tree has a node over salt and hash', { leaf: nodeOf }),
  otherwise('leaf-as-node', 'the nodes of the tree are made as leaves are', { node: leafOf }),
  otherwise('leaf-without-tag', "the leaf is hashed as another log's would be, without our tag", {
    leaf: (salt, hash) => sha256('\0', salt as Uint8Array, hash as Uint8Array),
  }),
  otherwise('root-as-nonce', 'the devices signed the root itself, which binds no size', {
    nonce: (_size, root) => Buffer.from(root).toString('hex'),
  }),

  malformed('path-too-long', 'a hash more than the path of this leaf has', (right) => ({
    ...right,
    path: [...right.path, HASH],
  })),
  malformed('path-too-short', 'a hash less than the path of this leaf has', (right) => ({
    ...right,
    path: right.path.slice(1),
  })),
  malformed('path-of-13', 'more hashes than any path has', (right) => ({ ...right, path: Array(13).fill(HASH) })),
  malformed('path-no-list', 'the path is a text', ({ path, ...right }) => ({ ...right, path: path.join('') })),
  malformed('unknown-member', 'a member that is not known', (right) => ({ ...right, root: HASH })),
  malformed('no-salt', 'the salt is missing', ({ salt: _, ...right }) => right),
  malformed('short-salt', 'a salt of 31 bytes', (right) => ({ ...right, salt: String(right.salt).slice(2) })),
  malformed('upper-case-salt', 'a salt in capital letters', (right) => ({ ...right, salt: upper(right.salt) })),
  malformed('upper-case-hash', 'a hash in capital letters', (right) => ({ ...right, path: right.path.map(upper) })),
  malformed('fraction', 'a place that is no whole number', (right) => ({ ...right, leaf_index: 2.5 })),
  malformed('number-as-text', 'a place that is a text', (right) => ({ ...right, leaf_index: '2' })),
  malformed('boolean', 'a place that is a boolean', (right) => ({ ...right, leaf_index: true })),
  malformed('negative', 'a place before the first', (right) => ({ ...right, leaf_index: -1 })),
  malformed('size-0', 'a tree without leaves', (right) => ({ ...right, tree_size: 0 })),
  malformed('size-4097', 'a tree of more leaves than may be', (right) => ({ ...right, tree_size: 4097 })),
  malformed('index-of-size', 'a place behind the last', (right) => ({ ...right, leaf_index: 7 })),
  malformed('index-beyond-32-bits', 'a place whose lower 32 bits are right', (right) => ({
    ...right,
    leaf_index: 2 ** 32 + 2,
  })),
  malformed('null', 'batch is null', () => null),
  malformed('list', 'batch is a list', (right) => Object.values(right)),

  pass('policy', 'batch', async (kit) => ({
    description: 'a nonce for seven answers; the caller accepts seven',
    attestation: await attested(kit, SEVEN, SEVEN.member),
    options: { max_batch: 7 },
    skipped: ALONE,
  })),
  fail('policy', 'batch', 'policy_refused', async (kit) => ({
    description: 'a nonce for seven answers; the caller accepts six',
    attestation: await attested(kit, SEVEN, SEVEN.member),
    options: { max_batch: 6 },
  })),
];
