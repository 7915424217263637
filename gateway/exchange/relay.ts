// Relays one response from the backend to the client. A delivery writes it; when the client disconnects, the backend's request is
// cancelled.
import type { IncomingHttpHeaders } from 'node:http';
import type { StreamForm } from '../../proto/stream/forms.ts';
import { EventScanner } from '../../proto/stream/sse.ts';
import type { AttestedExchange } from '../attestation/interfaces.ts';
import type {
  Backend,
  BackendCall,
  BackendName,
  BackendRequest,
  Headers,
  ResponseHandler,
  ResponseHead,
} from '../backend/backend.ts';
import { rewriteError } from '../backend/errors.ts';
import { toClient } from '../backend/headers.ts';
import { Problem } from '../base/problem.ts';
import type { Outgoing } from '../http/body.ts';
import { CLIENT_GONE, type Outcome, type Watch } from '../telemetry/watch.ts';
import { UsageChunkFilter } from './usage-chunk.ts';

// One exchange: a client's request and its response.

export interface Exchange {
  readonly outgoing: Outgoing;
  readonly watch: Watch;
}

/** An exchange whose response is attested. */
export interface TeeExchange extends AttestedExchange {
  /** The form of the endpoint's streams; null: they cannot be attested. */
  readonly streamForm: StreamForm | null;
  /** The attestation is inserted into the response; otherwise it is available by its id only. */
  readonly spliced: boolean;
  /** Number of choices in the request. */
  readonly choices: number;
  /** Counts the bytes of the response that are held until it is attested. @throws {Problem} overloaded */
  hold(chunk: Buffer): void;
}

/** Receives a response after its head and writes it to the client. */
export type Delivery = Omit<ResponseHandler, 'head'>;

export const mediaType = (headers: IncomingHttpHeaders): string =>
  (headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';

/** The operations that a delivery may use. */
export interface Port extends BackendCall {
  /**
   * Registers the callback for the client's disconnect, which runs at once when the client is already gone. A second call replaces the
   * first callback.
   */
  onDisconnect(callback: () => void): void;
  /** The response has ended, complete or not. */
  done(outcome: Outcome): void;
  /** Nothing has been written yet: the problem becomes the response. */
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
  // The client may have disconnected while the gateway waited for the sidecar. No backend request is made then.
  if (exchange.outgoing.destroyed) return Promise.resolve(CLIENT_GONE);
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

  sentTo(backend: BackendName): void {
    this.#exchange.watch.backend = backend;
  }

  head(head: ResponseHead): void {
    const { status, headers } = head;
    this.#exchange.watch.head(status, headers['content-type']);
    if (status >= 400) this.#delivery = errorDelivery(head, this, this.#exchange);
    else if (status >= 300) this.refuse(new Problem('backend_bad_response', 'The backend answered with a redirect.'));
    else this.#delivery = this.#deliver(head, this);
  }

  data(chunk: Buffer): void {
    this.#exchange.watch.chunk(chunk);
    this.#delivery?.data(chunk);
  }

  end(): void {
    this.#exchange.watch.ended();
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
    this.#resolve(CLIENT_GONE);
  };
}

/** Returns a writer that pauses the backend while the client cannot take more. */
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

/** The event that reports an error in a stream that has begun. */
export function errorEvent(problem: Problem): Buffer {
  return Buffer.from(`data: ${JSON.stringify(problem.body)}\n\n`);
}

// Delivers a backend's error with its status and retry-after, rewritten in OpenAI's shape.

const MAX_ERROR_BYTES = 256 * 1024;
/** One day. */
const MAX_RETRY_S = 86_400;

export function errorDelivery(head: ResponseHead, port: Port, exchange: Exchange): Delivery {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const send = () => {
    const body = JSON.stringify(rewriteError(head.status, Buffer.concat(chunks).toString('utf8')));
    const headers = toClient(head.headers);
    // The other headers describe the original body, which is replaced.
    const forwarded = Object.fromEntries(
      Object.entries(headers).filter(([name]) =>
        /^(retry-after(-ms)?|x-should-retry|allow|x-ratelimit-.*)$/.test(name),
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

/** Clients expect whole seconds: a date or a fraction is converted. 429 and 503 always have a value. */
function retryAfter(head: ResponseHead): string | null {
  const value = head.headers['retry-after'];
  if (value === undefined) return head.status === 429 || head.status === 503 ? '1' : null;
  const seconds = Number.isNaN(Number(value)) ? (Date.parse(value) - Date.now()) / 1000 : Number(value);
  return String(Number.isFinite(seconds) ? Math.min(MAX_RETRY_S, Math.max(1, Math.ceil(seconds))) : 1);
}

/** The client's headers for a response. */
export function headersOf(head: ResponseHead, stream: boolean): Headers {
  return stream ? { ...toClient(head.headers), 'x-accel-buffering': 'no' } : toClient(head.headers);
}

// Delivers a response as it arrives, without tee. Its only change: the usage chunk that the gateway requested is removed.

/** @param usageAsked the client did not ask for the chunk with the usage of its stream, so it is taken out. */
export function pipeDelivery(head: ResponseHead, port: Port, exchange: Exchange, usageAsked = false): Delivery {
  const { outgoing } = exchange;
  const stream = mediaType(head.headers) === 'text/event-stream';
  const write = backpressureWriter(exchange, port);
  const filter = stream && usageAsked ? new UsageChunkFilter() : null;
  function begin(): void {
    if (head.length !== null && filter === null) outgoing.setHeader('content-length', String(head.length));
    outgoing.writeHead(head.status, headersOf(head, stream));
  }
  if (stream) {
    begin();
    outgoing.flushHeaders();
  }
  const scanner = new EventScanner();
  return {
    data(chunk) {
      if (filter !== null) {
        const rest = filter.take(chunk);
        return rest.length > 0 ? write(rest) : undefined;
      }
      if (stream) scanner.scan(chunk);
      else if (!outgoing.headersSent) begin();
      write(chunk);
    },
    end() {
      if (!outgoing.headersSent) begin();
      outgoing.end(filter?.end());
      port.done({ status: head.status });
    },
    fail(problem) {
      if (!outgoing.headersSent) return port.refuse(problem);
      // An error event is possible only between two events. Inside an event, or in a body of known length, the connection must be cut.
      if (stream && head.length === null && (filter ?? scanner).betweenEvents) outgoing.end(errorEvent(problem));
      else outgoing.destroy();
      port.done({ status: head.status, problem });
    },
  };
}

// Where the attestation goes into a response: the one place that adds bytes to what the backend sent.

const ATTESTATION = '"attestation":';
const OPEN = 0x7b;
const CLOSE = 0x7d;
const WHITE_SPACE = new Set([0x20, 0x09, 0x0d, 0x0a]);

/**
 * Returns the parts of a JSON object's text with the attestation as the last member of the object that ends at `end`: the bytes of the text
 * without that member are the backend's.
 * @param json the attestation, in UTF-8. @param end the offset of a `}`; by default the last one.
 */
export function spliced(text: Uint8Array, json: Uint8Array, end = text.lastIndexOf(CLOSE)): Uint8Array[] {
  let last = end - 1;
  while (WHITE_SPACE.has(text[last] as number)) last--;
  const name = Buffer.from(text[last] === OPEN ? ATTESTATION : `,${ATTESTATION}`);
  return [text.subarray(0, end), name, json, text.subarray(end)];
}
