// Makes the seeds of a gateway's keys for sealed requests, in its process or in the primary of several workers. Seeds are kept in memory
// only. Those of the previous session are kept too, for requests that were sealed before the current one began.
import { hash, randomBytes, randomInt } from 'node:crypto';
import { KEYS_OF_A_SESSION, SECRET_BYTES } from '../../sealed/index.ts';

/** The secrets from which the keys of one session are derived. */
export interface Seed {
  /** Grows with each seed. */
  readonly n: number;
  /** The identifier of its first key, in one byte. */
  readonly first_id: number;
  readonly secrets: readonly Uint8Array[];
}

/** Whether keys may open a request. `ended`: the keys are dropped; `replayed`: they have opened it before. */
export type Admission = 'admitted' | 'replayed' | 'ended';

export interface Seeds {
  /** The newest first, which is for the next session. */
  readonly current: readonly Seed[];
  /** A verified session names the keys of seed `n`. Makes a seed for the next session. */
  named(n: number): void;
  /** Admits each request once to the keys of seed `n`, by its encapsulated key. */
  admit(n: number, enc: Uint8Array): Admission;
}

/** The seeds for the next session, the current one and the previous one. */
const KEPT = 3;
/** Limit for requests that the keys of one session open. The digests of three sessions take at most 40 MB. */
const MAX_REQUESTS_OF_KEYS = 200_000;
/** Of the SHA-256 of an encapsulated key. Any two requests of a session collide with a probability below 10^-18. */
const DIGEST_BYTES = 12;

/** `changed` is called with each new list. */
export function createSeeds(changed: (seeds: readonly Seed[]) => void, max_requests = MAX_REQUESTS_OF_KEYS): Seeds {
  // Random, so that after a restart an old identifier is rarely that of a new key.
  let n = randomInt(256);
  let current = [newSeed()];
  /** Digests of the encapsulated keys that each seed's keys have opened. */
  const opened = new Map<number, Set<string>>();

  function newSeed(): Seed {
    const first_id = (++n * KEYS_OF_A_SESSION) % 256;
    return { n, first_id, secrets: Array.from({ length: KEYS_OF_A_SESSION }, () => randomBytes(SECRET_BYTES)) };
  }

  function set(seeds: readonly Seed[]): void {
    current = [...seeds];
    for (const ended of [...opened.keys()].filter((one) => !seeds.some((seed) => seed.n === one))) opened.delete(ended);
    changed(current);
  }

  return {
    get current() {
      return current;
    },
    named(number) {
      if (current[0]?.n === number) set([newSeed(), ...current].slice(0, KEPT));
    },
    admit(number, enc) {
      if (!current.some((seed) => seed.n === number)) return 'ended';
      const before = opened.get(number) ?? new Set();
      opened.set(number, before);
      const digest = hash('sha256', enc, 'buffer').toString('latin1', 0, DIGEST_BYTES);
      if (before.has(digest)) return 'replayed';
      before.add(digest);
      // The limit is reached: these keys are dropped, and the sidecar replaces the session that names them.
      if (before.size >= max_requests) set(without(number));
      return 'admitted';
    },
  };

  function without(full: number): readonly Seed[] {
    const rest = current.filter((seed) => seed.n !== full);
    return rest.length === 0 ? [newSeed()] : rest;
  }
}
