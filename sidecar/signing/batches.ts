// Batches: requests that allow it wait together for the GPU and share one nonce, as the leaves of a Merkle tree.

import { hash, randomBytes, randomInt } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { type Batch, leafMessage, MAX_LEAVES, nodeMessage, nonceMessage } from '../../proto/attestation/batch.ts';
import type { BatchGroup, Phases } from '../../proto/attestation/frames.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { Collected } from '../common/attester.ts';
import { withDeadline } from '../common/lock.ts';
import { deadlineExceeded, QueueFull } from './queue.ts';

/** Requests of all gateways that may wait in batches: a few collections' worth. */
const MAX_WAITING_LEAVES = 4 * MAX_LEAVES;

/** The attester's result, checked, and how long each phase took. */
export interface Timed extends Collected {
  /** The nonce that the devices signed. */
  readonly nonce: Nonce;
  readonly phases: Phases;
}

/** The same for one leaf of a batch. All leaves share the same attestation token and evidence objects. */
export interface TimedLeaf extends Timed {
  readonly batch: Batch;
}

/** Has a nonce signed. `queued_ms`: when its oldest request was queued, by performance.now(). */
type Sign = (nonce: Nonce, queued_ms: number) => Promise<Timed>;

interface BatchesOptions {
  /** From a request's arrival to its result. */
  readonly deadline_ms: number;
  /** Runs `work` when the GPU is free for it, in order of arrival. */
  readonly run: (work: (signal: AbortSignal, sign: Sign) => Promise<void>, cancel: AbortSignal) => Promise<void>;
}

interface Waiting extends Leaf {
  readonly arrived_ms: number;
  resolve(timed: TimedLeaf): void;
  reject(reason: unknown): void;
}

interface OpenBatch {
  readonly abort: AbortController;
  /** Requests that still wait for a result, before the root is made and after. */
  readonly leaves: Set<Waiting>;
  closed: boolean;
}

interface Batches {
  /**
   * A batch enters the queue with its first request, like any other attestation: the oldest is served first.
   * @param digest the SHA-256 of raw, in hex.
   * @throws {AttesterError} {QueueFull} {DeadlineExceeded}; whatever `cancel` was aborted with.
   */
  attest(digest: Nonce, group: BatchGroup, cancel: AbortSignal): Promise<TimedLeaf>;
}

export function createBatches({ deadline_ms, run }: BatchesOptions): Batches {
  const open = new Map<BatchGroup, OpenBatch>();
  let waiting = 0;

  /** From here on a cancelled leaf stays in the tree. Its salt is dropped, so that nobody can open it. */
  function close(group: BatchGroup, batch: OpenBatch): void {
    if (open.get(group) === batch) open.delete(group);
    if (!batch.closed) waiting -= batch.leaves.size;
    batch.closed = true;
  }

  function begin(group: BatchGroup): OpenBatch {
    const queued_ms = performance.now();
    const batch: OpenBatch = { abort: new AbortController(), leaves: new Set(), closed: false };
    open.set(group, batch);
    run(async (signal, sign) => {
      // Requests of the same event-loop turn join the batch; no request waits longer for others.
      await setImmediate();
      close(group, batch);
      signal.throwIfAborted();
      const begun_ms = performance.now();
      const { nonce, proofs } = makeTree(batch.leaves);
      const timed = await sign(nonce, queued_ms);
      for (const leaf of batch.leaves) {
        const phases = { ...timed.phases, queue_ms: Math.max(0, begun_ms - leaf.arrived_ms) };
        leaf.resolve({ ...timed, phases, batch: proofs.get(leaf) as Batch });
      }
    }, batch.abort.signal).catch((error: unknown) => {
      close(group, batch);
      for (const leaf of batch.leaves) leaf.reject(error);
    });
    return batch;
  }

  return {
    attest(digest, group, cancel) {
      if (waiting >= MAX_WAITING_LEAVES) return Promise.reject(new QueueFull());
      const latest = open.get(group);
      const batch = latest !== undefined && latest.leaves.size < MAX_LEAVES ? latest : begin(group);
      const { promise, resolve, reject } = Promise.withResolvers<TimedLeaf>();
      const leaf: Waiting = { ...makeLeaf(digest), arrived_ms: performance.now(), resolve, reject };
      batch.leaves.add(leaf);
      waiting++;
      return withDeadline(promise, deadline_ms, deadlineExceeded, cancel, (reason) => {
        if (!batch.closed) waiting--;
        batch.leaves.delete(leaf);
        if (batch.leaves.size > 0) return;
        // No request may join the batch any more.
        close(group, batch);
        batch.abort.abort(reason);
      });
    },
  };
}

// The Merkle tree of a batch: salts, hashes, the nonce that the GPU signs, and each leaf's path (RFC 9162 §2.1, proto/attestation/batch.ts).

const SALT_BYTES = 32;
const sha256 = (bytes: Uint8Array): Buffer => hash('sha256', bytes, 'buffer');

/** A response that shares a nonce: salt and hash in hex. The hash is made on arrival, so that closing a batch is quick. */
interface Leaf {
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
