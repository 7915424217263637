// An opened request: its checked head, and its body as it is opened. Routes read it like any other request.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { type Message, type RequestHead, SealedError } from '../../sealed/index.ts';
import { HOP_BY_HOP } from '../backend/headers.ts';
import { Problem } from '../base/problem.ts';
import { decodedPath, isHost, METHODS, VERIFY_PATH } from '../base/target.ts';
import { ClientGone } from '../http/body.ts';

/** The bytes of a request as they arrive. It reads on demand, and never closes the connection, which the response still needs. */
export class IncomingChunks implements AsyncIterableIterator<Uint8Array> {
  readonly #incoming: IncomingMessage;
  #chunk: Buffer | null = null;
  #ended = false;
  /** What {@link next} throws from now on. */
  #failure: Error | null = null;
  #wake: (() => void) | null = null;

  constructor(incoming: IncomingMessage) {
    this.#incoming = incoming;
    incoming
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('error', this.#onGone)
      .on('close', this.#onGone)
      .pause();
    // The client may have disconnected before, and `close` is not emitted again.
    if (incoming.destroyed) this.#onGone();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    while (this.#chunk === null && !this.#ended && this.#failure === null) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      this.#incoming.resume();
      await promise;
    }
    if (this.#failure !== null) throw this.#failure;
    const value = this.#chunk;
    this.#chunk = null;
    return value === null ? { done: true, value: undefined } : { done: false, value };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Ends the reading with this error. */
  fail(error: Error): void {
    if (!this.#ended) this.#failure ??= error;
    this.#wake?.();
  }

  /** Discards the rest: a client that still sends would lose its response if the connection were cut. */
  release(): void {
    const incoming = this.#incoming;
    incoming.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onGone).off('close', this.#onGone);
    incoming.resume();
  }

  #onData = (chunk: Buffer): void => {
    this.#incoming.pause();
    this.#chunk = this.#chunk === null ? chunk : Buffer.concat([this.#chunk, chunk]);
    this.#wake?.();
  };
  #onEnd = (): void => {
    this.#ended = true;
    this.#wake?.();
  };
  #onGone = (): void => this.fail(new ClientGone('the client left before its request was complete'));
}

/** A request's head, with Node's members. */
interface OpenedHead {
  readonly method: string;
  /** With the query. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
}

export class OpenedRequest extends Readable {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly #content: AsyncIterator<Uint8Array>;
  /** Bytes of `content-length` that have not arrived yet; null: the request has no such header. */
  #announced_bytes: number | null;

  /** `content` throws if the request is incomplete. */
  constructor({ method, url, headers }: OpenedHead, content: AsyncIterable<Uint8Array>) {
    super();
    this.method = method;
    this.url = url;
    this.headers = headers;
    this.#content = content[Symbol.asyncIterator]();
    this.#announced_bytes = headers['content-length'] === undefined ? null : Number(headers['content-length']);
    // The content may fail when no route listens any more.
    this.on('error', () => {});
  }

  override _read(): void {
    this.#content.next().then(
      (next) => {
        if (this.destroyed) return;
        const fault = this.#count(next.done === true ? null : next.value.length);
        if (fault !== null) this.destroy(fault);
        else this.push(next.done === true ? null : next.value);
      },
      (error: unknown) => this.destroy(problemOf(error)),
    );
  }

  /** Returns the fault of a body that differs from its announced length. `bytes` null: the body has ended. */
  #count(bytes: number | null): Problem | null {
    if (this.#announced_bytes === null) return null;
    this.#announced_bytes -= bytes ?? 0;
    const wrong = bytes === null ? this.#announced_bytes !== 0 : this.#announced_bytes < 0;
    return wrong ? new Problem('invalid_request', 'The body has not the length that content-length says.') : null;
  }
}

/** Returns the client's error for a request that cannot be opened or read. Errors of the connection are returned as they are. */
export function problemOf(error: unknown): Error {
  if (!(error instanceof SealedError)) return error as Error;
  return error.code === 'sealed_key_unknown'
    ? new Problem('sealed_key_unknown', error.message)
    : new Problem('sealed_malformed', error.message);
}

/** Fields that have no meaning inside a sealed message. */
const WITHHELD = new Set([...HOP_BY_HOP, 'expect']);
/** Control characters, and characters beyond Latin-1 (RFC 9110 §5.5). */
const NOT_IN_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const ONCE = new Set(['authorization', 'x-api-key', 'content-length', 'content-type', 'date', 'host']);

/** The head of an opened request, checked as the server checks other heads. @throws {Problem} */
export function headOf({ method, authority, path, fields }: RequestHead): OpenedHead {
  if (!/^\/[!-~]*$/.test(path)) throw new Problem('invalid_request', 'The request target is not valid.');
  const route = decodedPath(path);
  if (!route.startsWith('/v1/') && route !== VERIFY_PATH)
    throw new Problem('not_found', 'Sealed requests are for what is under /v1, and for the verify endpoint.');
  if (!METHODS.has(method)) throw new Problem('method_not_allowed', 'This method is not served here.');
  const headers: Record<string, string> = {};
  for (const [name, value] of fields) {
    if (WITHHELD.has(name)) continue;
    if (NOT_IN_FIELD_VALUE.test(value))
      throw new Problem('invalid_request', 'A header has a value that HTTP does not allow.');
    const before = headers[name];
    if (before !== undefined && ONCE.has(name)) throw new Problem('invalid_request', `Send one ${name} header.`);
    headers[name] = before === undefined ? value : `${before}${name === 'cookie' ? '; ' : ', '}${value}`;
  }
  const host = authority === '' ? headers.host : authority;
  if (host === undefined || !isHost(host)) throw new Problem('invalid_request', 'The request names no host.');
  const length = headers['content-length'];
  if (length !== undefined && !/^\d{1,15}$/.test(length))
    throw new Problem('invalid_request', 'The content-length is no number.');
  return { method, url: path, headers: { ...headers, host } };
}

/** The largest difference between the client's clock and the gateway's. */
const MAX_APART_MS = 5 * 60_000;

/** Rejects an old request: a proxy could hold it back for as long as its key lives. @throws {Problem} sealed_stale */
export function checkDate({ date }: IncomingHttpHeaders, now_ms: number): void {
  if (date === undefined) throw new Problem('sealed_stale', 'A sealed request needs a date header.');
  const sealed_ms = Date.parse(date);
  if (!(Math.abs(now_ms - sealed_ms) <= MAX_APART_MS))
    throw new Problem(
      'sealed_stale',
      'The date of the sealed request is more than five minutes away from the clock here.',
    );
}

/** The largest body of a request with another method than POST. */
const MAX_SMALL_BYTES = 16 * 1024;

/**
 * Makes the request that routes read. A route that reads no body would respond before the request is known to be complete, so the body is
 * read here for every method but POST, whose routes read it. @throws {Problem} body_too_large, sealed_malformed
 */
export async function openedRequest(head: OpenedHead, { content }: Message<RequestHead>): Promise<OpenedRequest> {
  if (head.method === 'POST') return new OpenedRequest(head, content);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of content) {
    bytes += chunk.length;
    if (bytes > MAX_SMALL_BYTES)
      throw new Problem(
        'body_too_large',
        `The body of a sealed ${head.method} is larger than ${MAX_SMALL_BYTES} bytes.`,
      );
    chunks.push(chunk);
  }
  return new OpenedRequest(head, Readable.from(chunks));
}
