// Carries one answer from the backend to the client: one of the deliveries writes it, the client's leaving cancels it.

import type { IncomingHttpHeaders } from 'node:http';
import {
  type Backend,
  type BackendCall,
  type BackendRequest,
  type ResponseHandler,
  type ResponseHead,
  rewriteError,
} from '../backend/backend.ts';
import { toClient } from '../backend/headers.ts';
import type { Outgoing } from '../http/plain-path/response.ts';
import { Problem } from '../http/problem.ts';
import { type SharedHeaders, share } from '../http/shared-headers.ts';
import type { Owner } from '../keys/keys.ts';
import type { Outcome, Watch } from '../telemetry/telemetry.ts';

// One exchange: a request as the client sent it, and the response that its answer goes into.

export interface Exchange {
  readonly outgoing: Outgoing;
  readonly watch: Watch;
}

/** One whose response is attested. */
export interface TeeExchange extends Exchange {
  /** Unguessable; x-request-id and x-attestation-id. */
  readonly id: string;
  readonly owner: Owner;
  /** The client's body, exactly as received, as text or bytes. */
  readonly request: string | Buffer;
  /** How many choices the request asked for. */
  readonly choices: number;
  /** Counts what is kept of the response until it is attested. @throws {Problem} overloaded */
  hold(chunk: Buffer): void;
}

/** Takes a response after its head, and writes it to the client. */
export type Delivery = Omit<ResponseHandler, 'head'>;

/** The last one looked at: a backend says the same in nearly all of its answers. */
let lastMediaType = { contentType: '', type: '' };

export function mediaType(headers: IncomingHttpHeaders): string {
  const contentType = headers['content-type'] ?? '';
  if (contentType !== lastMediaType.contentType)
    lastMediaType = { contentType, type: contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '' };
  return lastMediaType.type;
}

/** What a delivery is given beside the head. */
export interface Port extends BackendCall {
  /** `left` is called when the client leaves, or at once if it has. A second call takes the place of the first. */
  onDisconnect(callback: () => void): void;
  /** The answer is out, or as much of it as there will be. */
  done(outcome: Outcome): void;
  /** Nothing was written yet: the problem becomes the answer. */
  refuse(problem: Problem): void;
}

type Deliver = (head: ResponseHead, port: Port) => Delivery;

/** Resolves when the exchange is over, however it ended. @throws {Problem} while nothing has been written. */
export function relay(
  backend: Backend,
  request: BackendRequest,
  exchange: Exchange,
  deliver: Deliver,
): Promise<Outcome> {
  // Whoever left while the sidecar was waited for costs the backend nothing.
  if (exchange.outgoing.destroyed) return Promise.resolve({ status: 499 });
  return new Promise((resolve, reject) => {
    const relayed = new Relay(exchange, deliver, resolve, reject);
    relayed.begin(backend, request);
  });
}

class Relay implements ResponseHandler, Port {
  readonly #exchange: Exchange;
  readonly #deliver: Deliver;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #reject: (problem: Problem) => void;
  #call: BackendCall | null = null;
  #delivery: Delivery | null = null;
  #disconnectCallback: (() => void) | null = null;
  #disconnected = false;
  #settled = false;

  constructor(
    exchange: Exchange,
    deliver: Deliver,
    resolve: (outcome: Outcome) => void,
    reject: (problem: Problem) => void,
  ) {
    this.#exchange = exchange;
    this.#deliver = deliver;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(backend: Backend, request: BackendRequest): void {
    const { outgoing, watch } = this.#exchange;
    watch.requestSent();
    this.#call = backend.call(request, this);
    outgoing.on('close', this.#onClose);
  }

  head(head: ResponseHead): void {
    const { status, headers } = head;
    this.#exchange.watch.head(status, headers['content-type']);
    if (status >= 400) this.#delivery = errorDelivery(head, this, this.#exchange);
    else if (status >= 300) this.refuse(new Problem('backend_bad_response', 'The backend answered with a redirect.'));
    else this.#delivery = this.#deliver(head, this);
  }

  data(chunk: Buffer): void {
    this.#exchange.watch.chunk();
    this.#delivery?.data(chunk);
  }

  end(): void {
    this.#delivery?.end();
  }

  fail(problem: Problem): void {
    if (this.#delivery === null) this.refuse(problem);
    else this.#delivery.fail(problem);
  }

  pause(): void {
    this.#call?.pause();
  }

  resume(): void {
    this.#call?.resume();
  }

  cancel(): void {
    this.#call?.cancel();
  }

  onDisconnect = (callback: () => void): void => {
    if (this.#disconnected) callback();
    else this.#disconnectCallback = callback;
  };

  done(outcome: Outcome): void {
    if (this.#settle()) this.#resolve(outcome);
  }

  refuse(problem: Problem): void {
    this.cancel();
    if (this.#settle()) this.#reject(problem);
  }

  #settle(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    this.#exchange.outgoing.off('close', this.#onClose);
    return true;
  }

  #onClose = (): void => {
    if (this.#settled) return;
    this.#settled = true;
    this.#disconnected = true;
    this.cancel();
    this.#disconnectCallback?.();
    // 499 is nginx's word in a log for a client that closed its request; nobody receives it.
    this.#resolve({ status: 499 });
  };
}

/** A writer that stops the backend while the client cannot take more. */
export function backpressureWriter(exchange: Exchange, flow: BackendCall): (bytes: Uint8Array) => void {
  const { outgoing } = exchange;
  let waiting = false;
  const onDrain = () => {
    waiting = false;
    flow.resume();
  };
  return (bytes) => {
    if (outgoing.write(bytes) || waiting || outgoing.destroyed) return;
    waiting = true;
    flow.pause();
    outgoing.once('drain', onDrain);
  };
}

/** An error in a stream that has begun. */
export function errorEvent(problem: Problem): Buffer {
  return Buffer.from(`data: ${JSON.stringify(problem.body)}\n\n`);
}

// Delivers a backend's error: its status, its retry-after, its words in OpenAI's shape.

const MAX_ERROR_BYTES = 256 * 1024;
/** A day. */
const MAX_RETRY_S = 86_400;

export function errorDelivery(head: ResponseHead, port: Port, exchange: Exchange): Delivery {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const send = () => {
    const body = JSON.stringify(rewriteError(head.status, Buffer.concat(chunks).toString('utf8')));
    const headers = toClient(head.headers);
    // No other header of an error answer is about the body that goes out.
    const forwarded = Object.fromEntries(
      Object.entries(headers).filter(([name]) =>
        /^(retry-after(-ms)?|www-authenticate|allow|x-ratelimit-.*)$/.test(name),
      ),
    );
    const retry = retryAfter(head);
    exchange.outgoing.writeHead(head.status, {
      ...forwarded,
      ...(retry === null ? {} : { 'retry-after': retry }),
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    exchange.outgoing.end(body);
    port.done({ status: head.status });
  };
  return {
    data(chunk) {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes < MAX_ERROR_BYTES) return;
      port.cancel();
      send();
    },
    end: send,
    fail: () =>
      port.refuse(
        new Problem('backend_bad_response', `The backend broke off while it answered with status ${head.status}.`),
      ),
  };
}

/** Clients expect whole seconds: a date or a fraction becomes them, and 429 and 503 always have one. */
function retryAfter(head: ResponseHead): string | null {
  const value = head.headers['retry-after'];
  if (value === undefined) return head.status === 429 || head.status === 503 ? '1' : null;
  const seconds = Number.isNaN(Number(value)) ? (Date.parse(value) - Date.now()) / 1000 : Number(value);
  return String(Number.isFinite(seconds) ? Math.min(MAX_RETRY_S, Math.max(1, Math.ceil(seconds))) : 1);
}

// What the client is told with an answer of the backend's: made once for each head that the backend says.

/** Whether it is a stream follows from the head: whoever gets a head a second time must say the same of it. */
export function headersOf(head: ResponseHead, stream: boolean): SharedHeaders {
  head.cache.clientHeaders ??= share(
    stream ? { ...toClient(head.headers), 'x-accel-buffering': 'no' } : toClient(head.headers),
  );
  return head.cache.clientHeaders;
}

// Delivers an answer as it comes, without tee: nothing is parsed, held or added.

export function pipeDelivery(head: ResponseHead, port: Port, exchange: Exchange): Delivery {
  const { outgoing } = exchange;
  const stream = mediaType(head.headers) === 'text/event-stream';
  const write = backpressureWriter(exchange, port);
  function begin(): void {
    if (head.length !== null) outgoing.setHeader('content-length', String(head.length));
    outgoing.writeHead(head.status, headersOf(head, stream));
  }
  if (stream) {
    begin();
    outgoing.flushHeaders();
  }
  /** The last four bytes; null before the first. */
  let tail: number | null = null;
  return {
    data(chunk) {
      if (stream) tail = tailOf(tail, chunk);
      else if (!outgoing.headersSent) begin();
      write(chunk);
    },
    end() {
      if (!outgoing.headersSent) begin();
      outgoing.end();
      port.done({ status: head.status });
    },
    fail(problem) {
      if (!outgoing.headersSent) return port.refuse(problem);
      // Between two events an error can be said. Inside one, or inside a body of known length, only a broken connection is honest.
      if (stream && head.length === null && betweenEvents(tail)) outgoing.end(errorEvent(problem));
      else outgoing.destroy();
      port.done({ status: head.status, problem });
    },
  };
}

/** As one number: it keeps nothing of the chunk in memory. */
function tailOf(before: number | null, chunk: Buffer): number {
  let tail = before ?? 0;
  for (let i = Math.max(0, chunk.length - 4); i < chunk.length; i++) tail = (tail << 8) | (chunk[i] as number);
  return tail;
}

/** Behind `\n\n`, `\r\r` or `\r\n\r\n`, or before everything. */
function betweenEvents(tail: number | null): boolean {
  if (tail === null) return true;
  const two = tail & 0xffff;
  return two === 0x0a0a || two === 0x0d0d || tail === 0x0d0a0d0a;
}
