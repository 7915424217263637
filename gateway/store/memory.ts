// Keeps attestations in this process's memory, up to a number of bytes and for a time.
import { LRUCache } from 'lru-cache';
import type { Owner } from '../keys/caller.ts';
import type { Kept, Store } from './store.ts';

export interface MemoryStore extends Store {
  find(owner: Owner, id: string): Kept | null;
}

const PENDING: Kept = { state: 'pending' };
/** What an entry costs beside its text. */
const ENTRY_BYTES = 512;

export function createMemoryStore(options: {
  attestation_ttl_ms: number;
  attestation_store_bytes: number;
}): MemoryStore {
  const cache = new LRUCache<string, Kept>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (kept, key) => ENTRY_BYTES + 2 * key.length + (kept.state === 'ready' ? kept.json.length : 0),
    ttl: options.attestation_ttl_ms,
  });
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
      const kept: Kept = { state: 'ready', json };
      cache.set(keyOf(owner, id), kept);
      if (completionId !== null) cache.set(keyOf(owner, completionId), kept);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      const named = names.get(key);
      names.delete(key);
      cache.delete(key);
      if (named !== undefined && cache.peek(named)?.state === 'pending') cache.delete(named);
    },
    find: (owner, id) => cache.get(keyOf(owner, id)) ?? null,
    get usage() {
      return { entries: cache.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
