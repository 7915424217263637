// Keeps attestations in this process's memory, up to a number of bytes and for a time. The oldest are forgotten first.
import { LRUCache } from 'lru-cache';
import type { Owner } from '../keys/keys.ts';

// Where attestations are kept for clients that drop unknown members: by our id and by the completion's, for whoever asked.

/** The attestation's JSON in UTF-8, or that its stream still runs. Bytes lie outside of the heap that is collected. */
export type Kept = { readonly state: 'ready'; readonly json: Buffer<ArrayBuffer> } | { readonly state: 'pending' };

/** Keeping is a service beside the answer, which carries its attestation anyway: only `find` can fail, and it says so. */
export interface Store {
  begin(owner: Owner, id: string): void;
  /** The completion's own id is known while its stream runs. What is kept under it already, from another answer, stays. */
  name(owner: Owner, id: string, completionId: string): void;
  /** The attestation is there; from now on the completion's own id finds it too. */
  keep(owner: Owner, id: string, completionId: string | null, json: Buffer<ArrayBuffer>): void;
  drop(owner: Owner, id: string): void;
  /** At once where it is in this process's memory. @throws {Problem} store_unavailable */
  find(owner: Owner, id: string): Kept | null | Promise<Kept | null>;
  /** Of this process's memory. */
  readonly usage: { readonly entries: number; readonly bytes: number };
  close(): void | Promise<void>;
}

// Memory for kept texts, in slabs that are used again when every text in them is forgotten. A text in memory of its own would
// be counted by the garbage collector: thousands a second make it look through the whole heap, for nothing.

interface Allocation {
  /** What it takes, with the rest of the slab before, which was too small for it. */
  readonly bytes: number;
  /** A copy: the place may be another text's soon. */
  read(): Buffer<ArrayBuffer>;
  /** Once. */
  free(): void;
}

const SLAB_BYTES = 1024 * 1024;
/** A larger text has memory of its own, so that little is left over in slabs. */
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

/** A text in its place, and under how many names it is kept: under none, its place is free. */
interface Entry {
  readonly allocation: Allocation;
  references: number;
}
/** What an entry costs beside its text. */
const ENTRY_BYTES = 512;

export function createMemoryStore(options: {
  attestation_ttl_ms: number;
  attestation_store_bytes: number;
}): MemoryStore {
  const slabs = new Slabs();
  const cache = new LRUCache<string, Entry>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (entry, key) => ENTRY_BYTES + 2 * key.length + entry.allocation.bytes,
    ttl: options.attestation_ttl_ms,
    dispose: (entry) => release(entry),
  });
  const release = (entry: Entry): void => {
    if (--entry.references === 0) entry.allocation.free();
  };
  const insert = (key: string, entry: Entry): void => {
    cache.set(key, entry);
    // What is larger than all the room is not kept.
    if (cache.peek(key) === entry) entry.references++;
  };
  // Owners are base64url or a word, so a space cannot be part of one.
  const keyOf = (owner: Owner, id: string) => `${owner} ${id}`;
  /** Of answers that are not complete. One may take longer than attestations are kept, or while the room fills with others. */
  const pending = new Set<string>();
  /** Of those: from our id to the completion's. */
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
    keep(owner, id, completionId, json) {
      clearPending(keyOf(owner, id));
      // One name more, so that it stays while it gets its own.
      const entry: Entry = { allocation: slabs.allocate(json), references: 1 };
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
      // Not `get`, which would keep what is read often from its turn to be forgotten, and with it the slab it lies in.
      const key = keyOf(owner, id);
      const entry = cache.peek(key);
      if (entry !== undefined) return { state: 'ready', json: entry.allocation.read() };
      return pending.has(key) ? PENDING : null;
    },
    get usage() {
      return { entries: cache.size + pending.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
