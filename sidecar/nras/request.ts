// Asks NVIDIA's Remote Attestation Service to appraise evidence: one POST, answered with a detached EAT.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import { readLimited } from '../../verify/services.ts';
import { refused, retryAfterMs, ServiceUnavailable } from './failure.ts';
import { readAuthorization } from './service-key.ts';

export const NRAS_URL = 'https://nras.attestation.nvidia.com/v4/attest/gpu';

export interface RequestOptions {
  readonly url: string;
  readonly service_key_file: string | undefined;
  readonly timeout_ms: number;
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
}

/** The granular ones; /v4 has both. */
const CLAIMS_VERSION = '3.0';
/** An answer about eight GPUs has about 40 KiB. */
const MAX_ANSWER_BYTES = 1024 * 1024;
const MAX_REASON_CHARACTERS = 300;

/** The token's text, as it came; not yet trusted. @throws {AttesterError} @throws what `signal` was aborted with. */
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
    claims_version: CLAIMS_VERSION,
  };
  const { status, text, retry_after } = await post(body, authorization, options, signal);
  if (status === 200) return text.trim();
  const said = `NVIDIA's service answered ${status}${reasonIn(text)}`;
  if (status === 429 || status === 408 || status >= 500)
    throw new ServiceUnavailable(
      `${status === 429 ? 'nras_busy' : 'nras_unreachable'}: ${said}`,
      retryAfterMs(retry_after, options.clock()),
    );
  if (status === 401 || status === 403)
    throw refused('service_key', `${said}; look at the key in NRAS_SERVICE_KEY_FILE`);
  throw refused('nras_refused', said);
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly retry_after: string | null;
}

async function post(
  body: object,
  authorization: string | null,
  { url, fetch, timeout_ms }: RequestOptions,
  signal: AbortSignal,
): Promise<Answer> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json',
    ...(authorization === null ? {} : { authorization }),
  };
  try {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(timeout_ms)]);
    // A redirect would carry the evidence, and not the key, to who knows where.
    const init = { method: 'POST', headers, body: JSON.stringify(body), signal: limited, redirect: 'error' } as const;
    const response = await fetch(url, init);
    const text = await readText(response, MAX_ANSWER_BYTES);
    return { status: response.status, text, retry_after: response.headers.get('retry-after') };
  } catch (cause) {
    signal.throwIfAborted();
    throw new ServiceUnavailable(`nras_unreachable: ${new URL(url).host} ${networkReason(cause, timeout_ms)}`, null, {
      cause,
    });
  }
}

/** @throws {RangeError} more than `max_bytes`. */
export async function readText(response: Response, max_bytes: number): Promise<string> {
  return Buffer.from(await readLimited(response, max_bytes)).toString('utf8');
}

/** fetch hides why behind `cause`. */
export function networkReason(error: unknown, timeout_ms: number): string {
  if (!(error instanceof Error)) return 'could not be asked';
  if (error.name === 'TimeoutError') return `did not answer within ${timeout_ms} ms`;
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  return `could not be asked (${code ?? error.message})`;
}

/** What the service says in its own words, where it says it in JSON. */
function reasonIn(text: string): string {
  try {
    const { message, error, detail } = JSON.parse(text) as Record<string, unknown>;
    const said = [message, detail, error].find((one) => typeof one === 'string');
    if (typeof said !== 'string') return '';
    return `: ${said.replace(/[^ -~]/g, '?').slice(0, MAX_REASON_CHARACTERS)}`;
  } catch {
    return '';
  }
}
