// The keys that open sealed requests, in this process: made of the seeds, told to the sidecar, published as the current session names them.
import type { Logger } from 'pino';
import { where } from '../../proto/log.ts';
import { readStatement } from '../../proto/statement.ts';
import { isFor, makeKeys, type OpeningKey, type OpeningKeys, type RequestHeader } from '../../sealed/index.ts';
import { type Admission, createSeeds, type Seed } from './seeds.ts';

/** Where the seeds are: in this process, or in the primary of several workers. */
export interface SeedSource {
  /** Begins to hand on seeds, now and at each change. */
  start(changed: (seeds: readonly Seed[]) => void): void;
  named(n: number): void;
  /** null: nobody knows now. */
  admit(n: number, enc: Uint8Array): Admission | Promise<Admission | null>;
}

export interface SealingKeys {
  /** A sidecar with a processor has come: from now on there are keys. */
  start(): void;
  /** The statement of the session that answers are signed in. */
  sessionNames(statement: string): void;
  /** The document of the keys that the current session names; null while it names none of ours. */
  published(statement: string | null): Uint8Array | null;
  /** Resolves when there are keys, and at the latest after `wait_ms`: a worker that has just started does not have them yet. */
  ready(wait_ms: number): Promise<void>;
  /** null: no key is for this request. */
  find(header: RequestHeader): FoundKey | null;
  /** Whether a request may be opened, by its encapsulated key; null: nobody knows now. */
  admit(found: FoundKey, enc: Uint8Array): Admission | Promise<Admission | null>;
}

export interface FoundKey {
  readonly n: number;
  readonly key: OpeningKey;
}

interface Made extends OpeningKeys {
  readonly n: number;
  /** The document in base64. */
  readonly hpke: string;
}

/** `tell` hands the documents of all keys to the sidecar, that of the next session first. */
export function createSealingKeys(
  source: SeedSource,
  tell: (hpke: readonly string[]) => void,
  log: Logger,
): SealingKeys {
  let made: readonly Made[] = [];
  let started = false;
  const waiting = new Set<() => void>();
  /** What was asked for last. Making keys takes some milliseconds. */
  let wanted: readonly Seed[] = [];
  let published: { readonly statement: string; readonly hpke: string | null } | null = null;

  async function change(seeds: readonly Seed[]): Promise<void> {
    wanted = seeds;
    const known = new Map(made.map((one) => [one.n, one]));
    const next = await Promise.all(seeds.map((seed) => known.get(seed.n) ?? make(seed)));
    if (wanted !== seeds) return;
    made = next;
    for (const wake of waiting) wake();
    tell(next.map(({ hpke }) => hpke));
    // The session may be older than these keys: those of a primary come later than its worker's first session.
    if (published?.hpke != null) namedBy(published.hpke);
  }

  async function make({ n, first_id, secrets }: Seed): Promise<Made> {
    const keys = await makeKeys(first_id, secrets);
    return { n, ...keys, hpke: Buffer.from(keys.document).toString('base64') };
  }

  function namedBy(hpke: string): void {
    const named = made.find((one) => one.hpke === hpke);
    if (named !== undefined) source.named(named.n);
  }

  const hpkeOf = (statement: string): string | null => {
    if (published?.statement !== statement) published = { statement, hpke: readStatement(statement).hpke };
    return published.hpke;
  };

  return {
    start() {
      if (started) return;
      started = true;
      source.start((seeds) => {
        change(seeds).catch((error: unknown) => log.error(where(error), 'no keys for sealed requests'));
      });
    },
    sessionNames(statement) {
      const hpke = hpkeOf(statement);
      if (hpke !== null) namedBy(hpke);
    },
    published(statement) {
      if (statement === null) return null;
      const hpke = hpkeOf(statement);
      return made.find((one) => one.hpke === hpke)?.document ?? null;
    },
    ready(wait_ms) {
      if (made.length > 0) return Promise.resolve();
      return new Promise((resolve) => {
        const wake = () => {
          clearTimeout(timer);
          waiting.delete(wake);
          resolve();
        };
        const timer = setTimeout(wake, wait_ms);
        waiting.add(wake);
      });
    },
    find(header) {
      for (const { n, keys } of made) {
        const key = keys.find((one) => isFor(header, one));
        if (key !== undefined) return { n, key };
      }
      return null;
    },
    admit: ({ n }, enc) => source.admit(n, enc),
  };
}

/** Seeds of this process's own. */
export function ownSeeds(): SeedSource {
  let seeds: ReturnType<typeof createSeeds> | null = null;
  return {
    start(changed) {
      seeds = createSeeds(changed);
      changed(seeds.current);
    },
    named: (n) => seeds?.named(n),
    admit: (n, enc) => seeds?.admit(n, enc) ?? 'ended',
  };
}
