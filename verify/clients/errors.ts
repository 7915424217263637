// The errors that clients get: for a request that was not sealed, and for a response that is refused or not proven.
import type { SealedErrorCode } from '../../sealed/index.ts';
import { type FailureCode, VerificationError } from '../common/checks.ts';
import type { Level } from '../policy/options.ts';

const SEALED_MESSAGES = {
  other_gateway: 'The request is for another address than that of the gateway. Nothing was sent.',
  session_missing: 'The gateway has no session: no processor signs there, and so there is no attested key to seal to.',
  session_unavailable: 'The session was not to be had, so nothing was sealed and nothing was sent.',
  session_refused: "The gateway's session does not verify, so nothing was sealed and nothing was sent.",
  session_without_key:
    "The gateway's verified session names no key for sealed requests (SEALED=off?). Nothing was sent.",
  answer_not_sealed: 'What came back is not sealed: the attested machine did not write it, and it is not handed over.',
  edge_refused: 'What stands before the attested machine refused the request, without opening it.',
  overloaded: 'The gateway is at its limit, and did not open the request.',
  store_unavailable: 'The store in which gateways keep what they have opened is away, so the request was not opened.',
  sealed_required: 'The gateway takes sealed requests alone, and this one did not reach it sealed.',
  sealed_replayed: 'The gateway had this sealed request before: something in between sent it twice.',
  sealed_key_unknown: 'The gateway cannot open what is sealed to the key of its own verified session, of two in a row.',
  sealed_malformed: 'Something in between changed the sealed request or its answer.',
  sealed_truncated: 'The sealed answer broke off.',
  sealed_not_opened: 'The sealed answer cannot be opened: something in between changed it.',
  sealed_too_large: 'The head of the sealed answer is larger than what is read.',
  sealed_unsupported: "This runtime has none of the algorithms that the gateway's keys are for.",
} as const satisfies Partial<Record<SealedErrorCode, string>> & Record<string, string>;

/** The code of a {@link SealedFetchError}: one of its own, or that of the check that the session failed. */
export type SealedFetchCode = keyof typeof SEALED_MESSAGES | 'level_too_low' | FailureCode;

/** The meaning of sealing for each level of the machine. */
export const MEANING: Readonly<Record<Level, string>> = {
  none: 'No hardware vouches for the holder of the key: it may be a simulation, or anything between here and the gateway, and it reads prompts.',
  gpu: 'A GPU signed, but no processor vouches for the software that holds the key: anybody who runs that machine reads prompts.',
  'gpu+cpu':
    'A confidential VM named the key, but which software runs in it was compared with nothing, so the key may be anywhere: sealing keeps prompts from anybody who lacks that key, and not from anybody who runs that machine.',
  measured:
    'A guest on your list named the key. Not shown: what its images do with prompts, that nobody broke in since (on SEV-SNP the host can, by ACPI tables). Anybody who owns the board may have its keys.',
};

/** Nothing was sent, or the response is not returned. The message contains nothing that a server sent. */
export class SealedFetchError extends Error {
  override readonly name = 'SealedFetchError';
  readonly code: SealedFetchCode;
  /** The status of an unsealed error response; null where this client refuses. */
  readonly status: number | null;
  /** `retry-after` of an unsealed error response, in seconds. */
  readonly retry_after: string | null;

  constructor(code: SealedFetchCode, options: ErrorOptions & SealedFetchDetails = {}) {
    const { status = null, retry_after = null, message } = options;
    const own = Object.hasOwn(SEALED_MESSAGES, code) ? SEALED_MESSAGES[code as Known] : null;
    const refused = () =>
      `${SEALED_MESSAGES.session_refused} The cause: ${causeIn(code as FailureCode, options.cause)}.`;
    const text = message ?? own ?? refused();
    super(status === null ? text : `${text} (status ${status})`, options);
    this.code = code;
    this.status = status;
    this.retry_after = retry_after;
  }
}

type Known = keyof typeof SEALED_MESSAGES;

interface SealedFetchDetails {
  readonly message?: string;
  readonly status?: number | null;
  readonly retry_after?: string | null;
}

export function levelTooLow(level: Level, minLevel: Level): SealedFetchError {
  const message = `The gateway's machine is of level ${level}, and policy.minLevel is ${minLevel}, so nothing was sealed and nothing was sent. ${MEANING[level]}`;
  return new SealedFetchError('level_too_low', { message });
}

/** Codes of the gateway itself, for requests that it did not open. Every other unsealed error counts as `edge_refused`. */
export const OUTER_CODES = [
  'overloaded',
  'store_unavailable',
  'sealed_required',
  'sealed_replayed',
  'sealed_key_unknown',
  'sealed_malformed',
] as const;

/** Statuses that clients have errors for, or retry. Others would make some clients retry for no reason. */
const isForwarded = (status: number | null): status is number =>
  status !== null && (status === 401 || status === 403 || status === 429 || (status >= 500 && status <= 599));

/** The response that clients get. */
export function refusalOf(error: SealedFetchError): Response {
  const { code, status, retry_after } = error;
  const type = status === null ? 'sealing_refused' : 'edge_refused';
  // Within seconds of a gateway's start, its session names keys that it has, so a retry helps.
  if (code === 'sealed_key_unknown') return refusal(error, type, 503, { 'retry-after': '2' });
  if (!isForwarded(status)) return refusal(error, type);
  return refusal(error, type, status, retry_after === null ? {} : { 'retry-after': retry_after });
}

// The error for a response that is not proven, and the response that clients get for a refusal of any kind.

/** The code of an {@link UnprovenAnswerError}: that of the check that failed, or one of its own. */
export type UnprovenCode = FailureCode | keyof typeof UNPROVEN_MESSAGES;

const UNPROVEN_MESSAGES = {
  endpoint_not_proven: 'Requests of this kind cannot be proven, and unprovenPaths does not name their path.',
  request_not_provable: 'The request body is not a JSON object.',
  response_not_provable: 'The response has a status or a type that no proof covers, or another than was asked for.',
  attestation_missing: 'The answer ended without an attestation.',
  attestation_seen: 'The attestation was handed over before, with another answer.',
  session_mismatch: 'The answer came sealed, and is signed in no session that was verified for sealing.',
  stream_malformed: 'The stream has more than data lines and comments, or is not in UTF-8.',
  stream_too_large: 'The stream is larger than what is kept to be checked.',
  response_broken: 'The answer broke off before its end.',
  response_too_large: 'The answer is larger than what is kept to be checked.',
  transcript_failed: 'The answer is proven, but the transcript did not take it, so it is not handed over.',
} as const;

/** What the caller can do about a check that failed. */
const CAUSES: Readonly<Partial<Record<FailureCode, string>>> = {
  simulated_root_refused: 'the GPU is simulated: pass its root (simulatedRoot)',
  bundle_unavailable: 'the service does not have the bundle that its compact attestation names',
  raw_hash_mismatch: 'the request or the answer was changed after it was signed',
  request_mismatch: 'another request was signed than was sent',
  response_mismatch: 'another answer was signed than arrived',
  stream_mismatch: 'another stream was signed than arrived',
  rim_unavailable: "NVIDIA's reference values are needed: pass collateral (createCollateral)",
  revocation_unavailable: 'whether certificates were revoked is needed: pass collateral (createCollateral)',
};

/** The cause in our words and the policy's: of a policy that refuses, what was found and what the caller demands. */
function causeIn(code: FailureCode, error: unknown): string {
  const checks = error instanceof VerificationError ? error.checks : [];
  const refused = checks.find(({ name, status }) => name === 'policy' && status === 'fail');
  if (refused?.code !== code || code === 'device_not_accepted') return CAUSES[code] ?? code;
  return refused.detail
    .replace(/the caller accepts (\S+) or more/, 'you demand $1')
    .replace('the caller accepts', 'you accept')
    .replace('the caller requires', 'you demand');
}

/** A response is not proven: `onUnproven` is called with it, and a stream errors with it. Nothing that a server wrote is in its message. */
export class UnprovenAnswerError extends Error {
  override readonly name = 'UnprovenAnswerError';
  readonly code: UnprovenCode;
  /** `cause`: the VerificationError with its checks, where a check failed. */
  constructor(code: UnprovenCode, options?: ErrorOptions) {
    const own = Object.hasOwn(UNPROVEN_MESSAGES, code)
      ? UNPROVEN_MESSAGES[code as keyof typeof UNPROVEN_MESSAGES]
      : null;
    const cause = () => causeIn(code as FailureCode, options?.cause);
    super(own ?? `The attestation of the answer does not verify: ${cause()}.`, options);
    this.code = code;
  }
}

/**
 * A response from which clients of OpenAI's and Anthropic's APIs make an error of their own. By default no client retries: 422 would fit
 * better than 400, but LangChain for JavaScript retries it six times (`STATUS_NO_RETRY` of @langchain/core's async_caller).
 */
export function refusal(
  { message, code }: Error & { readonly code: string },
  type: string,
  status = 400,
  headers: Readonly<Record<string, string>> = { 'x-should-retry': 'false' },
): Response {
  return Response.json({ error: { message, type, param: null, code } }, { status, headers });
}
