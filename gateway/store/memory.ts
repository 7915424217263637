// Keeps attestations in this process's memory, up to a number of bytes and for a time. The oldest are forgotten first.
import { LRUCache } from 'lru-cache';
import type { Owner } from '../keys/caller.ts';
import { type Place, Slabs } from './slabs.ts';
import type { Kept, Store } from './store.ts';

export interface MemoryStore extends Store {
  find(owner: Owner, id: string): Kept | null;
}

const PENDING = { state: 'pending' } as const;

/** A text in its place, and under how many names it is kept: under none, its place is free. */
interface Shelved {
  readonly state: 'ready';
  readonly place: Place;
  names: number;
}
/** What an entry costs beside its text. */
const ENTRY_BYTES = 512;

export function createMemoryStore(options: {
  attestation_ttl_ms: number;
  attestation_store_bytes: number;
}): MemoryStore {
  const slabs = new Slabs();
  const cache = new LRUCache<string, typeof PENDING | Shelved>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (kept, key) => ENTRY_BYTES + 2 * key.length + (kept.state === 'ready' ? kept.place.bytes : 0),
    ttl: options.attestation_ttl_ms,
    dispose: (kept) => kept.state === 'ready' && forget(kept),
  });
  const forget = (kept: Shelved): void => {
    if (--kept.names === 0) kept.place.free();
  };
  const shelve = (key: string, kept: Shelved): void => {
    cache.set(key, kept);
    // What is larger than all the room is not kept.
    if (cache.peek(key) === kept) kept.names++;
  };
  // Owners are base64url or a word, so a space cannot be part of one.
  const keyOf = (owner: Owner, id: string) => `${owner} ${id}`;
  /** Of streams that run: from our id to the completion's. */
  const names = new Map<string, string>();
  return {
    // A stream may run for longer than attestations are kept.
    begin: (owner, id) => void cache.set(keyOf(owner, id), PENDING, { ttl: 0 }),
    name(owner, id, completionId) {
      const key = keyOf(owner, completionId);
      if (cache.has(key)) return;
      cache.set(key, PENDING, { ttl: 0 });
      names.set(keyOf(owner, id), key);
    },
    keep(owner, id, completionId, json) {
      names.delete(keyOf(owner, id));
      // One name more, so that it stays while it gets its own.
      const kept: Shelved = { state: 'ready', place: slabs.put(json), names: 1 };
      shelve(keyOf(owner, id), kept);
      if (completionId !== null) shelve(keyOf(owner, completionId), kept);
      forget(kept);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      const named = names.get(key);
      names.delete(key);
      cache.delete(key);
      if (named !== undefined && cache.peek(named)?.state === 'pending') cache.delete(named);
    },
    find(owner, id) {
      // Not `get`, which would keep what is read often from its turn to be forgotten, and with it the slab it lies in.
      const kept = cache.peek(keyOf(owner, id));
      return kept?.state === 'ready' ? { state: 'ready', json: kept.place.read() } : (kept ?? null);
    },
    get usage() {
      return { entries: cache.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
