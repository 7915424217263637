// The seeds of a gateway's keys for sealed requests, and which requests those keys have opened. Seeds are kept in memory only: here, and
// where gateways share them in their sidecar. Those of the previous session are kept too, for requests sealed before the current one began.
import { hash, randomBytes, randomInt } from 'node:crypto';
import * as z from 'zod';
import { MAX_SESSION_SECONDS } from '../../proto/attestation/statement.ts';
import { KEYS_OF_A_SESSION, SECRET_BYTES } from '../../sealed/index.ts';
import { Problem } from '../base/problem.ts';
import type { Connection } from '../base/store-connection.ts';

/** The secrets from which the keys of one session are derived. */
export interface Seed {
  /** Random: two gateways that make a seed at the same time make two. */
  readonly id: number;
  /** The identifier of its first key, in one byte. */
  readonly first_id: number;
  readonly secrets: readonly Uint8Array[];
}

/** Whether keys may open a request. `ended`: the keys are dropped; `replayed`: they have opened it before. */
export type Admission = 'admitted' | 'replayed' | 'ended';

interface Seeds {
  /** The newest first, which is for the next session. */
  readonly current: readonly Seed[];
  /** A verified session names the keys of this seed. Makes a seed for the next session. */
  named(id: number): void;
  /** Replaces the seeds. */
  set(seeds: readonly Seed[]): void;
  /** Admits each request once in this process to the keys of this seed, by its encapsulated key. */
  admit(id: number, enc: Uint8Array): Admission;
}

/** The seeds for the next session, the current one and the previous one. */
const KEPT = 3;
/** Limit for requests that the keys of one session open here. The digests of three sessions take at most 40 MB. */
const MAX_REQUESTS_OF_KEYS = 200_000;
/** Of the SHA-256 of an encapsulated key. Any two requests of a session collide with a probability below 10^-18. */
const DIGEST_BYTES = 12;

/** `change` is called with each new list, and sets it at once or after other gateways have agreed. */
export function createSeeds(change: (seeds: readonly Seed[]) => void, max_requests = MAX_REQUESTS_OF_KEYS): Seeds {
  // Random, so that after a restart an old identifier is rarely that of a new key.
  let current: readonly Seed[] = [newSeed(KEYS_OF_A_SESSION * randomInt(256))];
  /** Digests of the encapsulated keys that each seed's keys have opened. */
  const opened = new Map<number, Set<string>>();

  return {
    get current() {
      return current;
    },
    named(id) {
      const [newest] = current;
      if (newest?.id === id) change([seedAfter(newest), ...current].slice(0, KEPT));
    },
    set(seeds) {
      current = seeds;
      for (const id of [...opened.keys()]) if (!seeds.some((seed) => seed.id === id)) opened.delete(id);
    },
    admit(id, enc) {
      const seed = current.find((one) => one.id === id);
      if (seed === undefined) return 'ended';
      const before = opened.get(id) ?? new Set();
      opened.set(id, before);
      const digest = hash('sha256', enc, 'buffer').toString('latin1', 0, DIGEST_BYTES);
      if (before.has(digest)) return 'replayed';
      const admission = before.size < max_requests ? 'admitted' : 'ended';
      if (admission === 'admitted') before.add(digest);
      // The limit is reached: these keys are dropped, and the sidecar replaces the session that names them.
      if (before.size >= max_requests) change(without(seed));
      return admission;
    },
  };

  function without(full: Seed): readonly Seed[] {
    const rest = current.filter((seed) => seed !== full);
    return rest.length === 0 ? [seedAfter(full)] : rest;
  }
}

const seedAfter = ({ first_id }: Seed): Seed => newSeed(first_id + KEYS_OF_A_SESSION);

function newSeed(first_id: number): Seed {
  const secrets = Array.from({ length: KEYS_OF_A_SESSION }, () => randomBytes(SECRET_BYTES));
  return { id: randomInt(2 ** 48 - 1), first_id: first_id % 256, secrets };
}

// The text in which gateways hand seeds to each other.

const secretSchema = z.base64().transform((text) => Buffer.from(text, 'base64'));
const seedsSchema = z
  .array(
    z.strictObject({
      id: z.int().nonnegative(),
      first_id: z.int().min(0).max(255),
      secrets: z.array(secretSchema.refine((bytes) => bytes.length === SECRET_BYTES)).length(KEYS_OF_A_SESSION),
    }),
  )
  .min(1)
  .max(KEPT);

export function writeSeeds(seeds: readonly Seed[]): string {
  const texts = seeds.map(({ secrets, ...seed }) => ({
    ...seed,
    secrets: secrets.map((one) => Buffer.from(one).toString('base64')),
  }));
  return Buffer.from(JSON.stringify(texts)).toString('base64');
}

/** @throws {Error} without the text, which is secret. */
export function readSeeds(text: string): readonly Seed[] {
  try {
    return seedsSchema.parse(JSON.parse(Buffer.from(text, 'base64').toString('utf8')));
  } catch {
    throw new Error('the shared seeds have another form');
  }
}

/** Whether no gateway has admitted the request with this encapsulated key before. @throws {Problem} store_unavailable */
export type AdmitOnce = (enc: Uint8Array) => Promise<boolean>;

/** Longer than the keys of two sessions live, and than the ten minutes in which a request's date is accepted. */
const ADMITTED_MS = 2 * MAX_SESSION_SECONDS * 1000 + 600_000;
const RETRY_SECONDS = 2;

/** Admits each request once among the gateways that share a store. */
export function admitInStore(connection: Connection): AdmitOnce {
  return async (enc) => {
    const key = `countersign:sealed:${hash('sha256', enc, 'base64url')}`;
    const once = { condition: 'NX', expiration: { type: 'PX', value: ADMITTED_MS } } as const;
    try {
      return (await connection.run((client) => client.set(key, '1', once))) !== null;
    } catch (cause) {
      throw new Problem(
        'store_unavailable',
        'The store that knows which sealed requests came before cannot be reached.',
        {
          cause,
          retryAfterSeconds: RETRY_SECONDS,
        },
      );
    }
  };
}
