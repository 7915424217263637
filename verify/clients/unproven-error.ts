// The error for a response that is not proven, and the response that clients get for a refusal of any kind.
import { type FailureCode, VerificationError } from '../common/checks.ts';

/** The code of an {@link UnprovenAnswerError}: that of the check that failed, or one of its own. */
export type UnprovenCode = FailureCode | keyof typeof MESSAGES;

const MESSAGES = {
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
} as const;

/** What the caller can do about a check that failed. */
const CAUSES: Readonly<Partial<Record<FailureCode, string>>> = {
  simulated_root_refused: 'the GPU is simulated: pass its root (simulatedRoot)',
  raw_hash_mismatch: 'the request or the answer was changed after it was signed',
  request_mismatch: 'another request was signed than was sent',
  response_mismatch: 'another answer was signed than arrived',
  stream_mismatch: 'another stream was signed than arrived',
  rim_unavailable: "NVIDIA's reference values are needed: pass collateral (createCollateral)",
  revocation_unavailable: 'whether certificates were revoked is needed: pass collateral (createCollateral)',
};

/** The cause in our words and the policy's: of a policy that refuses, what was found and what the caller demands. */
export function causeIn(code: FailureCode, error: unknown): string {
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
    const own = Object.hasOwn(MESSAGES, code) ? MESSAGES[code as keyof typeof MESSAGES] : null;
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
