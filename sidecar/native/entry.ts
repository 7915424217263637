// One reference document or revocation answer that was fetched: what it is, how long it holds, and how to ask again.
import type { OcspQuery } from '../../verify/index.ts';
import { parseOcspResponse } from '../../verify/ocsp/response.ts';
import { answersAbout, verifyOcsp } from '../../verify/ocsp/verify.ts';
import { fetchOcsp, fetchRim, type ServiceOptions } from '../../verify/services.ts';
import type { Kind } from './store.ts';

export interface Entry {
  readonly kind: Kind;
  readonly id: string;
  readonly bytes: Uint8Array;
  /** The nonce of the request that it answers; those from before a restart have none. */
  readonly nonce?: Uint8Array;
  /**
   * `good`: to be kept. `not_good`: the responder says that the certificate is not. `unusable`: it does not verify. The last
   * two are for the check, which says why, and for nothing later.
   */
  readonly verdict: 'good' | 'not_good' | 'unusable';
  readonly fetched: Date;
  readonly from: Date;
  readonly until: Date;
  readonly renew_at: Date;
  /** null: the service has no such thing. */
  again(): Promise<Entry | null>;
}

export interface EntryOptions extends ServiceOptions {
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
  /** Throws unless the document verifies. */
  readonly checkRim: (document: Uint8Array) => Promise<unknown>;
}

/** After this a RIM is asked for again, in the background: NVIDIA may have signed it anew. */
const RIM_RENEW_MS = 86_400_000;
const ALWAYS = { from: new Date(0), until: new Date(8.64e15) };
/** An OCSP answer is renewed when this part of its life is over. */
const RENEW_AFTER = 0.75;

export function askRim(id: string, options: EntryOptions): Promise<Entry | null> {
  return fetchRim(id, options.fetch, options).then((bytes) =>
    bytes === null ? null : rimEntry(id, bytes, options.clock(), options),
  );
}

/** @param fetched the beginning of time where it came from disk: then it is asked for again soon. */
export async function rimEntry(id: string, bytes: Uint8Array, fetched: Date, options: EntryOptions): Promise<Entry> {
  const verdict = await options.checkRim(bytes).then(
    () => 'good' as const,
    () => 'unusable' as const,
  );
  const renew_at = new Date(fetched.getTime() + RIM_RENEW_MS);
  return { kind: 'rim', id, bytes, verdict, fetched, ...ALWAYS, renew_at, again: () => askRim(id, options) };
}

export async function askOcsp(id: string, query: OcspQuery, options: EntryOptions): Promise<Entry | null> {
  const answer = await fetchOcsp(id, query, options.fetch, options);
  return answer === null ? null : ocspEntry(id, query, answer, options.clock(), options);
}

export async function ocspEntry(
  id: string,
  query: OcspQuery,
  { response, nonce }: { readonly response: Uint8Array; readonly nonce?: Uint8Array },
  fetched: Date,
  options: EntryOptions,
): Promise<Entry> {
  const { certificate, issuer, at } = query;
  const again = () => askOcsp(id, { ...query, at: options.clock() }, options);
  const common = {
    kind: 'ocsp',
    id,
    bytes: response,
    fetched,
    again,
    ...(nonce === undefined ? {} : { nonce }),
  } as const;
  try {
    const { thisUpdate: from, nextUpdate: until } = await verifyOcsp(response, certificate, issuer, { at, nonce });
    const renew_at = new Date(from.getTime() + (until.getTime() - from.getTime()) * RENEW_AFTER);
    return { ...common, verdict: 'good', from, until, renew_at };
  } catch {
    const verdict = await saysNo(response, query);
    return { ...common, verdict, from: fetched, until: fetched, renew_at: fetched };
  }
}

async function saysNo(response: Uint8Array, { certificate, issuer }: OcspQuery): Promise<'not_good' | 'unusable'> {
  try {
    const answers = await answersAbout(parseOcspResponse(response), certificate, issuer);
    return answers.some(({ status }) => status !== 'good') ? 'not_good' : 'unusable';
  } catch {
    return 'unusable';
  }
}
