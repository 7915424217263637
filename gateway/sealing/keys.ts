// This process's keys that open sealed requests: derived from seeds, sent to the sidecar, and published once a session names them.
import type { Logger } from 'pino';
import { where } from '../../node/log.ts';
import { readStatement } from '../../proto/attestation/statement.ts';
import { isFor, makeKeys, type OpeningKey, type OpeningKeys, type RequestHeader } from '../../sealed/index.ts';
import { type Admission, createSeeds, type Seed } from './seeds.ts';

/** The source of seeds: this process, or the primary of several workers. */
export interface SeedSource {
  /** Calls `changed` with the first seeds and at each change. */
  start(changed: (seeds: readonly Seed[]) => void): void;
  named(n: number): void;
  /** null: the primary did not respond in time. */
  admit(n: number, enc: Uint8Array): Admission | Promise<Admission | null>;
}

export interface SealingKeys {
  /** Begins to make keys. To be called when a sidecar with a processor has connected. */
  start(): void;
  /** Takes note of the keys that a new session's statement names. */
  sessionNames(statement: string): void;
  /** The document of the keys that the session's statement names; null while it names none of ours. */
  published(statement: string | null): Uint8Array | null;
  /** Resolves when there are keys, and at the latest after `wait_ms`: a worker that has just started does not have them yet. */
  ready(wait_ms: number): Promise<void>;
  /** null: no key has the header's identifier and algorithms. */
  find(header: RequestHeader): FoundKey | null;
  /** Whether a request may be opened, by its encapsulated key; null: the primary did not respond in time. */
  admit(found: FoundKey, enc: Uint8Array): Admission | Promise<Admission | null>;
}

export interface FoundKey {
  readonly n: number;
  readonly key: OpeningKey;
}

interface KeySet extends OpeningKeys {
  readonly n: number;
  /** The document in base64. */
  readonly hpke: string;
}

/** `tell` sends the documents of all keys to the sidecar, that of the next session first. */
export function createSealingKeys(
  source: SeedSource,
  tell: (hpke: readonly string[]) => void,
  log: Logger,
): SealingKeys {
  let keySets: readonly KeySet[] = [];
  let started = false;
  const waiting = new Set<() => void>();
  /** The newest seeds. They may change in the milliseconds that it takes to make their keys. */
  let newest: readonly Seed[] = [];
  let lastRead: { readonly statement: string; readonly hpke: string | null } | null = null;

  async function change(seeds: readonly Seed[]): Promise<void> {
    newest = seeds;
    const known = new Map(keySets.map((one) => [one.n, one]));
    const next = await Promise.all(seeds.map((seed) => known.get(seed.n) ?? make(seed)));
    if (newest !== seeds) return;
    keySets = next;
    for (const wake of waiting) wake();
    tell(next.map(({ hpke }) => hpke));
    // The session may be older than these keys: a worker's first session may precede the primary's seeds.
    if (lastRead?.hpke != null) reportNamed(lastRead.hpke);
  }

  async function make({ n, first_id, secrets }: Seed): Promise<KeySet> {
    const keys = await makeKeys(first_id, secrets);
    return { n, ...keys, hpke: Buffer.from(keys.document).toString('base64') };
  }

  function reportNamed(hpke: string): void {
    const named = keySets.find((one) => one.hpke === hpke);
    if (named !== undefined) source.named(named.n);
  }

  const hpkeOf = (statement: string): string | null => {
    if (lastRead?.statement !== statement) lastRead = { statement, hpke: readStatement(statement).hpke };
    return lastRead.hpke;
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
      if (hpke !== null) reportNamed(hpke);
    },
    published(statement) {
      if (statement === null) return null;
      const hpke = hpkeOf(statement);
      return keySets.find((one) => one.hpke === hpke)?.document ?? null;
    },
    ready(wait_ms) {
      if (keySets.length > 0) return Promise.resolve();
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
      for (const { n, keys } of keySets) {
        const key = keys.find((one) => isFor(header, one));
        if (key !== undefined) return { n, key };
      }
      return null;
    },
    admit: ({ n }, enc) => source.admit(n, enc),
  };
}

/** Makes the seeds in this process. */
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
