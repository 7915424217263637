// A concurrency limit with a bounded, fair queue, for a resource that serves few requests at once: the GPU or a thread.

export interface PermitLimits {
  /** Permits that are granted at the same time. */
  readonly max_permits: number;
  /** Requests in the queue, of all owners in total. */
  readonly max_waiting: number;
}

/** A request waits until it has a permit, however long that takes. */
export interface Permits {
  /**
   * Acquires a permit and calls `start`: at once, or when it is this owner's turn. Calls `refused` instead where the queue is full.
   * Returns a function that releases the permit or leaves the queue. A second call of it does nothing.
   */
  acquire(owner: string, start: () => void, refused: () => void): () => void;
  readonly waiting: number;
}

interface Request {
  readonly start: () => void;
  readonly refused: () => void;
  state: 'waiting' | 'started' | 'over';
}

/**
 * A free permit goes to the owner that holds the fewest. Owners that hold equally many take turns, and an owner's requests keep their
 * order. A full queue refuses the latest request of the owner with the most requests in it.
 */
export function createPermits({ max_permits, max_waiting }: PermitLimits): Permits {
  /** Waiting requests by owner, with the owners in the order of their turns. */
  const queues = new Map<string, Set<Request>>();
  /** Granted permits by owner. */
  const held = new Map<string, number>();
  let granted = 0;
  let waiting = 0;

  function count(owner: string, by: number): void {
    granted += by;
    const now = (held.get(owner) ?? 0) + by;
    if (now > 0) held.set(owner, now);
    else held.delete(owner);
  }

  function grant(owner: string, request: Request): void {
    request.state = 'started';
    count(owner, 1);
    request.start();
  }

  function enqueue(owner: string, request: Request): void {
    if (waiting >= max_waiting && !evictFor(owner)) {
      request.state = 'over';
      return request.refused();
    }
    queues.set(owner, (queues.get(owner) ?? new Set()).add(request));
    waiting++;
  }

  function dequeue(owner: string, request: Request): void {
    const queue = queues.get(owner);
    if (queue?.delete(request) !== true) return;
    waiting--;
    if (queue.size === 0) queues.delete(owner);
  }

  /** Refuses the latest request of the owner with the longest queue. Returns false where no owner has more in the queue than `owner`. */
  function evictFor(owner: string): boolean {
    let most = owner;
    let longest = queues.get(owner) ?? new Set<Request>();
    for (const [other, queue] of queues) if (queue.size > longest.size) [most, longest] = [other, queue];
    const latest = [...longest].at(-1);
    if (most === owner || latest === undefined) return false;
    dequeue(most, latest);
    latest.state = 'over';
    latest.refused();
    return true;
  }

  /** Grants a free permit. It checks no more owners than there are permits, because the first owner without one is chosen. */
  function next(): void {
    if (granted >= max_permits) return;
    let chosen: string | null = null;
    let fewest = Number.POSITIVE_INFINITY;
    for (const owner of queues.keys()) {
      const has = held.get(owner) ?? 0;
      if (has < fewest) [chosen, fewest] = [owner, has];
      if (fewest === 0) break;
    }
    if (chosen === null) return;
    const queue = queues.get(chosen) as Set<Request>;
    const [request] = queue as Iterable<Request>;
    dequeue(chosen, request as Request);
    // The owner's next turn comes after those of all others.
    if (queues.delete(chosen)) queues.set(chosen, queue);
    grant(chosen, request as Request);
  }

  return {
    get waiting() {
      return waiting;
    },
    acquire(owner, start, refused) {
      const request: Request = { start, refused, state: 'waiting' };
      if (granted < max_permits) grant(owner, request);
      else enqueue(owner, request);
      return () => {
        const { state } = request;
        request.state = 'over';
        if (state === 'waiting') dequeue(owner, request);
        if (state !== 'started') return;
        count(owner, -1);
        next();
      };
    },
  };
}
