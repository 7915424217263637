// Keeps attestations in memory for clients that drop unknown members: by our id and by the completion's, for whoever asked.
import { LRUCache } from 'lru-cache';
import type { Owner } from './keys.ts';

/** The attestation's JSON text, or that its stream still runs. */
export type Kept = { readonly state: 'ready'; readonly json: string } | { readonly state: 'pending' };

export interface Store {
  begin(owner: Owner, id: string): void;
  /** The attestation is there; from now on the completion's own id finds it too. */
  keep(owner: Owner, id: string, completionId: string | null, json: string): void;
  drop(owner: Owner, id: string): void;
  find(owner: Owner, id: string): Kept | null;
  readonly usage: { readonly entries: number; readonly bytes: number };
}

const PENDING: Kept = { state: 'pending' };
/** What an entry costs beside its text. */
const ENTRY_BYTES = 512;

export function createStore(options: { attestation_ttl_ms: number; attestation_store_bytes: number }): Store {
  const cache = new LRUCache<string, Kept>({
    maxSize: options.attestation_store_bytes,
    // A text is one byte a character where it is ASCII; two is what V8 may take.
    sizeCalculation: (kept, key) => ENTRY_BYTES + 2 * key.length + (kept.state === 'ready' ? 2 * kept.json.length : 0),
    ttl: options.attestation_ttl_ms,
  });
  // Owners are base64url or a word, so a space cannot be part of one.
  const keyOf = (owner: Owner, id: string) => `${owner} ${id}`;
  return {
    // A stream may run for longer than attestations are kept.
    begin: (owner, id) => void cache.set(keyOf(owner, id), PENDING, { ttl: 0 }),
    keep(owner, id, completionId, json) {
      const kept: Kept = { state: 'ready', json };
      cache.set(keyOf(owner, id), kept);
      if (completionId !== null) cache.set(keyOf(owner, completionId), kept);
    },
    drop: (owner, id) => void cache.delete(keyOf(owner, id)),
    find: (owner, id) => cache.get(keyOf(owner, id)) ?? null,
    get usage() {
      return { entries: cache.size, bytes: cache.calculatedSize };
    },
  };
}
