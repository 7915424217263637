// Keeps attestations in this process's memory, up to a number of bytes and for a time. The oldest are evicted first.
import { LRUCache } from 'lru-cache';
import type { Owner } from '../keys/keys.ts';
import { compactJson, wholeJson } from './bundle.ts';
import type { AttestationParts, Kept, Store } from './interfaces.ts';

// The store of attestations, for clients that drop unknown members. An attestation is found by its owner, under our id and the
// completion's.

export interface MemoryStore extends Store {
  find(owner: Owner, id: string): Kept | null;
  findBundle(sha256: string): Buffer<ArrayBuffer> | null;
}

const PENDING = { state: 'pending' } as const;

/**
 * An attestation, or a bundle by its hash. An attestation is stored under the gateway's id; under each id of the completion, the key of
 * that entry is stored.
 */
type Entry = { readonly proof: AttestationParts; readonly compact: boolean } | Buffer<ArrayBuffer>;
/** Bytes that an entry costs beside its text. */
const ENTRY_BYTES = 512;

const bytesOf = (entry: Entry): number =>
  Buffer.isBuffer(entry) ? entry.length : entry.proof.start.length + entry.proof.own.length;

/** A small Buffer is a part of memory that others share, and would keep all of it: each entry gets its own. */
const copied = (bytes: Uint8Array): Buffer<ArrayBuffer> => Buffer.from(new Uint8Array(bytes).buffer);

export function createMemoryStore(options: {
  attestation_ttl_ms: number;
  attestation_store_bytes: number;
}): MemoryStore {
  const cache = new LRUCache<string, Entry | string>({
    maxSize: options.attestation_store_bytes,
    sizeCalculation: (entry, key) =>
      ENTRY_BYTES + 2 * key.length + (typeof entry === 'string' ? 2 * entry.length : bytesOf(entry)),
    ttl: options.attestation_ttl_ms,
  });
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
    keep(owner, id, completionId, proof, compact) {
      const key = keyOf(owner, id);
      const named = new Set(settle(key));
      if (completionId !== null) named.add(keyOf(owner, completionId));
      named.delete(key);
      // Before the attestation, which needs it: the oldest entry is evicted first. A hash has no space, so it is no key of an attestation.
      if (proof.bundle !== null) cache.set(proof.bundle.sha256, proof.bundle.json);
      const entry = { proof: { ...proof, start: copied(proof.start) }, compact };
      cache.set(key, entry);
      // The cache does not take an entry that is larger than its limit.
      if (cache.peek(key) !== entry) return;
      for (const one of named) cache.set(one, key);
    },
    drop(owner, id) {
      const key = keyOf(owner, id);
      settle(key);
      cache.delete(key);
    },
    find(owner, id) {
      // `get` would renew the entry: frequent reads would keep it from being evicted.
      const key = keyOf(owner, id);
      const found = cache.peek(key);
      const entry = typeof found === 'string' ? cache.peek(found) : found;
      if (typeof entry === 'object' && 'proof' in entry)
        return { state: 'ready', json: entry.compact ? compactJson(entry.proof) : wholeJson(entry.proof) };
      return pending.has(key) ? PENDING : null;
    },
    findBundle(sha256) {
      const entry = cache.peek(sha256);
      return Buffer.isBuffer(entry) ? entry : null;
    },
    reachable: null,
    get usage() {
      return { entries: cache.size + pending.size, bytes: cache.calculatedSize };
    },
    close: () => cache.clear(),
  };
}
