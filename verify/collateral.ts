// Where reference values and revocation answers come from: handed in, kept from before, or fetched. Nothing here is trusted.
import { concat, fromBase64, toHex } from './bytes.ts';
import { LruMap } from './lru.ts';
import { makeCertId, makeOcspRequest, OCSP_NONCE_BYTES } from './ocsp/request.ts';
import { MAX_OCSP_BYTES, parseOcspResponse } from './ocsp/response.ts';
import { findAnswer, validity } from './ocsp/verify.ts';
import type { Certificate } from './x509/certificate.ts';

export const NVIDIA_RIM_URL = 'https://rim.attestation.nvidia.com';
export const NVIDIA_OCSP_URL = 'https://ocsp.ndis.nvidia.com';

/** A RIM that a report asks for. */
export interface RimQuery {
  /** The RIM service's name for it: `NV_GPU_DRIVER_GH100_550.90.07`. */
  readonly id: string;
  /** Of the driver or the BIOS: with the chip, it finds documents that were handed in without a name. */
  readonly version: string;
  /** `GH100` */
  readonly chip: string;
}

export interface OcspQuery {
  readonly certificate: Certificate;
  readonly issuer: Certificate;
  readonly at: Date;
}

/** An answer, and the nonce of the request it came for, if it came for one now. */
export interface OcspAnswer {
  readonly response: Uint8Array;
  readonly nonce?: Uint8Array;
}

/** null: it is not to be had here. Both may throw what the network throws: the checks then say that it is unavailable. */
export interface Collateral {
  rim(query: RimQuery): Promise<string | Uint8Array | null>;
  ocsp(query: OcspQuery): Promise<OcspAnswer | null>;
}

export interface CollateralOptions {
  /** RIM documents by their id; or without ids, then found by the version and the chip that they name. */
  readonly rims?: ReadonlyMap<string, string | Uint8Array> | Iterable<string | Uint8Array>;
  /** OCSP responses, DER. Those that cannot be read are left aside. */
  readonly ocsp?: Iterable<Uint8Array>;
  /** Without it nothing is fetched. */
  readonly fetch?: typeof globalThis.fetch;
  /** `https://rim.attestation.nvidia.com` by default. */
  readonly rim_url?: string;
  /** `https://ocsp.ndis.nvidia.com` by default. */
  readonly ocsp_url?: string;
  /** For each request; 10,000 by default. */
  readonly timeout_ms?: number;
  /** Told what is being fetched, before it is. */
  readonly onFetch?: (what: string) => void;
  /** Told what was fetched, for those who keep it: a RIM by its id, an OCSP response by its certID in hex. */
  readonly onFetched?: (kind: 'rim' | 'ocsp', id: string, bytes: Uint8Array) => void;
  /** 32 bytes for each OCSP request; by default from the platform. */
  readonly randomBytes?: (length: number) => Uint8Array;
}

const MAX_RIM_BYTES = 1024 * 1024;
/** base64 in JSON. */
const MAX_RIM_ANSWER_BYTES = 2 * MAX_RIM_BYTES;
const MAX_KEPT_RIMS = 128;
const MAX_KEPT_ANSWERS = 1024;
const MAX_HANDED_IN = 4096;
const DEFAULT_TIMEOUT_MS = 10_000;

/**
 * Keep one for as long as you verify: it remembers what it fetched, RIMs by id and answers until their next update.
 *
 * ```ts
 * const collateral = createCollateral({ fetch: globalThis.fetch });
 * await verifyAttestation(text, { collateral });
 * ```
 */
export function createCollateral(options: CollateralOptions = {}): Collateral {
  const handedIn = indexRims(options.rims);
  const answers = indexOcsp(options.ocsp);
  const rims = new LruMap<string, string | Uint8Array>(MAX_KEPT_RIMS);
  const kept = new LruMap<string, { readonly response: Uint8Array; readonly until: Date }>(MAX_KEPT_ANSWERS);
  const { fetch } = options;
  return {
    async rim(query) {
      const known = handedIn(query);
      if (known !== undefined || fetch === undefined) return known ?? null;
      const before = rims.get(query.id);
      if (before !== undefined) return before;
      const fetched = await fetchRim(query.id, fetch, options);
      if (fetched !== null) rims.set(query.id, fetched);
      return fetched;
    },
    async ocsp(query) {
      const known = await chooseAnswer(answers.get(query.certificate.serial) ?? [], query);
      if (known !== null || fetch === undefined) return known;
      const id = toHex(await makeCertId(query.certificate, query.issuer));
      const before = kept.get(id);
      if (before !== undefined && query.at <= before.until) return { response: before.response };
      const fetched = await fetchOcsp(id, query, fetch, options);
      const until = fetched === null ? null : await holdsUntil(fetched.response, query);
      if (fetched !== null && until !== null) kept.set(id, { response: fetched.response, until });
      return fetched;
    },
  };
}

/** The names in a RIM's own text are looked at to find it, and believed once it is verified. */
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
    return (candidates.find(({ product }) => product === chip.toLowerCase()) ?? candidates[0])?.rim;
  };
}

function indexOcsp(responses: Iterable<Uint8Array> = []): Map<bigint, Uint8Array[]> {
  const index = new Map<bigint, Uint8Array[]>();
  let count = 0;
  for (const response of responses) {
    if (++count > MAX_HANDED_IN) throw new RangeError(`more than ${MAX_HANDED_IN} OCSP responses`);
    for (const serial of serialsOf(response)) index.set(serial, [...(index.get(serial) ?? []), response]);
  }
  return index;
}

function serialsOf(response: Uint8Array): bigint[] {
  try {
    return parseOcspResponse(response).responses.map(({ certId }) => certId.serial);
  } catch {
    return [];
  }
}

/** Of several about one certificate, the newest that holds; failing that the newest, so that the check can say what is wrong. */
async function chooseAnswer(responses: readonly Uint8Array[], query: OcspQuery): Promise<OcspAnswer | null> {
  let best: { response: Uint8Array; rank: number } | null = null;
  for (const response of responses) {
    const answer = await findAnswer(parseOcspResponse(response), query.certificate, query.issuer);
    if (answer === null) continue;
    const { thisUpdate, nextUpdate } = validity(answer);
    const holds = query.at >= thisUpdate && query.at <= nextUpdate;
    const rank = thisUpdate.getTime() + (holds ? 1e15 : 0);
    if (best === null || rank > best.rank) best = { response, rank };
  }
  return best === null ? null : { response: best.response };
}

async function holdsUntil(response: Uint8Array, query: OcspQuery): Promise<Date | null> {
  try {
    const answer = await findAnswer(parseOcspResponse(response), query.certificate, query.issuer);
    return answer?.status === 'good' ? validity(answer).nextUpdate : null;
  } catch {
    return null;
  }
}

/** `GET /v1/rim/{id}` answers JSON whose member `rim` is the document in base64. */
async function fetchRim(id: string, fetch: typeof globalThis.fetch, options: CollateralOptions) {
  const url = `${base(options.rim_url ?? NVIDIA_RIM_URL)}/v1/rim/${encodeURIComponent(id)}`;
  const answer = await request(url, { headers: { accept: 'application/json' } }, MAX_RIM_ANSWER_BYTES, fetch, options);
  if (answer === null) return null;
  const { rim } = JSON.parse(new TextDecoder().decode(answer)) as { rim?: unknown };
  if (typeof rim !== 'string') throw new TypeError('the RIM service answered without a document');
  const document = fromBase64(rim.replace(/\s/g, ''));
  options.onFetched?.('rim', id, document);
  return document;
}

async function fetchOcsp(
  id: string,
  { certificate, issuer }: OcspQuery,
  fetch: typeof globalThis.fetch,
  options: CollateralOptions,
): Promise<OcspAnswer | null> {
  const nonce = options.randomBytes?.(OCSP_NONCE_BYTES) ?? crypto.getRandomValues(new Uint8Array(OCSP_NONCE_BYTES));
  const body = await makeOcspRequest(certificate, issuer, nonce);
  const headers = { 'content-type': 'application/ocsp-request', accept: 'application/ocsp-response' };
  const url = base(options.ocsp_url ?? NVIDIA_OCSP_URL);
  const response = await request(url, { method: 'POST', headers, body }, MAX_OCSP_BYTES, fetch, options);
  if (response === null) return null;
  options.onFetched?.('ocsp', id, response);
  return { response, nonce };
}

/** The body of a 200; null for 404. */
async function request(
  url: string,
  init: RequestInit,
  max_bytes: number,
  fetch: typeof globalThis.fetch,
  { timeout_ms = DEFAULT_TIMEOUT_MS, onFetch }: CollateralOptions,
): Promise<Uint8Array | null> {
  onFetch?.(url);
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(timeout_ms) });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${new URL(url).host} answered ${response.status}`);
  return readLimited(response, max_bytes);
}

async function readLimited(response: Response, max_bytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) break;
    length += part.value.length;
    if (length > max_bytes) {
      await reader?.cancel();
      throw new RangeError(`an answer of more than ${max_bytes} bytes`);
    }
    chunks.push(part.value);
  }
  return concat(...chunks);
}

const base = (url: string) => url.replace(/\/+$/, '');
