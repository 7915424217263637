// Has NVIDIA's Remote Attestation Service appraise evidence: one POST, whose response is a detached EAT.
import { readFile } from 'node:fs/promises';
import type { Evidence } from '../../../proto/attestation/attestation.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import type { Jwks } from '../../../verify/index.ts';
import { NRAS_KEYS_URL, opaqueFormat, readLimited } from '../../../verify/service.ts';
import { AttesterError, failed, type Reason } from '../../common/attester.ts';
import { networkReason, retryAfterMs } from '../../common/http.ts';
import { shared } from '../../common/lock.ts';

/** The service sent no response, or one that asks to retry later. */
export class ServiceUnavailable extends AttesterError {
  /** @param retry_after_ms the response's Retry-After; null where it has none. */
  constructor(reason: Reason, words: string, retry_after_ms: number | null = null, options?: ErrorOptions) {
    super('appraisal_failed', words, true, { ...options, reason, retry_after_ms });
  }
}

/** The service refused, or its response is invalid. */
export const refused = (reason: Reason, words: string, options?: ErrorOptions): AttesterError =>
  failed('appraisal_failed', reason, words, 'stop', options);

// The service key that NVIDIA gives to its customers. It is read from a file each time, so that it can be replaced in place.

/** The value of the Authorization header; null without a file. The key itself is in no error. @throws {AttesterError} */
export async function readAuthorization(file: string | undefined): Promise<string | null> {
  if (file === undefined) return null;
  let key: string;
  try {
    key = (await readFile(file, 'utf8')).trim();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    throw refused('service_key', `NRAS_SERVICE_KEY_FILE ${file} cannot be read (${code})`, { cause });
  }
  if (!/^[!-~]{1,4096}$/.test(key))
    throw refused('service_key', `NRAS_SERVICE_KEY_FILE ${file} must hold one line, the key`);
  return `Bearer ${key}`;
}

export const NRAS_URL = new URL('/v4/attest/gpu', NRAS_KEYS_URL).href;

interface RequestOptions {
  readonly url: string;
  readonly service_key_file: string | undefined;
  readonly timeout_ms: number;
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
}

/** NVIDIA's service refuses the opaque data of newer drivers under claims older than 4.0; by its own words, all know 3.0. */
const claimsVersion = (evidence: readonly Evidence[]) =>
  evidence.some(({ report }) => opaqueFormat(Buffer.from(report, 'base64')) === 'NVDAOD') ? '4.0' : '3.0';
/** The longest Retry-After that is followed. */
const MAX_WAIT_MS = 600_000;
/** A response about eight GPUs has about 40 KiB. */
const MAX_RESPONSE_BYTES = 1024 * 1024;
const MAX_REASON_CHARACTERS = 300;

/** The attestation token's text, as received; not yet trusted. @throws {AttesterError} @throws what `signal` was aborted with. */
export async function requestToken(
  nonce: Nonce,
  evidence: readonly Evidence[],
  options: RequestOptions,
  signal: AbortSignal,
): Promise<string> {
  const [arch, ...others] = new Set(evidence.map((one) => one.arch));
  if (arch === undefined || others.length > 0)
    throw refused('mixed_gpus', 'NVIDIA appraises GPUs of one architecture at a time');
  const authorization = await readAuthorization(options.service_key_file);
  const body = {
    nonce,
    evidence_list: evidence.map(({ report, certificate_chain }) => ({
      evidence: report,
      certificate: certificate_chain,
    })),
    arch,
    claims_version: claimsVersion(evidence),
  };
  const { status, text, wait_ms } = await post(body, authorization, options, signal);
  if (status === 200) return text.trim();
  const detail = `NVIDIA's service answered ${status}${reasonIn(text)}`;
  if (status === 429 || status === 408 || status >= 500)
    throw new ServiceUnavailable(status === 429 ? 'nras_busy' : 'nras_unreachable', detail, wait_ms);
  if (status === 401 || status === 403)
    throw refused('service_key', `${detail}; look at the key in NRAS_SERVICE_KEY_FILE`);
  throw refused('nras_refused', detail);
}

interface ServiceResponse {
  readonly status: number;
  readonly text: string;
  /** Its Retry-After; null without one. */
  readonly wait_ms: number | null;
}

async function post(
  body: object,
  authorization: string | null,
  { url, fetch, timeout_ms, clock }: RequestOptions,
  signal: AbortSignal,
): Promise<ServiceResponse> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json',
    ...(authorization === null ? {} : { authorization }),
  };
  try {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(timeout_ms)]);
    // A redirect would carry the evidence to an unknown host.
    const init = { method: 'POST', headers, body: JSON.stringify(body), signal: limited, redirect: 'error' } as const;
    const response = await fetch(url, init);
    const text = await readText(response, MAX_RESPONSE_BYTES);
    const wait_ms = retryAfterMs(response.headers, clock().getTime());
    return {
      status: response.status,
      text,
      wait_ms: wait_ms === null ? null : Math.min(Math.max(wait_ms, 0), MAX_WAIT_MS),
    };
  } catch (cause) {
    signal.throwIfAborted();
    const reason = networkReason(cause, { timeout_ms, max_bytes: MAX_RESPONSE_BYTES });
    throw new ServiceUnavailable('nras_unreachable', `${new URL(url).host} ${reason}`, null, { cause });
  }
}

/** @throws {BodyTooLarge} more than `max_bytes`. */
async function readText(response: Response, max_bytes: number): Promise<string> {
  return Buffer.from(await readLimited(response, max_bytes)).toString('utf8');
}

/** The service's own words, where its response is JSON. */
function reasonIn(text: string): string {
  try {
    const { message, error, detail } = JSON.parse(text) as Record<string, unknown>;
    const reason = [message, detail, error].find((one) => typeof one === 'string');
    if (typeof reason !== 'string') return '';
    return `: ${reason.replace(/[^ -~]/g, '?').slice(0, MAX_REASON_CHARACTERS)}`;
  } catch {
    return '';
  }
}

// NVIDIA's keys for its remote service's attestation tokens, fetched and kept. They change daily and stay for about a month.

interface KeysOptions {
  readonly url: string;
  readonly timeout_ms: number;
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
}

export interface NrasKeys {
  /** The kept keys, unless they are older than a day. */
  kept(): Jwks | undefined;
  /**
   * Fetches the keys, unless they are younger than 30 s: tokens that name no known key must not cause a request each.
   * @throws {ServiceUnavailable}
   */
  renewed(): Promise<Jwks>;
}

const MAX_AGE_MS = 24 * 3600_000;
const MIN_INTERVAL_MS = 30_000;
const MAX_KEYS_BYTES = 1024 * 1024;

/** /.well-known/jwks.json of the service. */
export const keysUrl = (service_url: string): string => new URL(new URL(NRAS_KEYS_URL).pathname, service_url).href;

export function createNrasKeys({ url, timeout_ms, fetch, clock }: KeysOptions): NrasKeys {
  let kept: { readonly keys: Jwks; readonly at: number } | null = null;

  const get = shared(async (): Promise<Jwks> => {
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(timeout_ms), redirect: 'error' });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const keys = JSON.parse(await readText(response, MAX_KEYS_BYTES)) as Jwks;
      if (!Array.isArray(keys?.keys)) throw new Error('no key set');
      kept = { keys, at: clock().getTime() };
      return keys;
    } catch (cause) {
      const reason = networkReason(cause, { timeout_ms, max_bytes: MAX_KEYS_BYTES });
      throw new ServiceUnavailable('nras_unreachable', `the keys at ${new URL(url).host} ${reason}`, null, { cause });
    }
  });

  /** The kept keys; none where the clock was set back since, because their age is not known. */
  function youngerThan(age_ms: number): Jwks | undefined {
    if (kept === null) return undefined;
    const since_ms = clock().getTime() - kept.at;
    return since_ms >= 0 && since_ms < age_ms ? kept.keys : undefined;
  }

  return {
    kept: () => youngerThan(MAX_AGE_MS),
    renewed() {
      const young = youngerThan(MIN_INTERVAL_MS);
      return young === undefined ? get() : Promise.resolve(young);
    },
  };
}
