// The error for a response that is not proven, and the response that clients get for a refusal of any kind.
import type { FailureCode } from '../common/checks.ts';

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
const NOT_VERIFIED = 'The attestation of the answer does not verify.';

/** A response is not proven: `onUnproven` is called with it, and a stream errors with it. Its message is fixed, without server data. */
export class UnprovenAnswerError extends Error {
  override readonly name = 'UnprovenAnswerError';
  readonly code: UnprovenCode;
  /** `cause`: the VerificationError with its checks, where a check failed. */
  constructor(code: UnprovenCode, options?: ErrorOptions) {
    super(Object.hasOwn(MESSAGES, code) ? MESSAGES[code as keyof typeof MESSAGES] : NOT_VERIFIED, options);
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
