// The error for a request that was not sealed or a response that was refused, and the response that clients get for it.
import type { SealedErrorCode } from '../../sealed/index.ts';
import type { FailureCode } from '../common/checks.ts';
import type { Level } from '../policy/options.ts';
import { causeIn, refusal } from './unproven-error.ts';

const MESSAGES = {
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
export type SealedFetchCode = keyof typeof MESSAGES | 'level_too_low' | FailureCode;

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
    const own = Object.hasOwn(MESSAGES, code) ? MESSAGES[code as Known] : null;
    const refused = () => `${MESSAGES.session_refused} The cause: ${causeIn(code as FailureCode, options.cause)}.`;
    const text = message ?? own ?? refused();
    super(status === null ? text : `${text} (status ${status})`, options);
    this.code = code;
    this.status = status;
    this.retry_after = retry_after;
  }
}

type Known = keyof typeof MESSAGES;

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
