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
  const cache = new LRUCache<string, Shelved>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (kept, key) => ENTRY_BYTES + 2 * key.length + kept.place.bytes,
    ttl: options.attestation_ttl_ms,
    dispose: (kept) => forget(kept),
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
  /** Of answers that are not complete. One may take longer than attestations are kept, or while the room fills with others. */
  const pending = new Set<string>();
  /** Of those: from our id to the completion's. */
  const names = new Map<string, string>();
  const ended = (key: string): void => {
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
      ended(keyOf(owner, id));
      // One name more, so that it stays while it gets its own.
      const kept: Shelved = { place: slabs.put(json), names: 1 };
      shelve(keyOf(owner, id), kept);
      if (completionId !== null) shelve(keyOf(owner, completionId), kept);
      forget(kept);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      ended(key);
      cache.delete(key);
    },
    find(owner, id) {
      // Not `get`, which would keep what is read often from its turn to be forgotten, and with it the slab it lies in.
      const key = keyOf(owner, id);
      const kept = cache.peek(key);
      if (kept !== undefined) return { state: 'ready', json: kept.place.read() };
      return pending.has(key) ? PENDING : null;
    },
    get usage() {
      return { entries: cache.size + pending.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
