// NVIDIA's services over HTTP: reference values (RIMs) and revocation answers (OCSP), which are not yet trusted, and the keys of
// its remote attestation service, which are, as its host's TLS certificate vouches for them.
import { concat, fromBase64 } from './bytes.ts';
import { makeOcspRequest, OCSP_NONCE_BYTES } from './ocsp/request.ts';
import { MAX_OCSP_BYTES } from './ocsp/response.ts';
import type { Jwks } from './token/index.ts';
import type { Certificate } from './x509/certificate.ts';

export const NVIDIA_RIM_URL = 'https://rim.attestation.nvidia.com';
export const NVIDIA_OCSP_URL = 'https://ocsp.ndis.nvidia.com';

export interface ServiceOptions {
  /** `https://rim.attestation.nvidia.com` by default. */
  readonly rim_url?: string | undefined;
  /** `https://ocsp.ndis.nvidia.com` by default. */
  readonly ocsp_url?: string | undefined;
  /** For each request; 10,000 by default. */
  readonly timeout_ms?: number;
  /** Told what is being fetched, before it is. */
  readonly onFetch?: (what: string) => void;
  /** Told what was fetched, for those who keep it: a RIM by its id, an OCSP response by its certID in hex. */
  readonly onFetched?: (kind: 'rim' | 'ocsp', id: string, bytes: Uint8Array) => void;
  /** 32 bytes for each OCSP request; by default from the platform. */
  readonly randomBytes?: (length: number) => Uint8Array;
}

type Fetch = typeof globalThis.fetch;

export const MAX_RIM_BYTES = 1024 * 1024;
/** base64 in JSON. */
const MAX_RIM_ANSWER_BYTES = 2 * MAX_RIM_BYTES;
const MAX_KEYS_BYTES = 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 10_000;

/** `GET /v1/rim/{id}` answers JSON whose member `rim` is the document in base64. */
export async function fetchRim(id: string, fetch: Fetch, options: ServiceOptions): Promise<Uint8Array | null> {
  const url = `${base(options.rim_url ?? NVIDIA_RIM_URL)}/v1/rim/${encodeURIComponent(id)}`;
  const answer = await request(url, { headers: { accept: 'application/json' } }, MAX_RIM_ANSWER_BYTES, fetch, options);
  if (answer === null) return null;
  const { rim } = JSON.parse(new TextDecoder().decode(answer)) as { rim?: unknown };
  if (typeof rim !== 'string') throw new TypeError('the RIM service answered without a document');
  const document = fromBase64(rim.replace(/\s/g, ''));
  options.onFetched?.('rim', id, document);
  return document;
}

/** POST of the request's DER. @param id the certID in hex, for those who keep the answer. */
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

/** As `VerifyOptions.fetchNrasKeys` asks for them. */
export async function fetchNrasKeys(url: string, fetch: Fetch, options: ServiceOptions = {}): Promise<Jwks> {
  const answer = await request(url, { headers: { accept: 'application/json' } }, MAX_KEYS_BYTES, fetch, options);
  if (answer === null) throw new Error(`${new URL(url).host} has no keys`);
  return JSON.parse(new TextDecoder().decode(answer)) as Jwks;
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

/** The whole body. @throws {RangeError} more than `max_bytes`. */
export async function readLimited(response: Response, max_bytes: number): Promise<Uint8Array> {
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
