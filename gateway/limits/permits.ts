// A concurrency limit with a bounded, fair queue: for what serves few at once, the GPU or a thread.

export interface PermitLimits {
  /** Held at once. */
  readonly max_permits: number;
  /** Requests in the queue, of all owners together. */
  readonly max_waiting: number;
}

/** A permit is never assumed: whoever has none waits, for as long as it will. */
export interface Permits {
  /**
   * Asks for a permit, and calls `start` when it is there: at once, or when it is this owner's turn. `refused` is called
   * instead where the queue is full. Returns how to release the permit, or to leave the queue: to be called once all is over; twice counts once.
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
 * A permit that is free goes to the owner that holds the fewest, in turns where several do, and to an owner's requests in
 * the order in which they came. A full queue refuses the latest request of whoever has most in it.
 */
export function createPermits({ max_permits, max_waiting }: PermitLimits): Permits {
  /** Of each owner that waits, in the order of their turns. */
  const queues = new Map<string, Set<Request>>();
  /** Of each owner that has some. */
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

  /** False: nobody has more in the queue than `owner`. */
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

  /** As many owners are looked at as there are permits, for one that holds none is next. */
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
    // Its next turn comes after everybody else's.
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
