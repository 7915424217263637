// One connection to the backend: one request at a time, its answer read as it arrives.
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { GrowingBuffer } from '../http/bytes.ts';
import { batch } from '../http/write-batch.ts';
import type { Owner } from '../keys/keys.ts';
import { BackendFault, type ResponseHandler } from './backend.ts';
import { type HeadCache, mayEndHead, notHttp, type ParsedHead, ResponseBody } from './response.ts';

const silent = () => new BackendFault('silent', 'silent for too long');

export interface Origin {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** Who takes the response of one request; `broken` in place of `fail`, for the connection knows causes and no problems. */
export interface ConnectionHandler extends Omit<ResponseHandler, 'fail'> {
  failed(cause: unknown): void;
}

interface ConnectionEvents {
  idle(connection: Connection): void;
  closed(connection: Connection): void;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Every read lands here and is copied out before the next one: connections that wait hold no buffer of their own. */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

export class Connection {
  /** Whose requests it carries; null: one request and no other. */
  readonly owner: Owner | null;
  readonly #socket: Socket;
  readonly #heads: HeadCache;
  readonly #events: ConnectionEvents;
  readonly #connecting: NodeJS.Timeout;
  #handler: ConnectionHandler | null = null;
  #silence_ms = 0;
  /**
   * Something moved since the last look; when it did, as the looks tell. What its taker is not given is no movement: interim
   * answers, pieces of a head and of chunk lines could come for ever.
   */
  #active = false;
  #active_ms = 0;
  #paused = false;
  #head: ParsedHead | null = null;
  #body: ResponseBody | null = null;
  /** A head that is not complete. */
  #partialHead: GrowingBuffer | null = null;
  #closed = false;
  #used = false;
  #idle_since_ms = 0;

  constructor(origin: Origin, heads: HeadCache, owner: Owner | null, events: ConnectionEvents) {
    this.owner = owner;
    this.#heads = heads;
    this.#events = events;
    const { host, port } = origin;
    this.#socket = origin.secure
      ? connectTls({ host, port, servername: host, ALPNProtocols: ['http/1.1'] }).on('data', (bytes: Buffer) =>
          this.#read(bytes, bytes.length),
        )
      : connectTcp({
          host,
          port,
          onread: { buffer: READ_BUFFER, callback: (length) => this.#read(READ_BUFFER, length) },
        });
    this.#socket.setNoDelay(true);
    this.#connecting = setTimeout(
      () => this.#close(new BackendFault('unreachable', 'no connection in time')),
      CONNECT_TIMEOUT_MS,
    );
    this.#socket
      .once(origin.secure ? 'secureConnect' : 'connect', () => clearTimeout(this.#connecting))
      .on('timeout', () => this.#close(silent()))
      .on('error', (error) => this.#close(error))
      .on('end', () => this.#socketEnded())
      .on('close', () => this.#close(new BackendFault('hung_up', 'the connection closed')));
  }

  /** It has carried an answer before, so the backend may have hung up on it by now. */
  get used(): boolean {
    return this.#used;
  }

  /** By `performance.now()`, of one that is idle. */
  get idle_since_ms(): number {
    return this.#idle_since_ms;
  }

  /** Sends a request, head and body, and gives its answer to `taker`. `silence_ms`: the longest wait for its head, then for its next piece. */
  send(parts: readonly Buffer[], silence_ms: number, handler: ConnectionHandler): void {
    this.#handler = handler;
    this.#silence_ms = silence_ms;
    this.#active = true;
    batch.add(this.#socket);
    // What is here already is read before the request leaves, and cannot be its answer.
    if (this.#used && this.#socket.writableCorked === 0) {
      this.#socket.cork();
      setImmediate(() => this.#socket.uncork());
    }
    if (parts.length === 1) return void this.#socket.write(parts[0] as Buffer);
    this.#socket.cork();
    for (const part of parts) this.#socket.write(part);
    this.#socket.uncork();
  }

  /** Stops reading. Silence does not count then: it is the client's. */
  pause(): void {
    this.#socket.pause();
    this.#paused = true;
    this.#setNodeTimeout(0);
  }

  resume(): void {
    this.#paused = false;
    this.#active = true;
    this.#socket.resume();
  }

  /** Ends it when it was silent for too long. The pool asks all of its connections: a timer for each would move with every read. */
  checkTimeout(now_ms: number): void {
    if (this.#handler === null || this.#paused) return;
    if (this.#socket.writableLength > 0) {
      // While a request is still going out, only Node knows whether bytes do.
      this.#active = true;
      this.#setNodeTimeout(this.#silence_ms);
    } else if (this.#active) {
      this.#active = false;
      this.#active_ms = now_ms;
    } else if (now_ms - this.#active_ms > this.#silence_ms) this.#close(silent());
  }

  /** `ms`: 0 for no longer. */
  #setNodeTimeout(ms: number): void {
    if ((this.#socket.timeout ?? 0) !== ms) this.#socket.setTimeout(ms);
  }

  /** Ends it and whatever it carries, without a word to the taker. */
  destroy(): void {
    this.#handler = null;
    this.#close(null);
  }

  /** Ends it, and its taker hears that the gateway stops. */
  abort(): void {
    this.#close(new BackendFault('stopped', 'the gateway stops'));
  }

  /** The first `length` of `bytes`, which are another's when this returns. True: it may read on. */
  #read(bytes: Buffer, length: number): true {
    try {
      // Nobody asked: whatever it says cannot be an answer.
      if (this.#handler === null) throw notHttp('bytes without a request');
      if (this.#body !== null) this.#readBody(this.#body, bytes, 0, length);
      else if (this.#partialHead === null) this.#readHead(bytes, length);
      else {
        const before = this.#partialHead.bytes;
        const all = this.#partialHead.add(bytes.subarray(0, length));
        if (!mayEndHead(all, before)) return true;
        this.#partialHead = null;
        this.#readHead(all, all.length);
      }
    } catch (error) {
      this.#close(error);
      return true;
    }
    if (this.#body?.ended === true) this.#responseEnded();
    return true;
  }

  #readBody(body: ResponseBody, bytes: Buffer, from: number, to: number): void {
    const data = body.read(bytes, from, to);
    if (data.length === 0) return;
    this.#active = true;
    this.#handler?.data(data);
  }

  /** The head and what follows it; kept while that is not complete. Interim answers are passed over, those nobody asked for too. */
  #readHead(bytes: Buffer, to: number): void {
    // Corked: the request has not left yet.
    if (this.#socket.writableCorked > 0) throw new BackendFault('not_asked', 'bytes before the request');
    for (let from = 0; from < to; ) {
      const head = this.#heads.read(bytes, from, to);
      if (head === null) {
        this.#partialHead = new GrowingBuffer(bytes.subarray(from, to));
        return;
      }
      from += head.size;
      if (head.status === 101) throw notHttp('an upgrade that nobody asked for');
      if (head.status < 200) continue;
      // What a server says to an idle connection as it closes it (RFC 9110 §15.5.9) crosses a request that is on its way.
      if (head.status === 408 && !head.reusable && this.#used)
        throw new BackendFault('not_asked', 'the end of an idle connection');
      this.#active = true;
      this.#head = head;
      this.#body = new ResponseBody(head.framing);
      this.#handler?.head(head);
      return this.#readBody(this.#body, bytes, from, to);
    }
  }

  #responseEnded(): void {
    const handler = this.#handler;
    const head = this.#head;
    this.#handler = null;
    this.#head = null;
    this.#body = null;
    this.#used = true;
    if (head?.reusable === true && !this.#closed && this.#socket.writableLength === 0) {
      // A reader that had paused it is gone, and the next one starts anew.
      if (this.#paused) this.#socket.resume();
      this.#paused = false;
      this.#setNodeTimeout(0);
      this.#idle_since_ms = performance.now();
      this.#events.idle(this);
    } else this.#close(null);
    handler?.end();
  }

  #socketEnded(): void {
    if (this.#body?.endsWithConnection === true) this.#responseEnded();
    else this.#close(new BackendFault('hung_up', 'the connection ended'));
  }

  /** The end of this connection, for whatever reason came first. */
  #close(cause: unknown): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#connecting);
    this.#socket.destroy();
    this.#events.closed(this);
    const handler = this.#handler;
    this.#handler = null;
    handler?.failed(cause);
  }
}
