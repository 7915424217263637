// A fetch that seals every request to a key of the attested machine, and opens its response: nothing in between reads or changes either.
import {
  chunksOf,
  type Field,
  REQUEST_MEDIA_TYPE,
  RESPONSE_MEDIA_TYPE,
  readResponse,
  SealedError,
  type SealedRequest,
  sealRequest,
  writeContent,
  writeEnd,
  writeRequestHead,
} from '../../sealed/index.ts';
import { type Bytes, concat } from '../common/bytes.ts';
import { type Names, namesBut } from '../common/known-options.ts';
import { mediaType, readLimited } from '../common/limited.ts';
import { refuseUnknownOptions, VERIFY_OPTIONS } from '../policy/options.ts';
import { OUTER_CODES, refusalOf, type SealedFetchCode, SealedFetchError } from './errors.ts';
import { willBeSealed } from './sealed-answers.ts';
import { createSessions, retryAfter, type Sealing, type SessionOptions } from './sealed-session.ts';

export { MEANING, type SealedFetchCode, SealedFetchError } from './errors.ts';
export type { SealedSession, SessionOptions } from './sealed-session.ts';

export interface SealedFetchOptions extends SessionOptions {
  /** The gateway's base URL, with or without `/v1`. Requests for any other address are refused. */
  readonly url: string;
  /** Sends the sealed requests; the global fetch by default. */
  readonly fetch?: typeof globalThis.fetch;
  /**
   * Unsealed headers of each sealed request and of the request for the session, such as the key of a reverse proxy. Every server before
   * the gateway can read them.
   */
  readonly edgeHeaders?: Readonly<Record<string, string>>;
  /** Whether requests are padded to the next of 1, 4, 16, 64 KiB, and above to whole 64 KiB, so that sizes say less. Not by default. */
  readonly padding?: boolean;
  /** Called for every refusal. */
  readonly onRefused?: (error: SealedFetchError) => void;
  /** The clock, in milliseconds; Date.now by default. */
  readonly now_ms?: () => number;
}

const OPTIONS: Names<SealedFetchOptions> = {
  ...namesBut(VERIFY_OPTIONS, 'at', 'clocks', 'expected', 'session', 'stopAtFailure'),
  url: true,
  fetch: true,
  edgeHeaders: true,
  padding: true,
  onRefused: true,
  now_ms: true,
  challenge: true,
  onSession: true,
};
/** Limit for the body of an unsealed error response. */
const MAX_OUTER_ERROR_BYTES = 64 * 1024;
/** Headers of one connection, or written anew here. An opened body is not decoded, so no encoding is accepted. */
const WITHHELD = new Set([
  ...['accept-encoding', 'connection', 'content-length', 'date', 'expect', 'host', 'keep-alive', 'te', 'trailer'],
  ...['proxy-connection', 'transfer-encoding', 'upgrade'],
]);
/** Responses that Fetch allows no body. */
const BODILESS = [204, 205, 304];

/**
 * A `fetch` for one gateway. Before the first request it verifies the gateway's session (GPUs, processor and, by `policy.minLevel`,
 * software), and then seals method, path, headers and body of each request to the key that this session names. Only the holder of that
 * key can have written the response; its body errors where it was cut or changed on the way. A new session is verified before the
 * current one ends, and once when the gateway no longer has the key. No request is sent unsealed, and no unsealed response is returned.
 *
 * ```ts
 * const options = { collateral, cpu: { reference } };
 * const sealed = sealedFetch({ ...options, url: 'https://gateway.example' });
 * const client = new OpenAI({ baseURL: 'https://gateway.example/v1', fetch: verifyingFetch({ ...options, fetch: sealed }) });
 * ```
 * `verifyingFetch` over it accepts only responses that are signed in a session that was verified here.
 *
 * A refusal is a response with an error in OpenAI's form, for which clients throw an error of their own. Where this client refuses, its
 * type is `sealing_refused`, with status 400 and `x-should-retry: false`; where a server before the machine does, `edge_refused` with
 * that server's status. Errors of the network are thrown as they are.
 * @throws {TypeError} for a URL or options that cannot be used.
 */
export function sealedFetch(options: SealedFetchOptions): typeof globalThis.fetch {
  refuseUnknownOptions(options, OPTIONS);
  const {
    url,
    fetch: send = globalThis.fetch,
    edgeHeaders,
    padding = false,
    onRefused,
    now_ms = Date.now,
    ...session
  } = options;
  const gateway = baseOf(url);
  const outer = new Headers(edgeHeaders);
  const source = { url: `${gateway}/v1/attestation/session`, headers: new Headers(outer), fetch: send, now_ms };
  const sessions = createSessions(source, session);
  outer.set('content-type', REQUEST_MEDIA_TYPE);
  // Asks servers in between to forward chunks as they come (draft-ietf-httpbis-incremental).
  outer.set('incremental', '?1');

  async function exchange(request: Request): Promise<Response> {
    const target = targetOf(request, gateway);
    const body = new Uint8Array(await request.arrayBuffer());
    await willBeSealed(body, sessions.isInSession);
    const message = messageOf(request, target, body, new Date(now_ms()), padding);
    const sealing = await sessions.current(request.signal);
    const response =
      (await exchangeSealed(request, message, sealing)) ??
      (await exchangeSealed(request, message, await sessions.current(request.signal, sealing)));
    if (response === null) throw new SealedFetchError('sealed_key_unknown', { status: 422 });
    return response;
  }

  /** null: the gateway does not have the key. */
  async function exchangeSealed(request: Request, message: Bytes, { key }: Sealing): Promise<Response | null> {
    const sealed = await sealRequest(key, only(message));
    // Buffered: no browser streams a request body over HTTP/1.1.
    const body = await whole(sealed.chunks);
    const cancelling = new AbortController();
    const signal = AbortSignal.any([request.signal, cancelling.signal]);
    const response = await send(`${gateway}/ohttp`, {
      method: 'POST',
      headers: outer,
      body,
      signal,
      redirect: 'manual',
    });
    if (isSealed(response)) return opened(request.method, sealed, response.body, cancelling);
    const error = await outerError(response);
    cancelling.abort();
    if (error.code === 'sealed_key_unknown') return null;
    throw error;
  }

  return async (input, init) => {
    try {
      return await exchange(new Request(input, init));
    } catch (error) {
      if (!(error instanceof SealedFetchError)) throw error;
      onRefused?.(error);
      return refusalOf(error);
    }
  };
}

/** The URL without a slash at its end, and without `/v1`. @throws {TypeError} */
function baseOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search !== '' || parsed.hash !== '')
    throw new TypeError('url is not the base URL of a gateway');
  return parsed.origin + parsed.pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
}

// Writes the request that is sealed.

/** The path at the gateway. @throws {SealedFetchError} other_gateway */
function targetOf(request: Request, gateway: string): string {
  const url = new URL(request.url);
  const target = url.origin + url.pathname + url.search;
  if (!target.startsWith(`${gateway}/`)) throw new SealedFetchError('other_gateway');
  return target.slice(gateway.length);
}

/** The request in Binary HTTP. */
function messageOf(request: Request, path: string, body: Bytes, date: Date, padding: boolean): Bytes {
  const url = new URL(request.url);
  const fields: Field[] = [...request.headers].filter(([name]) => !WITHHELD.has(name));
  const head = writeRequestHead({
    method: request.method,
    scheme: url.protocol.slice(0, -1),
    authority: url.host,
    path,
    fields: [...fields, ['date', date.toUTCString()]],
  });
  const content = writeContent(body);
  const length = head.length + content.length + writeEnd().length;
  return concat([head, content, writeEnd(padding ? paddedTo(length) - length : 0)]);
}

const LARGEST_SIZE = 64 * 1024;
const SIZES = [1024, 4 * 1024, 16 * 1024, LARGEST_SIZE];

const paddedTo = (length: number): number =>
  SIZES.find((size) => length <= size) ?? Math.ceil(length / LARGEST_SIZE) * LARGEST_SIZE;

async function* only(chunk: Bytes): AsyncGenerator<Bytes, void, undefined> {
  yield chunk;
}

async function whole(chunks: AsyncIterable<Uint8Array>): Promise<Bytes> {
  const list: Uint8Array[] = [];
  for await (const chunk of chunks) list.push(chunk);
  return concat(list);
}

// Reads the response, sealed or not.

interface Sealed extends Response {
  readonly body: NonNullable<Response['body']>;
}

function isSealed(response: Response): response is Sealed {
  return response.status === 200 && mediaType(response) === RESPONSE_MEDIA_TYPE && response.body !== null;
}

/** The error for an unsealed response. Its text is not returned, because anyone in between may have written it. */
async function outerError(response: Response): Promise<SealedFetchError> {
  const { status } = response;
  if (status < 400 || status > 599) return new SealedFetchError('answer_not_sealed');
  const named = await codeIn(response);
  const code: SealedFetchCode = OUTER_CODES.find((one) => one === named) ?? 'edge_refused';
  return new SealedFetchError(code, { status, retry_after: retryAfter(response) });
}

async function codeIn(response: Response): Promise<unknown> {
  try {
    const text = new TextDecoder().decode(await readLimited(response, MAX_OUTER_ERROR_BYTES));
    return (JSON.parse(text) as { error?: { code?: unknown } | null } | null)?.error?.code;
  } catch {
    return null;
  }
}

/** @throws {SealedFetchError} for a response that was cut or changed before the end of its head; network errors. */
async function opened(
  method: string,
  request: SealedRequest,
  body: ReadableStream<Uint8Array>,
  cancelling: AbortController,
): Promise<Response> {
  try {
    const { head, content } = await readResponse(request.openResponse(chunksOf(body)));
    const { status } = head;
    const headers = new Headers(head.fields.map(([name, value]): [string, string] => [name, value]));
    const isBodiless = method === 'HEAD' || BODILESS.includes(status);
    if (isBodiless) await endOf(content);
    return new Response(isBodiless ? null : streamOf(content, cancelling), { status, headers });
  } catch (error) {
    cancelling.abort();
    throw refused(error);
  }
}

const refused = (error: unknown): unknown =>
  error instanceof SealedError ? new SealedFetchError(error.code, { cause: error }) : error;

/** @throws {SealedError} sealed_malformed where the response has a body. */
async function endOf(content: AsyncGenerator<Uint8Array>): Promise<void> {
  if ((await content.next()).done !== true)
    throw new SealedError('sealed_malformed', 'A response that has no body came with one.');
}

/** Ends where the whole message was opened, and errors in every other case. */
function streamOf(content: AsyncGenerator<Uint8Array>, cancelling: AbortController): ReadableStream<Uint8Array> {
  return new ReadableStream(
    {
      async pull(controller) {
        try {
          const next = await content.next();
          if (next.done === true) controller.close();
          else controller.enqueue(next.value);
        } catch (error) {
          cancelling.abort();
          controller.error(refused(error));
        }
      },
      cancel() {
        cancelling.abort();
      },
    },
    { highWaterMark: 0 },
  );
}
