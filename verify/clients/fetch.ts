// A fetch for OpenAI clients that requests an attestation with every response and lets no response end unproven.

import { nonceOf } from '../../proto/attestation/raw.ts';
import { isObject, withLastMember } from '../../proto/json.ts';
import { streamFormOf } from '../../proto/stream/forms.ts';
import { verifyAttestation } from '../attestation.ts';
import { attestationIn } from '../binding/input.ts';
import { type Bundles, createBundles, fetchBundle } from '../common/bundles.ts';
import { toBase64Url } from '../common/bytes.ts';
import { VerificationError } from '../common/checks.ts';
import { type Names, namesBut } from '../common/known-options.ts';
import { BodyTooLarge, mediaType, readLimited } from '../common/limited.ts';
import { LruMap } from '../common/lru.ts';
import {
  type Expected,
  type Policy,
  refuseUnknownOptions,
  VERIFY_OPTIONS,
  type Verified,
  type VerifyOptions,
} from '../policy/options.ts';
import { refusal, UnprovenAnswerError } from './errors.ts';
import { heldUntilProven } from './held-stream.ts';
import { type IsInSession, sessionOf } from './sealed-answers.ts';
import { recordOf, type TranscriptSink } from './transcript.ts';

export { UnprovenAnswerError, type UnprovenCode } from './errors.ts';
export type { TranscriptRecord, TranscriptSink } from './transcript.ts';

export interface VerifyingFetchOptions extends Omit<VerifyOptions, 'expected'> {
  /** Sends the requests; the global fetch by default. */
  readonly fetch?: typeof globalThis.fetch;
  /** Called with every proof and the caller's own request, before the response (or the end of its stream) is returned. */
  readonly onVerified?: (verified: Verified, request: Request) => void;
  /** Called for every refusal; `cause` has the checks. */
  readonly onUnproven?: (error: UnprovenAnswerError) => void;
  /** Largest response, whole or streamed, that is buffered for the check, in bytes. 64 MiB by default. */
  readonly max_stream_bytes?: number;
  /**
   * Paths whose responses are returned without a proof, such as `/v1/audio/speech`: the whole path of the request's URL, or its end
   * from a slash on.
   */
  readonly unprovenPaths?: readonly string[];
  /** Whether each response needs a signature of its own. By default responses may share one, unless `policy.maxBatch` is 1. */
  readonly strict?: boolean;
  /**
   * Whether attestations are compact: each names a bundle, which is fetched once from the same service, by `fetch`, and kept. The attestation
   * that `onVerified` gets is whole. Not by default.
   */
  readonly compact?: boolean;
  /**
   * Keeps each proven exchange, before its answer (or the end of its stream) is returned: `transcriptFile(path)` of
   * `@countersign/verify/transcript`, or a function of your own. Where it throws, the answer is refused (`transcript_failed`).
   */
  readonly transcript?: TranscriptSink;
}

const OPTIONS: Names<VerifyingFetchOptions> = {
  ...namesBut(VERIFY_OPTIONS, 'expected'),
  fetch: true,
  onVerified: true,
  onUnproven: true,
  max_stream_bytes: true,
  unprovenPaths: true,
  strict: true,
  compact: true,
  transcript: true,
};
/** Types of a body that may be JSON; fetch sets the last for a string whose sender names no type. */
const JSON_TYPES = ['application/json', '', 'text/plain'];
/** Lists of models and attestations: nothing that a model wrote. HEAD and OPTIONS have nothing to prove. */
const READ_ONLY = /\/(models(\/[^/]+)?|attestation)\/?$/;
const MAX_STREAM_BYTES = 64 * 1024 * 1024;
/** The greatest age of a proof, and how far ahead of this clock it may be, unless the caller's policy says otherwise. */
const FRESH = { maxAgeSeconds: 300, maxAheadSeconds: 60 };
/** The services whose bundles are kept. */
const MAX_SERVICES = 8;
/** The proofs of an hour at 28 a second, or all fresh ones at 277 a second. */
const MAX_SEEN = 100_000;

/**
 * A `fetch` that adds `tee` to every POST of a JSON object, with a fresh challenge, and checks every response against the endpoint and the
 * request that was sent, challenge and streamed bytes included. A `tee` of the caller's own is sent as it is. A whole response is returned
 * when it is proven. Words of a stream are forwarded as they come. The rest (from the first event on that carries a part of a tool call, or
 * says how the response ended) is forwarded when it is proven; otherwise the stream errors with an {@link UnprovenAnswerError}. A client
 * reads events that are written anew from the hashed payloads. A proof is refused when it is below level `gpu` (`none` with
 * `simulatedRoot`), older than 300 s, more than 60 s ahead (`policy`), or was seen before. Requests that cannot be proven are refused before
 * they are sent, unless `unprovenPaths` names their path; those for lists of models and attestations are passed through. The bundle of a
 * compact attestation is asked for once, where the request went; without it the response is refused (`bundle_unavailable`).
 *
 * What `onVerified` keeps can be audited for its weights later (`countersign audit`) where the request has `return_token_ids: true` and its
 * `temperature`, and for samples `top_p: 1`: this fetch adds none of them.
 *
 * ```ts
 * const client = new OpenAI({ baseURL: 'http://127.0.0.1:8080/v1', fetch: verifyingFetch({ onVerified: (v) => keep(v) }) });
 * ```
 * A refusal before the response is returned is a response of status 400 with `x-should-retry: false` and an error in OpenAI's form, whose
 * `code` is that of the failed check, or one of {@link UnprovenCode}: clients throw an error of their own with this code, and do not retry.
 * Errors of the server (a status of 400 or more) are returned as they are, those of the network are thrown as they are.
 * @throws {TypeError} for an option that there is not.
 */
export function verifyingFetch(options: VerifyingFetchOptions = {}): typeof globalThis.fetch {
  refuseUnknownOptions(options, OPTIONS);
  const {
    fetch: send = globalThis.fetch,
    onVerified,
    onUnproven,
    max_stream_bytes = MAX_STREAM_BYTES,
    unprovenPaths = [],
    strict = options.policy?.maxBatch === 1,
    compact = false,
    transcript,
    ...verify
  } = options;
  const policy = policyOf(verify, strict);
  const seen = new LruMap<string, true>(MAX_SEEN);
  const services = new LruMap<string, Service>(MAX_SERVICES);

  /** @param answer the text of a whole response, or the bytes of a stream. @throws {UnprovenAnswerError} */
  async function prove(
    answer: string | Uint8Array,
    expected: Expected,
    request: Request,
    isInSession: IsInSession | null,
    bundles: Bundles,
  ): Promise<void> {
    const given = { ...verify, bundles: verify.bundles ?? bundles, policy, expected };
    const verified = await verifyAttestation(answer, given).catch((cause) => {
      throw cause instanceof VerificationError ? new UnprovenAnswerError(cause.code, { cause }) : cause;
    });
    // An event of a stream must not count as a whole response.
    if (typeof answer === 'string' && verified.exchange.stream !== null)
      throw new UnprovenAnswerError('response_mismatch');
    if (isInSession !== null && !(await isInSession(verified))) throw new UnprovenAnswerError('session_mismatch');
    const rawHash = await nonceOf(verified.attestation.raw);
    if (seen.get(rawHash)) throw new UnprovenAnswerError('attestation_seen');
    seen.set(rawHash, true);
    if (transcript !== undefined) await keep(transcript, answer, verified, given.bundles);
    onVerified?.(verified, request);
  }

  /** @throws {UnprovenAnswerError} */
  async function fetchProven(request: Request, init: RequestInit | undefined, pathname: string): Promise<Response> {
    if (request.method !== 'POST' || !JSON_TYPES.includes(mediaType(request)))
      throw new UnprovenAnswerError('endpoint_not_proven');
    const endpoint = endpointOf(pathname);
    const { body, stream } = readRequest(await request.clone().text(), { strict, compact });
    const expected = { endpoint, request: body };
    const members = { ...membersOf(request), ...init };
    const response = await send(request.url, { ...members, ...sending(request, body) });
    if (response.status >= 400) return response;
    if (response.status !== 200) throw new UnprovenAnswerError('response_not_provable');
    const isInSession = await sessionOf(body);
    const bundles = bundlesOf(request, { ...members, headers: headersOf(request, true) });
    const proven = (answer: string | Uint8Array) => prove(answer, expected, request, isInSession, bundles);
    const type = mediaType(response);
    const form = streamFormOf(endpoint);
    if (type === 'text/event-stream' && stream && response.body !== null && form !== null) {
      const held = heldUntilProven(form, proven, max_stream_bytes);
      const received = failingWith((cause) => broken(cause, request.signal), response.body);
      const checked = failingWith(reported, received.pipeThrough(new TransformStream(held)));
      return rebuilt(response, 'text/event-stream; charset=utf-8', checked);
    }
    // A client that requested a stream reads nothing from a whole response, and reports no error.
    if (type !== 'application/json' || stream) throw new UnprovenAnswerError('response_not_provable');
    const text = await textOf(response, max_stream_bytes, request.signal);
    if (attestationIn(text) === null) throw new UnprovenAnswerError('attestation_missing');
    await proven(text);
    return rebuilt(response, 'application/json', text);
  }

  /** Bundles are asked for as the last request to their service was: the same headers may be needed before it. */
  function bundlesOf({ url }: Request, init: RequestInit): Bundles {
    const base = baseOf(url);
    const known = services.get(base);
    if (known !== undefined) known.init = init;
    const load = (sha256: string) => fetchBundle(base, sha256, { ...service.init, fetch: send });
    const service: Service = known ?? { bundles: createBundles({ load }), init };
    services.set(base, service);
    return service.bundles;
  }

  function reported(error: unknown): unknown {
    if (error instanceof UnprovenAnswerError) onUnproven?.(error);
    return error;
  }

  return async (input, init) => {
    const { method, url } = headOf(input, init);
    const { pathname } = new URL(url);
    if (isPassedThrough(method, pathname, unprovenPaths)) return send(input, init);
    try {
      return await fetchProven(new Request(input, init), init, pathname);
    } catch (error) {
      reported(error);
      if (error instanceof UnprovenAnswerError) return refusal(error, 'unproven_answer');
      throw error;
    }
  };
}

/** @throws {UnprovenAnswerError} where the sink throws. */
async function keep(
  sink: TranscriptSink,
  answer: string | Uint8Array,
  verified: Verified,
  bundles: Bundles,
): Promise<void> {
  try {
    await sink(await recordOf(answer, verified, bundles));
  } catch (cause) {
    throw new UnprovenAnswerError('transcript_failed', { cause });
  }
}

/** What a caller leaves out is strict: fresh proofs of genuine hardware. */
const policyOf = ({ policy, simulatedRoot }: VerifyOptions, strict: boolean): Policy => ({
  ...policy,
  maxBatch: policy?.maxBatch ?? (strict ? 1 : undefined),
  minLevel: policy?.minLevel ?? (simulatedRoot === undefined ? 'gpu' : 'none'),
  maxAgeSeconds: policy?.maxAgeSeconds ?? FRESH.maxAgeSeconds,
  maxAheadSeconds: policy?.maxAheadSeconds ?? FRESH.maxAheadSeconds,
});

/** The method and URL of a request whose body stays with the caller: a Request of a Request would take it. */
function headOf(input: Parameters<typeof fetch>[0], init: RequestInit | undefined): Request {
  const given = input instanceof Request ? input : null;
  return new Request(given?.url ?? (input as string | URL), { method: init?.method ?? given?.method ?? 'GET' });
}

/** The path that raw names. A proxy in front may add a prefix to it, or leave out `/v1`. */
function endpointOf(pathname: string): string {
  const at = pathname.lastIndexOf('/v1/');
  return at < 0 ? `/v1${/(\/chat)?\/[^/]*\/?$/.exec(pathname)?.[0]}` : pathname.slice(at);
}

interface Service {
  readonly bundles: Bundles;
  init: RequestInit;
}

/** The URL that the paths of a service's API follow. */
function baseOf(url: string): string {
  const { origin, pathname } = new URL(url);
  const at = pathname.lastIndexOf('/v1/');
  return origin + (at < 0 ? pathname.replace(/(\/chat)?\/[^/]*\/?$/, '') : pathname.slice(0, at + 3));
}

function isPassedThrough(method: string, pathname: string, unprovenPaths: readonly string[]): boolean {
  if (method === 'HEAD' || method === 'OPTIONS') return true;
  if (method === 'GET' && READ_ONLY.test(pathname)) return true;
  return unprovenPaths.some((path) => path.startsWith('/') && pathname.endsWith(path));
}

/** The options of a Request, for a fetch that gets its URL. Not every runtime has all of them. */
function membersOf({ redirect, credentials, cache, integrity, keepalive, referrerPolicy }: Request): RequestInit {
  const members = { redirect, credentials, cache, integrity, keepalive, referrerPolicy };
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

function sending(request: Request, body: string): RequestInit {
  return { method: 'POST', headers: headersOf(request), body, signal: request.signal };
}

/** @param bodiless of a request without a body */
function headersOf(request: Request, bodiless = false): Headers {
  const headers = new Headers(request.headers);
  headers.delete('content-length');
  if (bodiless) headers.delete('content-type');
  return headers;
}

/** The request's body with `tee`, and whether it requests a stream. @throws {UnprovenAnswerError} when it is no JSON object. */
function readRequest(body: string, form: ProofForm): { body: string; stream: boolean } {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw new UnprovenAnswerError('request_not_provable');
  }
  if (!isObject(value)) throw new UnprovenAnswerError('request_not_provable');
  const { tee, stream } = value;
  return { body: tee === undefined ? withLastMember(body, 'tee', freshTee(form)) : body, stream: stream === true };
}

interface ProofForm {
  readonly strict: boolean;
  readonly compact: boolean;
}

/** `challenge`: 32 random bytes in base64url. They are in no older proof. */
function freshTee({ strict, compact }: ProofForm): string {
  const challenge = toBase64Url(crypto.getRandomValues(new Uint8Array(32)));
  return JSON.stringify({ ...(strict ? {} : { batch: true }), ...(compact ? { compact: true } : {}), challenge });
}

/** @throws {UnprovenAnswerError} for more than `max_bytes`, or invalid UTF-8. */
async function textOf(response: Response, max_bytes: number, signal: AbortSignal): Promise<string> {
  const bytes = await readLimited(response, max_bytes).catch((cause) => {
    throw cause instanceof BodyTooLarge
      ? new UnprovenAnswerError('response_too_large', { cause })
      : broken(cause, signal);
  });
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new UnprovenAnswerError('attestation_missing', { cause });
  }
}

/** The error of a body that broke off. Some clients mistake other errors for their own, and end without an error. */
const broken = (cause: unknown, signal: AbortSignal): unknown =>
  signal.aborted ? cause : new UnprovenAnswerError('response_broken', { cause });

/** The same stream, whose error is mapped by `failure`. */
function failingWith(
  failure: (cause: unknown) => unknown,
  body: ReadableStream<Uint8Array>,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (cause) {
        controller.error(failure(cause));
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** The body is decoded already, so the headers of its encoding are removed. `type` replaces a charset that could change how it is read. */
function rebuilt(response: Response, type: string, body: string | ReadableStream<Uint8Array>): Response {
  const headers = new Headers(response.headers);
  headers.set('content-type', type);
  headers.delete('content-length');
  headers.delete('content-encoding');
  return new Response(body, { status: response.status, statusText: response.statusText, headers });
}
