// Batches: every leaf of a tree is found by its own path and by nothing else, and what a verifier then says of it.
import { createHash, randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Batch, MAX_LEAVES, MAX_PATH, nodeMessage, sidesOf } from '../../../proto/attestation/batch.ts';
import { leafOf, nonceOver, pathOf, rootOf, sha256 } from '../../../scripts/vectors/tree.ts';
import {
  appraiseAttestation,
  CheckFailure,
  type VerificationReport,
  type VerifyOptions,
  verifyAttestation,
} from '../../../verify/index.ts';
import { checkBatch } from '../../../verify/service.ts';
import { AT, a, attest, attestInBatch, b, EXCHANGE, simulatedRoot } from '../maker.ts';
import { makeSession, processorRoots, signAnswer, statementDigest } from '../session-maker.ts';

const OPTIONS: VerifyOptions = { simulatedRoot: simulatedRoot + processorRoots, at: AT };
const failures = ({ checks }: VerificationReport) =>
  checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);

interface Leaf {
  readonly rawHash: string;
  readonly batch: Batch;
}

interface Tree {
  readonly nonce: string;
  readonly leaves: readonly Leaf[];
}

function makeTree(tree_size: number): Tree {
  const salts = Array.from({ length: tree_size }, () => randomBytes(32));
  const raws = salts.map(() => randomBytes(32));
  const hashes = salts.map((salt, i) => leafOf(salt, raws[i] as Buffer));
  const leaves = salts.map((salt, leaf_index) => ({
    rawHash: raws[leaf_index]?.toString('hex') ?? '',
    batch: {
      salt: salt.toString('hex'),
      leaf_index,
      tree_size,
      path: pathOf(leaf_index, hashes).map((hash) => hash.toString('hex')),
    },
  }));
  return { nonce: nonceOver(tree_size, rootOf(hashes)), leaves };
}

/** The code, or null where it is proven. */
async function refused(batch: unknown, rawHash: string, nonce: string): Promise<string | null> {
  try {
    await checkBatch(batch, rawHash, nonce);
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return error.code;
  }
}

describe('a leaf of a tree', () => {
  it('is proven by its own salt, place, size, path and nonce, and by no others', () =>
    fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: 300 }), fc.nat(), async (size, seed) => {
        const { nonce, leaves } = makeTree(size);
        const another = leafOf(nonce, nonce).toString('hex');
        const codes = await Promise.all(leaves.map(({ batch, rawHash }) => refused(batch, rawHash, nonce)));
        expect(codes.filter((code) => code !== null)).toEqual([]);
        for (let k = 0; k < 12; k++) {
          const i = (seed + 37 * k) % size;
          const { rawHash, batch } = leaves[i] as Leaf;
          const { batch: other } = leaves[(i + 1 + ((seed + k) % (size - 1))) % size] as Leaf;
          const { batch: neighbour } = leaves[i ^ 1] ?? (leaves[i - 1] as Leaf);
          const wrong = [
            ...[other, neighbour].flatMap((it) => [
              it,
              { ...it, salt: batch.salt },
              { ...batch, salt: it.salt },
              { ...batch, path: it.path },
              { ...batch, leaf_index: it.leaf_index },
            ]),
            { ...batch, tree_size: size + 1 },
            { ...batch, tree_size: size - 1 },
            ...(batch.path.length > 1 ? [{ ...batch, path: batch.path.toReversed() }] : []),
            { ...batch, path: batch.path.slice(1) },
            { ...batch, path: batch.path.slice(0, -1) },
            { ...batch, path: [...batch.path, batch.salt] },
          ];
          expect(await Promise.all(wrong.map((one) => refused(one, rawHash, nonce)))).not.toContain(null);
          expect(await refused(batch, rawHash, another)).toBe('batch_proof_invalid');
          expect(await refused(batch, batch.salt, nonce)).toBe('batch_proof_invalid');
        }
      }),
      { numRuns: 15 },
    ));

  it('is proven in a tree of every size up to 70, wherever it stands, and alone', async () => {
    for (let size = 1; size <= 70; size++) {
      const { nonce, leaves } = makeTree(size);
      const read = await Promise.all(leaves.map(({ batch, rawHash }) => checkBatch(batch, rawHash, nonce)));
      expect(read).toEqual(leaves.map(({ batch }) => batch));
    }
  });

  it('has a path of twelve hashes at most', () => {
    for (const size of [MAX_LEAVES, MAX_LEAVES - 1, 2049, 2048])
      for (const index of [0, 1, size >> 1, size - 1])
        expect(sidesOf(index, size).length).toBeLessThanOrEqual(MAX_PATH);
    expect(sidesOf(0, MAX_LEAVES)).toHaveLength(MAX_PATH);
  });

  it('is refused where its member is of another form, also parsed', async () => {
    const { nonce, leaves } = makeTree(3);
    const { rawHash, batch } = leaves[0] as Leaf;
    const holes: string[] = [];
    holes.length = 2;
    for (const wrong of [
      null,
      undefined,
      1,
      'batch',
      [],
      {},
      { ...batch, path: holes },
      { ...batch, path: [...batch.path.slice(1), null] },
      { ...batch, path: { ...batch.path, length: 2 } },
      { ...batch, leaf_index: Number.NaN },
      { ...batch, tree_size: Number.POSITIVE_INFINITY },
      { ...batch, tree_size: 3n },
      Object.create(batch),
    ])
      expect(await refused(wrong, rawHash, nonce)).toBe('batch_malformed');
  });
});

// Google's and IETF's test tree for RFC 6962: eight entries, the root of each beginning, and the path of the first.
const ENTRIES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
const ROOTS = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];
const PATH_OF_FIRST = [
  '96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
  '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
  '6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
];

describe('the hashing inside of a tree', () => {
  const leaves = ENTRIES.map((hex) => sha256(Buffer.from(`00${hex}`, 'hex')));

  it("is Certificate Transparency's: its published test tree has its published roots", () => {
    for (const [i, root] of ROOTS.entries()) {
      const some = leaves.slice(0, i + 1);
      expect(rootOf(some).toString('hex')).toBe(root);
      for (const [index, leaf] of some.entries()) {
        const path = pathOf(index, some);
        const top = sidesOf(index, some.length).reduce<Uint8Array>((hash, side, depth) => {
          const sibling = path[depth] as Buffer;
          return sha256(side === 'left' ? nodeMessage(sibling, hash) : nodeMessage(hash, sibling));
        }, leaf);
        expect(path).toHaveLength(sidesOf(index, some.length).length);
        expect(Buffer.from(top).toString('hex')).toBe(root);
      }
    }
    expect(pathOf(0, leaves).map((hash) => hash.toString('hex'))).toEqual(PATH_OF_FIRST);
  });
});

describe('a batched attestation', () => {
  it('is valid, and says of how many it is one', async () => {
    const answer = await attestInBatch(17, 5);
    const { claims, proven, not_proven, checks, exchange, attestation } = await verifyAttestation(
      JSON.stringify(answer),
      OPTIONS,
    );
    expect(claims.batch).toEqual({ tree_size: 17, leaf_index: 5 });
    expect(claims.nonce).toBe(answer.nonce);
    expect(attestation).toEqual(answer);
    expect(exchange.request).toBe(EXCHANGE.request);
    expect(checks.find(({ name }) => name === 'raw_hash')?.detail).toBe('nonce commits to raw as leaf 5 of 17');
    const words =
      'a nonce that commits to 17 answers, of which this is one: exactly this request, this answer and this timestamp';
    expect(proven[0]).toContain(words);
    const strict = await appraiseAttestation(await attest(), OPTIONS);
    expect(not_proven).toEqual(strict.not_proven);
    expect(strict.claims.batch).toBeNull();
    expect(strict.proven[0]).toContain('the hash of exactly this request, this answer and this timestamp');
  });

  it('says the same of a device under the pinned root', async () => {
    const options: VerifyOptions = { at: AT, roots: { device: simulatedRoot } };
    const without = { referenceValues: true, revocation: true };
    for (const [size, words] of [
      [2, 'signed a nonce that commits to 2 answers, of which this is one: exactly this request'],
      [1, 'signed a nonce that commits to one answer: exactly this request'],
    ] as const) {
      const { level, proven } = await appraiseAttestation(await attestInBatch(size, 0), { ...options, without });
      expect(level).toBe('gpu');
      expect(proven[0]).toContain(words);
    }
  });

  it('claims no place in a tree that it was not found in', async () => {
    const answer = await attestInBatch(4, 1);
    const report = await appraiseAttestation({ ...answer, batch: { ...answer.batch, leaf_index: 2 } }, OPTIONS);
    expect(failures(report)).toEqual(['raw_hash batch_proof_invalid']);
    expect(report.claims.batch).toBeNull();
  });

  it('of several devices is signed by each of them', async () => {
    const answer = await attestInBatch(9, 8, EXCHANGE, [a, b]);
    expect(failures(await appraiseAttestation(answer, OPTIONS))).toEqual([]);
    const other = await attestInBatch(9, 8, EXCHANGE, [a, b]);
    const mixed = { ...answer, evidence: [answer.evidence[0], other.evidence[1]] };
    expect(failures(await appraiseAttestation(mixed, OPTIONS))).toEqual(['report_nonce report_nonce_mismatch']);
  });

  it("is refused where the caller's policy wants fewer answers under one nonce", async () => {
    const by = async (size: number, maxBatch: number) =>
      failures(await appraiseAttestation(await attestInBatch(size, 0), { ...OPTIONS, policy: { maxBatch } }));
    expect(await by(3, 3)).toEqual([]);
    expect(await by(3, 2)).toEqual(['policy policy_refused']);
    expect(await by(2, 1)).toEqual(['policy policy_refused']);
    expect(await by(1, 1)).toEqual([]);
    expect(failures(await appraiseAttestation(await attest(), { ...OPTIONS, policy: { maxBatch: 1 } }))).toEqual([]);
    for (const maxBatch of [0, -1, 1.5, Number.NaN, '2' as never])
      await expect(appraiseAttestation({}, { policy: { maxBatch } })).rejects.toThrow(TypeError);
  });
});

describe('in a session, the key of a batched answer', async () => {
  const session = await makeSession();
  const answer = await attestInBatch(5, 3, { ...EXCHANGE, session: statementDigest(session) });
  const rawHash = createHash('sha256').update(answer.raw).digest('hex');
  const signedOver = (nonce: string) => ({
    ...answer,
    cpu: { ...session.cpu, signature: signAnswer(session, { ...answer, nonce }) },
  });

  it("signs this raw's own hash", async () => {
    expect(failures(await appraiseAttestation(signedOver(rawHash), OPTIONS))).toEqual([]);
  });

  it('does not sign the nonce that it shares with others', async () => {
    expect(failures(await appraiseAttestation(signedOver(answer.nonce), OPTIONS))).toEqual([
      'cpu_answer answer_signature_invalid',
    ]);
  });

  it('is not looked at where the path leads elsewhere', async () => {
    const { checks } = await appraiseAttestation(
      { ...signedOver(rawHash), batch: { ...answer.batch, leaf_index: 2 } },
      OPTIONS,
    );
    expect(checks.find(({ name }) => name === 'cpu_answer')).toMatchObject({
      status: 'skip',
      detail: 'not run: raw_hash failed',
    });
  });
});
