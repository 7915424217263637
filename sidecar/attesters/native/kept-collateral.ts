// Reference values and OCSP responses, fetched once, kept in memory and on disk, and renewed before they expire. They are verified
// when fetched, and verify/ verifies them again at every use.

import { LRUCache } from 'lru-cache';
import type { Collateral, OcspQuery } from '../../../verify/index.ts';
import {
  appraiseOcsp,
  fetchOcsp,
  fetchRim,
  OCSP_SKEW_MS,
  ocspId,
  type ServiceOptions,
} from '../../../verify/service.ts';
import { createKeptFiles, type KeptFiles } from '../../common/kept-files.ts';

interface KeptCollateralOptions extends EntryOptions {
  readonly store: Store;
  readonly onFailure: (message: string) => void;
}

export interface KeptCollateral extends Collateral {
  /** Fetches again the entries that are due. An entry that cannot be fetched stays until it expires. */
  renew(): Promise<void>;
  /** Drops entries fetched more than `age_ms` ago, so that their next use fetches them. True when there were any. */
  forget(age_ms: number): Promise<boolean>;
  /** The services that could not be reached since the last call. */
  outages(): ReadonlySet<Kind>;
}

const MAX_ENTRIES = 1024;
const LONG_AGO = new Date(0);

export function createKeptCollateral(options: KeptCollateralOptions): KeptCollateral {
  const { store, clock, onFailure } = options;
  const entries = new LRUCache<string, Entry>({ max: MAX_ENTRIES });
  const underway = new Map<string, Promise<Entry | null>>();
  let outages = new Set<Kind>();

  async function forgetOne({ kind, id }: Entry): Promise<void> {
    entries.delete(id);
    await store.remove(kind, id);
  }

  async function kept(entry: Entry | null): Promise<Entry | null> {
    if (entry?.verdict !== 'good') return entry;
    entries.set(entry.id, entry);
    await store.write(entry.kind, entry.id, entry.bytes);
    return entry;
  }

  /** One request at a time for each document or response. */
  function once(id: string, work: () => Promise<Entry | null>): Promise<Entry | null> {
    const running = underway.get(id) ?? work().finally(() => underway.delete(id));
    underway.set(id, running);
    return running;
  }

  /** From disk where it verifies, or else from its service. */
  function loaded(kind: Kind, id: string, stored: () => Promise<Entry | null>, request: () => Promise<Entry | null>) {
    return once(id, async () => {
      const before = await stored();
      if (before?.verdict === 'good') {
        entries.set(id, before);
        return before;
      }
      try {
        return await kept(await request());
      } catch (error) {
        outages.add(kind);
        throw error;
      }
    });
  }

  async function renewOne(entry: Entry): Promise<void> {
    const fresh = await once(entry.id, async () => kept(await entry.refetch()));
    if (fresh?.verdict === 'good') return;
    if (fresh?.verdict === 'not_good') await forgetOne(entry);
    throw new Error(fresh === null ? 'its service has it no longer' : `what came is ${fresh.verdict}`);
  }

  return {
    async rim({ id }) {
      const stored = async () => {
        const bytes = await store.read('rim', id);
        return bytes === null ? null : rimEntry(id, bytes, LONG_AGO, options);
      };
      const entry = entries.get(id) ?? (await loaded('rim', id, stored, () => requestRim(id, options)));
      return entry?.bytes ?? null;
    },

    async ocsp(query) {
      const id = await ocspId(query);
      const at = query.at.getTime();
      let entry: Entry | null = entries.get(id) ?? null;
      if (entry === null || at < entry.from.getTime() - OCSP_SKEW_MS || at > entry.until.getTime()) {
        const stored = async () => {
          const response = entry === null ? await store.read('ocsp', id) : null;
          return response === null ? null : ocspEntry(id, query, { response }, LONG_AGO, options);
        };
        entry = await loaded('ocsp', id, stored, () => requestOcsp(id, query, options));
      }
      if (entry === null) return null;
      return { response: entry.bytes, ...(entry.nonce === undefined ? {} : { nonce: entry.nonce }) };
    },

    async renew() {
      for (const id of [...entries.keys()]) {
        const entry = entries.get(id);
        if (entry === undefined || clock() < entry.renew_at) continue;
        await renewOne(entry).catch((error: Error) =>
          onFailure(`${entry.kind} ${id.slice(-80)} could not be renewed: ${error.message}`),
        );
      }
    },

    async forget(age_ms) {
      const before = clock().getTime() - age_ms;
      const all = [...entries.keys()].flatMap((id) => entries.get(id) ?? []);
      const old = all.filter(({ fetched }) => fetched.getTime() < before);
      for (const entry of old) await forgetOne(entry);
      return old.length > 0;
    },

    outages() {
      const since_last_call = outages;
      outages = new Set();
      return since_last_call;
    },
  };
}

// One RIM document or OCSP response that was fetched: what it is, how long it is valid, and how to fetch it again.

interface Entry {
  readonly kind: Kind;
  readonly id: string;
  readonly bytes: Uint8Array;
  /** The nonce of the request that it responds to; responses from before a restart have none. */
  readonly nonce?: Uint8Array;
  /**
   * `good`: to be kept. `not_good`: the responder does not call the certificate good. `unusable`: it does not verify. The last two are
   * returned to the check, which reports the reason, and are not kept.
   */
  readonly verdict: 'good' | 'not_good' | 'unusable';
  readonly fetched: Date;
  readonly from: Date;
  readonly until: Date;
  readonly renew_at: Date;
  /** null: the service has no such document. */
  refetch(): Promise<Entry | null>;
}

interface EntryOptions extends ServiceOptions {
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
  /** Throws unless the document verifies. */
  readonly checkRim: (document: Uint8Array) => Promise<unknown>;
}

/** After this time a RIM is fetched again, in the background: NVIDIA may have signed a new one. */
const RIM_RENEW_MS = 86_400_000;
const ALWAYS = { from: new Date(0), until: new Date(8.64e15) };
/** An OCSP response is renewed after this part of its validity. */
const RENEW_AFTER = 0.75;

function requestRim(id: string, options: EntryOptions): Promise<Entry | null> {
  return fetchRim(id, options.fetch, options).then((bytes) =>
    bytes === null ? null : rimEntry(id, bytes, options.clock(), options),
  );
}

/** @param fetched the epoch for a document from disk, which is then fetched again soon. */
async function rimEntry(id: string, bytes: Uint8Array, fetched: Date, options: EntryOptions): Promise<Entry> {
  const verdict = await options.checkRim(bytes).then(
    () => 'good' as const,
    () => 'unusable' as const,
  );
  const renew_at = new Date(fetched.getTime() + RIM_RENEW_MS);
  return { kind: 'rim', id, bytes, verdict, fetched, ...ALWAYS, renew_at, refetch: () => requestRim(id, options) };
}

async function requestOcsp(id: string, query: OcspQuery, options: EntryOptions): Promise<Entry | null> {
  const fetched = await fetchOcsp(id, query, options.fetch, options);
  return fetched === null ? null : ocspEntry(id, query, fetched, options.clock(), options);
}

async function ocspEntry(
  id: string,
  query: OcspQuery,
  { response, nonce }: { readonly response: Uint8Array; readonly nonce?: Uint8Array },
  fetched: Date,
  options: EntryOptions,
): Promise<Entry> {
  const { certificate, issuer, at } = query;
  const refetch = () => requestOcsp(id, { ...query, at: options.clock() }, options);
  const common = {
    kind: 'ocsp',
    id,
    bytes: response,
    fetched,
    refetch,
    ...(nonce === undefined ? {} : { nonce }),
  } as const;
  const outcome = await appraiseOcsp(response, certificate, issuer, { at, nonce });
  if (outcome.verdict !== 'good')
    return { ...common, verdict: outcome.verdict, from: fetched, until: fetched, renew_at: fetched };
  const { thisUpdate: from, nextUpdate: until } = outcome;
  const renew_at = new Date(from.getTime() + (until.getTime() - from.getTime()) * RENEW_AFTER);
  return { ...common, verdict: 'good', from, until, renew_at };
}

// The folder that keeps RIMs and OCSP responses across restarts.

type Kind = 'rim' | 'ocsp';
type Store = KeptFiles<Kind>;

interface StoreOptions {
  readonly folder: string;
  /** 64 MiB by default. */
  readonly max_bytes?: number;
  readonly onFailure?: (message: string) => void;
}

const MAX_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 2 * 1024 * 1024;

export const createStore = ({ folder, max_bytes = MAX_BYTES, onFailure = () => {} }: StoreOptions): Store =>
  createKeptFiles({
    folder,
    magic: 'countersign collateral 1 ',
    kinds: ['rim', 'ocsp'],
    max_file_bytes: MAX_FILE_BYTES,
    max_bytes,
    onFailure,
  });
