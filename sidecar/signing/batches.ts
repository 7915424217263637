// Batches: requests that allow it wait together for the GPU and share one nonce, as the leaves of a Merkle tree.
import { setImmediate } from 'node:timers/promises';
import { type Batch, MAX_LEAVES } from '../../proto/attestation/batch.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { BatchGroup, Phases } from '../../proto/frames.ts';
import type { Collected } from '../common/attester.ts';
import { withDeadline } from '../common/lock.ts';
import { deadlineExceeded, QueueFull } from './queue.ts';
import { type Leaf, makeLeaf, makeTree } from './tree.ts';

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
