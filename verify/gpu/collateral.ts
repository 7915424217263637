// The sources of reference values and OCSP responses: the caller, a cache, or the network. Nothing here is trusted.
import { fromBase64, toHex } from '../common/bytes.ts';
import { type Names, refuseUnknown } from '../common/known-options.ts';
import { readLimited } from '../common/limited.ts';
import { LruMap } from '../common/lru.ts';
import type { Jwks } from '../token/signature.ts';
import type { Certificate } from '../x509/certificate.ts';
import {
  MAX_OCSP_BYTES,
  makeCertId,
  makeOcspRequest,
  OCSP_NONCE_BYTES,
  type OcspResponse,
  parseOcspResponse,
} from '../x509/ocsp.ts';
import { statusesOf, validity } from '../x509/revocation.ts';

/** A RIM that a report's device needs. */
export interface RimQuery {
  /** The RIM service's name for it: `NV_GPU_DRIVER_GH100_550.90.07`. */
  readonly id: string;
  /** Of the driver or the BIOS: with the chip, it finds documents that were given without a name. */
  readonly version: string;
  /** `GH100` */
  readonly chip: string;
}

export interface OcspQuery {
  readonly certificate: Certificate;
  readonly issuer: Certificate;
  readonly at: Date;
}

/** An OCSP response, with the nonce of its request where it was requested for this query. */
export interface OcspAnswer {
  readonly response: Uint8Array;
  readonly nonce?: Uint8Array;
}

/** Both return null for a document that this source lacks, and may throw network errors: the checks then report it as unavailable. */
export interface Collateral {
  rim(query: RimQuery): Promise<string | Uint8Array | null>;
  ocsp(query: OcspQuery): Promise<OcspAnswer | null>;
  /** Called when a check refused the result of this query, which must then not be cached. */
  refused?(query: RimQuery | OcspQuery): Promise<void>;
}

/** Collateral that has nothing. */
export const OFFLINE: Collateral = { rim: async () => null, ocsp: async () => null };

export interface CollateralOptions extends ServiceOptions {
  /** RIM documents by their id, or without ids: these are found by the version and the chip that they name. */
  readonly rims?: ReadonlyMap<string, string | Uint8Array> | Iterable<string | Uint8Array>;
  /** OCSP responses, DER. Unreadable ones are ignored. */
  readonly ocsp?: Iterable<Uint8Array>;
  /** Without it nothing is fetched. */
  readonly fetch?: typeof globalThis.fetch;
  /** The clock for the age of cached RIMs. The platform's by default. */
  readonly clock?: () => Date;
}

const OPTIONS: Names<CollateralOptions> = {
  rims: true,
  ocsp: true,
  fetch: true,
  clock: true,
  rim_url: true,
  ocsp_url: true,
  timeout_ms: true,
  onFetch: true,
  onFetched: true,
  randomBytes: true,
};
const MAX_RIMS = 128;
/** After this a RIM is fetched again: NVIDIA may have signed a new one. */
const RIM_CACHED_MS = 24 * 60 * 60 * 1000;
const MAX_RESPONSES = 1024;
const MAX_GIVEN = 4096;

/**
 * Create one and reuse it: it caches what it fetches unless a check refuses it, RIMs by id for a day and OCSP responses until their
 * next update.
 *
 * ```ts
 * const collateral = createCollateral({ fetch: globalThis.fetch });
 * await verifyAttestation(text, { collateral });
 * ```
 */
export function createCollateral(options: CollateralOptions = {}): Collateral {
  refuseUnknown(options, OPTIONS);
  const givenRims = indexRims(options.rims);
  const givenResponses = indexOcsp(options.ocsp);
  const cachedRims = new LruMap<string, { readonly document: Uint8Array; readonly until: number }>(MAX_RIMS);
  const cachedResponses = new LruMap<string, { readonly response: Uint8Array; readonly until: Date }>(MAX_RESPONSES);
  const { fetch, clock = () => new Date() } = options;
  return {
    async rim(query) {
      const given = givenRims(query);
      if (given !== undefined || fetch === undefined) return given ?? null;
      const cached = cachedRims.get(query.id);
      const now = clock().getTime();
      if (cached !== undefined && now <= cached.until) return cached.document;
      const fetched = await fetchRim(query.id, fetch, options);
      if (fetched !== null) cachedRims.set(query.id, { document: fetched, until: now + RIM_CACHED_MS });
      return fetched;
    },
    async ocsp(query) {
      const given = await chooseResponse(givenResponses.get(query.certificate.serial) ?? [], query);
      if (given?.isValid || fetch === undefined) return given;
      const id = await ocspId(query);
      const cached = cachedResponses.get(id);
      if (cached !== undefined && query.at <= cached.until) return { response: cached.response };
      const fetched = await fetchOcsp(id, query, fetch, options);
      const until = fetched === null ? null : await cacheableUntil(fetched.response, query);
      if (fetched !== null && until !== null) cachedResponses.set(id, { response: fetched.response, until });
      return fetched ?? given;
    },
    async refused(query) {
      if ('id' in query) cachedRims.delete(query.id);
      else cachedResponses.delete(await ocspId(query));
    },
  };
}

/** Finds a RIM by the names in its own text, which are trusted only after it has been verified. */
function indexRims(rims: CollateralOptions['rims'] = []): (query: RimQuery) => string | Uint8Array | undefined {
  if (rims instanceof Map) return ({ id }) => rims.get(id);
  const named = Array.from(rims as Iterable<string | Uint8Array>, (rim) => {
    const text = typeof rim === 'string' ? rim : new TextDecoder().decode(rim.subarray(0, MAX_RIM_BYTES));
    const [version, product] = ['colloquialVersion', 'product'].map(
      (name) => new RegExp(`\\b${name}="([^"]{0,64})"`).exec(text)?.[1]?.toLowerCase() ?? '',
    );
    return { rim, version, product };
  });
  return ({ version, chip }) => {
    const candidates = named.filter((one) => one.version === version.toLowerCase());
    const exact = candidates.find(({ product }) => product === chip.toLowerCase());
    // The product name is known for Hopper's RIMs alone. A driver's version is the same on every chip.
    const other = isHopper(chip) ? undefined : candidates.find(({ product = '' }) => !isHopper(product));
    return (exact ?? other)?.rim;
  };
}

const isHopper = (chip: string) => /^gh/i.test(chip);

interface GivenResponse {
  readonly response: Uint8Array;
  readonly parsed: OcspResponse;
}

function indexOcsp(responses: Iterable<Uint8Array> = []): Map<bigint, GivenResponse[]> {
  const index = new Map<bigint, GivenResponse[]>();
  let count = 0;
  for (const response of responses) {
    if (++count > MAX_GIVEN) throw new RangeError(`more than ${MAX_GIVEN} OCSP responses`);
    const parsed = readable(response);
    for (const serial of new Set(parsed?.responses.map(({ certId }) => certId.serial))) {
      const same = index.get(serial) ?? [];
      if (parsed !== null) same.push({ response, parsed });
      index.set(serial, same);
    }
  }
  return index;
}

function readable(response: Uint8Array): OcspResponse | null {
  try {
    return parseOcspResponse(response);
  } catch {
    return null;
  }
}

/**
 * Chooses the newest response that is valid; without one the newest, so that the check can report its fault.
 * A response with several statuses is as new as the newest of them. Of two equally new ones the one that is not good comes first,
 * so that a bad status is not hidden.
 */
async function chooseResponse(
  candidates: readonly GivenResponse[],
  query: OcspQuery,
): Promise<(OcspAnswer & { readonly isValid: boolean }) | null> {
  const statuses: {
    readonly response: Uint8Array;
    readonly isValid: boolean;
    readonly at: Date;
    readonly good: boolean;
  }[] = [];
  for (const { response, parsed } of candidates)
    for (const single of await statusesOf(parsed, query.certificate, query.issuer)) {
      const { thisUpdate, nextUpdate } = validity(single);
      const isValid = query.at >= thisUpdate && query.at <= nextUpdate;
      statuses.push({ response, isValid, at: thisUpdate, good: single.status === 'good' });
    }
  statuses.sort(
    (a, b) =>
      Number(b.isValid) - Number(a.isValid) || b.at.getTime() - a.at.getTime() || Number(a.good) - Number(b.good),
  );
  const [best] = statuses;
  return best === undefined ? null : { response: best.response, isValid: best.isValid };
}

/** The time until which a response may be cached; null for one that is unreadable, not good or has several statuses. */
async function cacheableUntil(response: Uint8Array, { certificate, issuer }: OcspQuery): Promise<Date | null> {
  const parsed = readable(response);
  const [single, ...others] = parsed === null ? [] : await statusesOf(parsed, certificate, issuer);
  return single?.status === 'good' && others.length === 0 ? validity(single).nextUpdate : null;
}

// NVIDIA's services over HTTP. RIMs and OCSP responses are not yet trusted; the keys of the remote attestation service are
// trusted by its host's TLS certificate.

export const NVIDIA_RIM_URL = 'https://rim.attestation.nvidia.com';
export const NVIDIA_OCSP_URL = 'https://ocsp.ndis.nvidia.com';

export interface ServiceOptions {
  /** `https://rim.attestation.nvidia.com` by default. */
  readonly rim_url?: string | undefined;
  /** `https://ocsp.ndis.nvidia.com` by default. */
  readonly ocsp_url?: string | undefined;
  /** For each request; 10,000 by default. */
  readonly timeout_ms?: number;
  /** Called with the URL before each request. */
  readonly onFetch?: (url: string) => void;
  /** Called with each fetched document: a RIM with its id, an OCSP response with its CertID in hex. */
  readonly onFetched?: (kind: 'rim' | 'ocsp', id: string, bytes: Uint8Array) => void;
  /** 32 bytes for each OCSP request; by default from the platform. */
  readonly randomBytes?: (length: number) => Uint8Array;
}

type Fetch = typeof globalThis.fetch;

const MAX_RIM_BYTES = 1024 * 1024;
/** A RIM in base64, in JSON. */
const MAX_RIM_RESPONSE_BYTES = 2 * MAX_RIM_BYTES;
const MAX_KEYS_BYTES = 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 10_000;

/** `GET /v1/rim/{id}` responds with JSON whose member `rim` is the document in base64. */
export async function fetchRim(id: string, fetch: Fetch, options: ServiceOptions): Promise<Uint8Array | null> {
  const url = `${base(options.rim_url ?? NVIDIA_RIM_URL)}/v1/rim/${encodeURIComponent(id)}`;
  const body = await request(url, { headers: { accept: 'application/json' } }, MAX_RIM_RESPONSE_BYTES, fetch, options);
  if (body === null) return null;
  const { rim } = JSON.parse(new TextDecoder().decode(body)) as { rim?: unknown };
  if (typeof rim !== 'string') throw new TypeError('the RIM service answered without a document');
  const document = fromBase64(rim.replace(/\s/g, ''));
  options.onFetched?.('rim', id, document);
  return document;
}

/** The cache key of the response to a query: its CertID (RFC 6960 §4.1.1) in hex. */
export async function ocspId({ certificate, issuer }: Pick<OcspQuery, 'certificate' | 'issuer'>): Promise<string> {
  return toHex(await makeCertId(certificate, issuer));
}

/** POSTs the request's DER. @param id the CertID in hex, as ocspId returns it. */
export async function fetchOcsp(
  id: string,
  { certificate, issuer }: { readonly certificate: Certificate; readonly issuer: Certificate },
  fetch: Fetch,
  options: ServiceOptions,
): Promise<{ readonly response: Uint8Array; readonly nonce: Uint8Array } | null> {
  const nonce = options.randomBytes?.(OCSP_NONCE_BYTES) ?? crypto.getRandomValues(new Uint8Array(OCSP_NONCE_BYTES));
  const body = await makeOcspRequest(certificate, issuer, nonce);
  const headers = { 'content-type': 'application/ocsp-request', accept: 'application/ocsp-response' };
  const url = base(options.ocsp_url ?? NVIDIA_OCSP_URL);
  const response = await request(url, { method: 'POST', headers, body }, MAX_OCSP_BYTES, fetch, options);
  if (response === null) return null;
  options.onFetched?.('ocsp', id, response);
  return { response, nonce };
}

/** For `VerifyOptions.fetchNrasKeys`. */
export async function fetchNrasKeys(url: string, fetch: Fetch, options: ServiceOptions = {}): Promise<Jwks> {
  const body = await request(url, { headers: { accept: 'application/json' } }, MAX_KEYS_BYTES, fetch, options);
  if (body === null) throw new Error(`${new URL(url).host} has no keys`);
  return JSON.parse(new TextDecoder().decode(body)) as Jwks;
}

/** The body of a 200; null for 404. */
async function request(
  url: string,
  init: RequestInit,
  max_bytes: number,
  fetch: Fetch,
  { timeout_ms = DEFAULT_TIMEOUT_MS, onFetch }: ServiceOptions,
): Promise<Uint8Array | null> {
  onFetch?.(url);
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(timeout_ms) });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${new URL(url).host} answered ${response.status}`);
  return readLimited(response, max_bytes);
}

const base = (url: string) => url.replace(/\/+$/, '');
