// Batches: many answers under one nonce, as leaves of a Merkle tree.
import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, it, test } from 'vitest';
import { WebSocket } from 'ws';
import type { Batch } from '../../../proto/attestation/batch.ts';
import {
  attestedBatchHeadSchema,
  attestedMembersSchema,
  leavesSchema,
  splitBinaryFrame,
} from '../../../proto/attestation/frames.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { type Attester, AttesterError } from '../../../sidecar/common/attester.ts';
import { makeLeaf, makeTree } from '../../../sidecar/signing/batches.ts';
import { DeadlineExceeded, QueueFull } from '../../../sidecar/signing/queue.ts';
import { startSidecar, temporaryFolder } from '../../support/harness.ts';
import { leafHash, nonceOfTree, pathTo } from '../../support/tree.ts';
import { schedule } from './schedule.ts';

const rawHash = (n: number) => createHash('sha256').update(`raw ${n}`).digest('hex') as Nonce;
/** One for each: a signal looks through its listeners for each that is added. */
const never = () => new AbortController().signal;
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Whether these are exactly the leaves of one tree, each with the path that RFC 9162 gives it. */
function expectTree(nonce: string, answers: readonly { readonly raw: Nonce; readonly batch: Batch }[]): void {
  const inOrder = answers.toSorted((a, b) => a.batch.leaf_index - b.batch.leaf_index);
  expect(inOrder.map(({ batch }) => batch.leaf_index)).toEqual(inOrder.map((_, i) => i));
  const leaves = inOrder.map(({ raw, batch }) => leafHash(batch.salt, raw));
  expect(nonceOfTree(leaves)).toBe(nonce);
  for (const [i, { batch }] of inOrder.entries()) {
    expect(batch.tree_size).toBe(answers.length);
    expect(batch.path).toEqual(pathTo(i, leaves));
  }
  expect(new Set(inOrder.map(({ batch }) => batch.salt)).size).toBe(answers.length);
}

describe('the tree', () => {
  test.each([1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100, 255, 256, 257])('of %i leaves is that of RFC 9162', (size) => {
    const raws = new Map(Array.from({ length: size }, (_, n) => [makeLeaf(rawHash(n)), rawHash(n)] as const));
    const { nonce, proofs } = makeTree(raws.keys());
    expectTree(
      nonce,
      [...proofs].map(([leaf, batch]) => ({ raw: raws.get(leaf) as Nonce, batch })),
    );
  });

  test('has its leaves in a random order, and gives one raw two salts', () => {
    const leaves = Array.from({ length: 200 }, () => makeLeaf(rawHash(1)));
    const { proofs } = makeTree(leaves);
    const indices = leaves.map((leaf) => proofs.get(leaf)?.leaf_index);
    expect(indices).not.toEqual(indices.toSorted((a, b) => Number(a) - Number(b)));
    expect(new Set([...proofs.values()].map(({ salt }) => salt)).size).toBe(200);
  });

  test('of no leaf does not exist', () => expect(() => makeTree([])).toThrow(RangeError));
});

/** An attester that signs one nonce when it is told to. */
function byHand() {
  const signed: string[] = [];
  const waiting: { resolve: () => void; reject: (error: Error) => void }[] = [];
  const attest: Attester['attest'] = async (nonce) => {
    signed.push(nonce);
    await new Promise<void>((resolve, reject) => waiting.push({ resolve, reject }));
    return { token: 't', evidence: [] };
  };
  const next = async () => {
    while (waiting.length === 0) await sleep(1);
    return waiting.shift() as (typeof waiting)[number];
  };
  return { attest, signed, next };
}

describe('answers that may share a nonce', () => {
  it('share one with all that come while the GPU is busy', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const first = s.attest(rawHash(0), never());
    const running = await gpu.next();
    const sharing = Array.from({ length: 20 }, (_, n) => s.attestInBatch(rawHash(n), 'all', never()));
    await sleep(5);
    running.resolve();
    expect((await first).nonce).toBe(rawHash(0));
    (await gpu.next()).resolve();
    const answers = await Promise.all(sharing);
    expect(gpu.signed).toHaveLength(2);
    expect(new Set(answers.map(({ nonce }) => nonce))).toEqual(new Set([gpu.signed[1]]));
    expectTree(
      gpu.signed[1] as string,
      answers.map(({ batch }, n) => ({ raw: rawHash(n), batch })),
    );
    for (const { phases } of answers) expect(phases.queue_ms).toBeGreaterThan(0);
  });

  it('are a batch of one where nobody else waits, and wait for nobody', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const alone = s.attestInBatch(rawHash(1), 'all', never());
    (await gpu.next()).resolve();
    const { nonce, batch } = await alone;
    expect(batch).toMatchObject({ leaf_index: 0, tree_size: 1, path: [] });
    expectTree(nonce, [{ raw: rawHash(1), batch }]);
  });

  it('and those that may not: the oldest goes first, whichever it is', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const order: string[] = [];
    const track = (name: string, promise: Promise<unknown>) => promise.then(() => order.push(name));
    const all = [
      track('strict 1', s.attest(rawHash(1), never())),
      track('batch a', s.attestInBatch(rawHash(2), 'all', never())),
      track('strict 2', s.attest(rawHash(3), never())),
      track('batch b', s.attestInBatch(rawHash(4), 'all', never())),
      track('strict 3', s.attest(rawHash(5), never())),
    ];
    for (let n = 0; n < 4; n++) (await gpu.next()).resolve();
    await Promise.all(all);
    expect(order).toEqual(['strict 1', 'batch a', 'batch b', 'strict 2', 'strict 3']);
    expect(gpu.signed).toHaveLength(4);
  });

  it('share with their own group alone', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const running = s.attest(rawHash(0), never());
    const groups = ['a'.repeat(64), 'b'.repeat(64), 'a'.repeat(64)];
    const sharing = groups.map((group, n) => s.attestInBatch(rawHash(n), group, never()));
    for (let n = 0; n < 3; n++) (await gpu.next()).resolve();
    await running;
    const sizes = (await Promise.all(sharing)).map(({ batch }) => batch.tree_size);
    expect(sizes).toEqual([2, 1, 2]);
  });

  it('leave the tree when their client goes before the root, and keep their place in it afterwards', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const running = s.attest(rawHash(0), never());
    const busy = await gpu.next();
    const early = new AbortController();
    const late = new AbortController();
    const [a, b, c] = [
      s.attestInBatch(rawHash(1), 'all', never()),
      s.attestInBatch(rawHash(2), 'all', early.signal),
      s.attestInBatch(rawHash(3), 'all', late.signal),
    ];
    early.abort(new Error('left early'));
    await expect(b).rejects.toThrow('left early');
    busy.resolve();
    await running;
    const root = await gpu.next();
    late.abort(new Error('left late'));
    await expect(c).rejects.toThrow('left late');
    root.resolve();
    expect((await a).batch.tree_size).toBe(2);
  });

  it('are not collected when all have left', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const running = s.attest(rawHash(0), never());
    const leaving = new AbortController();
    const left = [1, 2, 3].map((n) => s.attestInBatch(rawHash(n), 'all', leaving.signal));
    leaving.abort(new Error('gone'));
    for (const one of left) await expect(one).rejects.toThrow('gone');
    (await gpu.next()).resolve();
    await running;
    expect(s.waiting).toBe(0);
    const after = s.attestInBatch(rawHash(4), 'all', never());
    (await gpu.next()).resolve();
    expect((await after).batch.tree_size).toBe(1);
    expect(gpu.signed).toHaveLength(2);
  });

  it('do not join those who have all left', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const running = s.attest(rawHash(0), never());
    const leaving = new AbortController();
    const left = s.attestInBatch(rawHash(1), 'all', leaving.signal);
    leaving.abort(new Error('gone'));
    const staying = s.attestInBatch(rawHash(2), 'all', never());
    await expect(left).rejects.toThrow('gone');
    for (let n = 0; n < 2; n++) (await gpu.next()).resolve();
    await running;
    expect((await staying).batch.tree_size).toBe(1);
  });

  it('are tried again together, with the same nonce, and fail together after three attempts', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const well = [1, 2].map((n) => s.attestInBatch(rawHash(n), 'all', never()));
    const fault = () => new AttesterError('collection_failed', 'busy', true);
    (await gpu.next()).reject(fault());
    (await gpu.next()).resolve();
    await Promise.all(well);
    expect(new Set(gpu.signed).size).toBe(1);
    const failing = [3, 4, 5].map((n) => s.attestInBatch(rawHash(n), 'all', never()));
    const failures = failing.map((one) => expect(one).rejects.toThrow('busy'));
    for (let n = 0; n < 3; n++) (await gpu.next()).reject(fault());
    await Promise.all(failures);
  });

  it('have a deadline each, also while the GPU hangs', async () => {
    const s = schedule(() => new Promise(() => {}), { attest_deadline_ms: 50 });
    const hanging = Array.from({ length: 4_096 }, (_, n) => s.attestInBatch(rawHash(n), 'all', never()));
    const ends = await Promise.allSettled(hanging);
    expect(ends.every((end) => end.status === 'rejected' && end.reason instanceof DeadlineExceeded)).toBe(true);
  });

  it('fill trees of 4,096, and beyond four of them are refused', async () => {
    const gpu = byHand();
    const s = schedule(gpu.attest);
    const running = s.attest(rawHash(0), never());
    const busy = await gpu.next();
    const sharing = Array.from({ length: 4 * 4_096 }, (_, n) => s.attestInBatch(rawHash(n), 'all', never()));
    await expect(s.attestInBatch(rawHash(1), 'all', never())).rejects.toThrow(QueueFull);
    busy.resolve();
    await running;
    for (let n = 0; n < 4; n++) (await gpu.next()).resolve();
    const sizes = (await Promise.all(sharing)).map(({ batch }) => batch.tree_size);
    expect(new Set(sizes)).toEqual(new Set([4_096]));
    expect(gpu.signed).toHaveLength(5);
  });
});

describe('over the socket', () => {
  const rawOf = (n: number) => `{"request":{"n":${n}},"response":{},"timestamp":1700000000}`;

  test('the answers of a batch come in one frame, with token and evidence once; a canary of one is in no other', async () => {
    const folder = temporaryFolder();
    const sidecar = await startSidecar(folder);
    const ws = new WebSocket(`ws+unix://${sidecar.socket}:/`, { perMessageDeflate: false });
    const frames: Buffer[] = [];
    ws.on('message', (data, isBinary) => isBinary && frames.push(data as Buffer));
    await new Promise((resolve) => ws.once('message', resolve));
    const canary = randomBytes(16).toString('hex');
    const raws = Array.from({ length: 9 }, (_, n) =>
      n === 4 ? rawOf(4).replace('{}', `{"x":"${canary}"}`) : rawOf(n),
    );
    for (const [n, raw] of raws.entries()) ws.send(Buffer.from(`{"type":"attest","id":"${n}","batch":"all"}\n${raw}`));
    const answers = new Map<string, { nonce: string; batch: Batch }>();
    while (answers.size < raws.length) {
      await sleep(5);
      for (const frame of frames.splice(0)) {
        const { head, payload } = splitBinaryFrame(frame);
        const { nonce, tree_size } = attestedBatchHeadSchema.parse(JSON.parse(head));
        const rest = splitBinaryFrame(payload, payload.length);
        attestedMembersSchema.parse(JSON.parse(new TextDecoder().decode(rest.payload)));
        for (const { id, salt, leaf_index, path } of leavesSchema.parse(JSON.parse(rest.head)))
          answers.set(id, { nonce, batch: { salt, leaf_index, tree_size, path } });
        expect(frame.toString('latin1')).not.toContain(canary);
      }
    }
    const trees = Map.groupBy(answers, ([, { nonce }]) => nonce);
    for (const [nonce, its] of trees)
      expectTree(
        nonce,
        its.map(([id, { batch }]) => ({
          raw: createHash('sha256')
            .update(raws[Number(id)] as string)
            .digest('hex') as Nonce,
          batch,
        })),
      );
    expect(trees.size).toBeLessThan(raws.length);
    ws.terminate();
    await sidecar.close();
    folder.remove();
  });
});
