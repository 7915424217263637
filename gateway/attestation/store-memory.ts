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

/** An allocation and the number of ids that refer to it. It is freed when no id does. */
interface Entry {
  readonly allocation: Allocation;
  /** For a batch: the shared members, and their offset in the text of the allocation. */
  readonly shared: { readonly members: Members; readonly at: number } | null;
  references: number;
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
  const cache = new LRUCache<string, Entry>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (entry, key) => ENTRY_BYTES + 2 * key.length + entry.allocation.bytes + shareOf(entry),
    ttl: options.attestation_ttl_ms,
    dispose: (entry) => release(entry),
  });
  const release = (entry: Entry): void => {
    if (--entry.references === 0) entry.allocation.free();
  };
  const allocated = (attestation: Buffer<ArrayBuffer> | InBatch): Omit<Entry, 'references'> => {
    if (!('members' in attestation)) return { allocation: slabs.allocate(attestation), shared: null };
    const { start, members, end } = attestation;
    const allocation = slabs.allocate(Buffer.concat([start, end]));
    return { allocation, shared: { members, at: start.length } };
  };
  const insert = (key: string, entry: Entry): void => {
    cache.set(key, entry);
    // The cache does not take an entry that is larger than its limit.
    if (cache.peek(key) === entry) entry.references++;
  };
  // An owner is base64url or one word, so it contains no space.
  const keyOf = (owner: Owner, id: string) => `${owner} ${id}`;
  /** Keys of responses that are not complete. They are kept apart because a response may run longer than the cache keeps its entries. */
  const pending = new Set<string>();
  /** The pending key of the completion's id, by the key of our id. */
  const names = new Map<string, string>();
  const clearPending = (key: string): void => {
    const named = names.get(key);
    if (named !== undefined) pending.delete(named);
    names.delete(key);
    pending.delete(key);
  };
  return {
    begin: (owner, id) => void pending.add(keyOf(owner, id)),
    name(owner, id, completionId) {
      const key = keyOf(owner, completionId);
      if (cache.has(key) || pending.has(key)) return;
      pending.add(key);
      names.set(keyOf(owner, id), key);
    },
    keep(owner, id, completionId, attestation) {
      clearPending(keyOf(owner, id));
      // This reference keeps the entry alive until its ids are inserted.
      const entry: Entry = { ...allocated(attestation), references: 1 };
      insert(keyOf(owner, id), entry);
      if (completionId !== null) insert(keyOf(owner, completionId), entry);
      release(entry);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      clearPending(key);
      cache.delete(key);
    },
    find(owner, id) {
      // `get` would renew the entry: frequent reads would keep it, and its slab, from being evicted.
      const key = keyOf(owner, id);
      const entry = cache.peek(key);
      if (entry !== undefined) return { state: 'ready', json: textOf(entry) };
      return pending.has(key) ? PENDING : null;
    },
    reachable: null,
    get usage() {
      return { entries: cache.size + pending.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
