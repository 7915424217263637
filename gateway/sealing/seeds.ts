// Whoever makes the keys of sealed requests for a gateway: its process, or the primary of several workers. Keys are handed on as the
// secrets that they are made of. They live in memory alone and end with the session that names them, or with the one after it.
import { hash, randomBytes, randomInt } from 'node:crypto';
import { KEYS_OF_A_SESSION, SECRET_BYTES } from '../../sealed/index.ts';

/** What the keys of one session are made of. */
export interface Seed {
  /** Grows with each seed. */
  readonly n: number;
  /** The identifier of its first key, in one byte. */
  readonly first_id: number;
  readonly secrets: readonly Uint8Array[];
}

/** Whether keys may open a request: `ended`: they are none any more; `replayed`: they opened it before. */
export type Admission = 'admitted' | 'replayed' | 'ended';

export interface Seeds {
  /** The newest first: it is for the next session. */
  readonly current: readonly Seed[];
  /** A session that was checked names the keys of seed `n`: the next one has its own. */
  named(n: number): void;
  /** Asks for a request by its encapsulated key, which the keys of seed `n` open. */
  admit(n: number, enc: Uint8Array): Admission;
}

/** The keys for the next session, those of the current one, and those of the one before. */
const KEPT = 3;
/** Requests that the keys of one session open. With another 2 sets of them, at most 40 MB. */
export const MAX_REQUESTS_OF_KEYS = 200_000;
/** Of the SHA-256 of an encapsulated key. Two requests of one session have the same in one of 10^17 cases. */
const DIGEST_BYTES = 12;

/** `changed` is called with each new list. */
export function createSeeds(changed: (seeds: readonly Seed[]) => void, max_requests = MAX_REQUESTS_OF_KEYS): Seeds {
  // After a restart, an identifier of before should be one of no key.
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
    named(named) {
      if (current[0]?.n === named) set([newSeed(), ...current].slice(0, KEPT));
    },
    admit(by, enc) {
      if (!current.some((seed) => seed.n === by)) return 'ended';
      const before = opened.get(by) ?? new Set();
      opened.set(by, before);
      const digest = hash('sha256', enc, 'buffer').toString('latin1', 0, DIGEST_BYTES);
      if (before.has(digest)) return 'replayed';
      before.add(digest);
      // Full: these keys end, and with them the session that names them.
      if (before.size >= max_requests) set(endedEarly(by));
      return 'admitted';
    },
  };

  function endedEarly(ended: number): readonly Seed[] {
    const left = current.filter((seed) => seed.n !== ended);
    return left.length === 0 ? [newSeed()] : left;
  }
}
