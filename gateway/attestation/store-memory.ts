// Keeps attestations in this process's memory, up to a number of bytes and for a time. The oldest are evicted first.
import { LRUCache } from 'lru-cache';
import type { Owner } from '../keys/keys.ts';
import type { InBatch, Kept, Members, Store } from './interfaces.ts';

// The store of attestations, for clients that drop unknown members. An attestation is found by its owner, under our id and the
// completion's.

const wholeOf = ({ start, members, end }: InBatch): Buffer<ArrayBuffer> => Buffer.concat([start, members.json, end]);

// Memory for attestations, in slabs that are reused when all texts in them are released. Single buffers would count as external memory, and
// thousands a second would make the garbage collector run without need.

interface Allocation {
  /** Bytes that the allocation uses, including the rest of the previous slab when that was too small. */
  readonly bytes: number;
  /** Returns a copy, because the slab may be reused. */
  read(): Buffer<ArrayBuffer>;
  /** Must be called once. */
  free(): void;
}

const SLAB_BYTES = 1024 * 1024;
/** A larger text has a buffer of its own, so that little space is lost in slabs. */
const MAX_TEXT_BYTES = SLAB_BYTES / 8;

class Slab {
  readonly memory = Buffer.allocUnsafeSlow(SLAB_BYTES);
  used = 0;
  texts = 0;
}

class Slabs {
  #current: Slab | null = null;
  #empty: Slab[] = [];

  allocate(text: Buffer<ArrayBuffer>): Allocation {
    const { length } = text;
    if (length > MAX_TEXT_BYTES) return { bytes: length, read: () => text, free: () => {} };
    let left_over = 0;
    let slab = this.#current;
    if (slab === null || slab.used + length > SLAB_BYTES) {
      if (slab !== null) left_over = SLAB_BYTES - slab.used;
      slab = this.#empty.pop() ?? new Slab();
      this.#current = slab;
    }
    return new SlabAllocation(this, slab, text, left_over);
  }

  freed(slab: Slab): void {
    if (--slab.texts > 0) return;
    slab.used = 0;
    if (slab !== this.#current) this.#empty.push(slab);
  }
}

class SlabAllocation implements Allocation {
  readonly bytes: number;
  readonly #slabs: Slabs;
  readonly #slab: Slab;
  readonly #from: number;
  readonly #to: number;

  constructor(slabs: Slabs, slab: Slab, text: Buffer, left_over: number) {
    this.#slabs = slabs;
    this.#slab = slab;
    this.bytes = text.length + left_over;
    this.#from = slab.used;
    slab.memory.set(text, slab.used);
    slab.used += text.length;
    this.#to = slab.used;
    slab.texts++;
  }

  read(): Buffer<ArrayBuffer> {
    return Buffer.from(this.#slab.memory.subarray(this.#from, this.#to));
  }

  free(): void {
    this.#slabs.freed(this.#slab);
  }
}

export interface MemoryStore extends Store {
  find(owner: Owner, id: string): Kept | null;
}

const PENDING = { state: 'pending' } as const;

/** An attestation. It is stored under the gateway's id; under each id of the completion, the key of that entry is stored. */
interface Entry {
  readonly allocation: Allocation;
  /** For a batch: the shared members, and their offset in the text of the allocation. */
  readonly shared: { readonly members: Members; readonly at: number } | null;
}
/** Bytes that an entry costs beside its text. */
const ENTRY_BYTES = 512;

/** The entry's share of the members that its batch has in common, in bytes. */
const shareOf = ({ shared }: Entry): number =>
  shared === null ? 0 : Math.ceil(shared.members.json.length / shared.members.sharing);

function textOf({ allocation, shared }: Entry): Buffer<ArrayBuffer> {
  const own = allocation.read();
  if (shared === null) return own;
  const { members, at } = shared;
  return wholeOf({ start: own.subarray(0, at), members, end: own.subarray(at) });
}

export function createMemoryStore(options: {
  attestation_ttl_ms: number;
  attestation_store_bytes: number;
}): MemoryStore {
  const slabs = new Slabs();
  const cache = new LRUCache<string, Entry | string>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (entry, key) =>
      ENTRY_BYTES +
      2 * key.length +
      (typeof entry === 'string' ? 2 * entry.length : entry.allocation.bytes + shareOf(entry)),
    ttl: options.attestation_ttl_ms,
    dispose: (entry) => free(entry),
  });
  const free = (entry: Entry | string): void => {
    if (typeof entry !== 'string') entry.allocation.free();
  };
  const allocated = (attestation: Buffer<ArrayBuffer> | InBatch): Entry => {
    if (!('members' in attestation)) return { allocation: slabs.allocate(attestation), shared: null };
    const { start, members, end } = attestation;
    const allocation = slabs.allocate(Buffer.concat([start, end]));
    return { allocation, shared: { members, at: start.length } };
  };
  // An owner is base64url or one word, so it contains no space.
  const keyOf = (owner: Owner, id: string) => `${owner} ${id}`;
  /** Keys of responses that are not complete, each with the key of our id. They are kept apart because a response may run longer than the cache keeps its entries. */
  const pending = new Map<string, string>();
  /** The keys of the completion's ids, by the key of our id. */
  const names = new Map<string, Set<string>>();
  /** Removes the pending keys of a response, and returns those of its completion's ids. */
  const settle = (key: string): ReadonlySet<string> => {
    const named = names.get(key) ?? new Set();
    for (const one of [key, ...named]) if (pending.get(one) === key) pending.delete(one);
    names.delete(key);
    return named;
  };
  return {
    begin(owner, id) {
      const key = keyOf(owner, id);
      pending.set(key, key);
    },
    name(owner, id, completionId) {
      const [key, named] = [keyOf(owner, id), keyOf(owner, completionId)];
      names.set(key, (names.get(key) ?? new Set()).add(named));
      if (!cache.has(named) && !pending.has(named)) pending.set(named, key);
    },
    keep(owner, id, completionId, attestation) {
      const key = keyOf(owner, id);
      const named = new Set(settle(key));
      if (completionId !== null) named.add(keyOf(owner, completionId));
      named.delete(key);
      const entry = allocated(attestation);
      cache.set(key, entry);
      // The cache does not take an entry that is larger than its limit.
      if (cache.peek(key) !== entry) return free(entry);
      for (const one of named) cache.set(one, key);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      settle(key);
      cache.delete(key);
    },
    find(owner, id) {
      // `get` would renew the entry: frequent reads would keep it, and its slab, from being evicted.
      const key = keyOf(owner, id);
      const found = cache.peek(key);
      const entry = typeof found === 'string' ? cache.peek(found) : found;
      if (typeof entry === 'object') return { state: 'ready', json: textOf(entry) };
      return pending.has(key) ? PENDING : null;
    },
    reachable: null,
    get usage() {
      return { entries: cache.size + pending.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
