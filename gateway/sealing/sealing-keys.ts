// This process's keys that open sealed requests: derived from seeds, sent to the sidecar, and published once a session names them.
// Gateways with a store share their seeds at their sidecar, where the first proposal of new ones wins.
import type { Logger } from 'pino';
import { where } from '../../node/log.ts';
import type { KeysFrame, SharedKeys } from '../../proto/attestation/frames.ts';
import { readStatement } from '../../proto/attestation/statement.ts';
import { isFor, makeKeys, type OpeningKey, type OpeningKeys, type RequestHeader } from '../../sealed/index.ts';
import { type Admission, type AdmitOnce, createSeeds, readSeeds, type Seed, writeSeeds } from './seeds.ts';

export interface SealingKeys {
  /** A sidecar with a processor has connected: sends it the keys. */
  connected(): void;
  /** The sidecar sends the keys that gateways share. They replace these. */
  received(keys: SharedKeys): void;
  /** Takes note of the keys that a new session's statement names. */
  sessionNames(statement: string): void;
  /** The document of the keys that the session's statement names; null while it names none of ours. */
  published(statement: string | null): Uint8Array | null;
  /** Resolves when there are keys, and at the latest after `wait_ms`. */
  ready(wait_ms: number): Promise<void>;
  /** null: no key has the header's identifier and algorithms. */
  find(header: RequestHeader): FoundKey | null;
  /** Whether a request may be opened, by its encapsulated key. @throws {Problem} store_unavailable */
  admit(found: FoundKey, enc: Uint8Array): Promise<Admission>;
}

interface FoundKey {
  /** Of the seed. */
  readonly id: number;
  readonly key: OpeningKey;
}

interface KeySet extends OpeningKeys {
  /** Of the seed. */
  readonly id: number;
  /** The document in base64. */
  readonly hpke: string;
}

/** @param admitOnce null: this gateway has no store and shares no keys. @param tell sends the keys to the sidecar. */
export function createSealingKeys(
  admitOnce: AdmitOnce | null,
  tell: (frame: KeysFrame) => void,
  log: Logger,
): SealingKeys {
  const seeds = createSeeds((list) => run(admitOnce === null ? replace(list) : propose(list)));
  let keySets: readonly KeySet[] = [];
  const made = new Map<number, Promise<KeySet>>();
  /** The version of the shared seeds. */
  let version: number | null = null;
  const waiting = new Set<() => void>();
  let lastRead: { readonly statement: string; readonly hpke: string | null } | null = null;

  const run = (changing: Promise<void>) =>
    void changing.catch((error: unknown) => log.error(where(error), 'no keys for sealed requests'));

  /** Keys are made in milliseconds, in which the seeds may change. */
  function keysOf(list: readonly Seed[]): Promise<KeySet[]> {
    return Promise.all(
      list.map((seed) => {
        const keys = made.get(seed.id) ?? make(seed);
        made.set(seed.id, keys);
        return keys;
      }),
    );
  }

  /** Uses the seeds from now on. */
  async function use(list: readonly Seed[]): Promise<void> {
    seeds.set(list);
    const next = await keysOf(list);
    if (seeds.current !== list) return;
    keySets = next;
    for (const id of [...made.keys()]) if (!list.some((seed) => seed.id === id)) made.delete(id);
    for (const wake of waiting) wake();
    // The session may be older than these keys.
    if (lastRead?.hpke != null) reportNamed(lastRead.hpke);
  }

  async function replace(list: readonly Seed[]): Promise<void> {
    await use(list);
    if (seeds.current === list) tell({ type: 'keys', hpke: keySets.map(({ hpke }) => hpke), seeds: null, after: null });
  }

  /** What the sidecar sends back is used: this proposal, or another gateway's that was first. */
  async function propose(list: readonly Seed[]): Promise<void> {
    const after = version;
    const hpke = (await keysOf(list)).map((one) => one.hpke);
    tell({ type: 'keys', hpke, seeds: writeSeeds(list), after });
  }

  function reportNamed(hpke: string): void {
    const named = keySets.find((one) => one.hpke === hpke);
    if (named !== undefined) seeds.named(named.id);
  }

  const hpkeOf = (statement: string): string | null => {
    if (lastRead?.statement !== statement) lastRead = { statement, hpke: readStatement(statement).hpke };
    return lastRead.hpke;
  };

  return {
    connected: () => run(admitOnce === null ? replace(seeds.current) : propose(seeds.current)),
    received({ n, seeds: text }) {
      if (admitOnce === null) return;
      version = n;
      run((async () => use(readSeeds(text)))());
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
    find: (header) => findKey(keySets, header),
    async admit({ id }, enc) {
      const admission = seeds.admit(id, enc);
      if (admission !== 'admitted' || admitOnce === null) return admission;
      return (await admitOnce(enc)) ? 'admitted' : 'replayed';
    },
  };
}

async function make({ id, first_id, secrets }: Seed): Promise<KeySet> {
  const keys = await makeKeys(first_id, secrets);
  return { id, ...keys, hpke: Buffer.from(keys.document).toString('base64') };
}

function findKey(keySets: readonly KeySet[], header: RequestHeader): FoundKey | null {
  for (const { id, keys } of keySets) {
    const key = keys.find((one) => isFor(header, one));
    if (key !== undefined) return { id, key };
  }
  return null;
}
