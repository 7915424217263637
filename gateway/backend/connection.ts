// One connection to the backend. It carries one request at a time and reads the response as it arrives.
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { GrowingBuffer } from '../base/bytes.ts';
import { writeBatch } from '../http/outgoing.ts';
import type { Owner } from '../keys/keys.ts';
import type { ResponseHandler } from './backend.ts';
import { BackendFault } from './errors.ts';
import { type HeadCache, mayEndHead, notHttp, type ParsedHead, ResponseBody } from './response.ts';

const timedOut = () => new BackendFault('timeout', 'silent for too long');

export interface Origin {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** Reads the response to one request. `failed` replaces `fail`: the connection reports causes, and the client turns them into problems. */
export interface ConnectionHandler extends Omit<ResponseHandler, 'fail' | 'sentTo'> {
  /** `unsent`: the connection was never established. */
  failed(cause: unknown, unsent: boolean): void;
}

interface ConnectionEvents {
  idle(connection: Connection): void;
  closed(connection: Connection): void;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** All connections read into this buffer and copy from it, so a connection that waits holds no buffer of its own. */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

export class Connection {
  /** The key whose requests the connection carries. null: the connection carries one request only. */
  readonly owner: Owner | null;
  readonly #socket: Socket;
  readonly #heads: HeadCache;
  readonly #events: ConnectionEvents;
  readonly #connecting: NodeJS.Timeout;
  #handler: ConnectionHandler | null = null;
  #silence_ms = 0;
  /**
   * Whether the connection made progress since the last check, and the time of the last check that saw progress. Only bytes that the
   * handler receives count: interim responses, partial heads and chunk-size lines could arrive without end.
   */
  #active = false;
  #active_ms = 0;
  #paused = false;
  #head: ParsedHead | null = null;
  #body: ResponseBody | null = null;
  /** The bytes of a head that is not complete. */
  #partialHead: GrowingBuffer | null = null;
  /** TCP has connected. Before that no byte of a request has left, even if some were written. */
  #connected = false;
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
    if (origin.secure) this.#socket.once('secureConnect', () => clearTimeout(this.#connecting));
    this.#socket
      .once('connect', () => {
        this.#connected = true;
        if (!origin.secure) clearTimeout(this.#connecting);
      })
      .on('timeout', () => this.#close(timedOut()))
      .on('error', (error) => this.#close(error))
      .on('end', () => this.#socketEnded())
      .on('close', () => this.#socketClosed());
  }

  /** The connection has carried a response before, so the backend may have closed it by now. */
  get used(): boolean {
    return this.#used;
  }

  /** When the connection became idle, by `performance.now()`. */
  get idle_since_ms(): number {
    return this.#idle_since_ms;
  }

  /** Sends a request and gives its response to `handler`. `silence_ms` limits the wait for the head and for each chunk after it. */
  send(parts: readonly Buffer[], silence_ms: number, handler: ConnectionHandler): void {
    this.#handler = handler;
    this.#silence_ms = silence_ms;
    this.#active = true;
    writeBatch.add(this.#socket);
    // Bytes that have arrived already are read before the request is sent, because they cannot be its response.
    if (this.#used && this.#socket.writableCorked === 0) {
      this.#socket.cork();
      setImmediate(() => this.#socket.uncork());
    }
    if (parts.length === 1) return void this.#socket.write(parts[0] as Buffer);
    this.#socket.cork();
    for (const part of parts) this.#socket.write(part);
    this.#socket.uncork();
  }

  /** Stops reading. The silence limit does not apply meanwhile, because the client causes the pause. */
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

  /**
   * Closes the connection when the silence limit is exceeded. The pool calls it for all connections: one timer each would be reset with
   * every read.
   */
  checkTimeout(now_ms: number): void {
    if (this.#handler === null || this.#paused) return;
    if (this.#socket.writableLength > 0) {
      // While a request is still being sent, Node's socket timeout applies: only Node knows whether bytes are leaving.
      this.#active = true;
      this.#setNodeTimeout(this.#silence_ms);
    } else if (this.#active) {
      this.#active = false;
      this.#active_ms = now_ms;
    } else if (now_ms - this.#active_ms > this.#silence_ms) this.#close(timedOut());
  }

  /** Sets Node's socket timeout. 0 turns it off. */
  #setNodeTimeout(ms: number): void {
    if ((this.#socket.timeout ?? 0) !== ms) this.#socket.setTimeout(ms);
  }

  /** Closes the connection and drops its request. The handler is not called. */
  destroy(): void {
    this.#handler = null;
    this.#close(null);
  }

  /** Closes the connection and reports to the handler that the gateway stops. */
  abort(): void {
    this.#close(new BackendFault('stopped', 'the gateway stops'));
  }

  /** Reads the first `length` of `bytes`. The buffer is reused after this returns. The result true lets the socket read on. */
  #read(bytes: Buffer, length: number): true {
    try {
      // Bytes that arrive while no request is open cannot be a response.
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

  /**
   * Reads the head and the bytes after it, and keeps an incomplete head. Interim responses are skipped, including those that were not
   * requested.
   */
  #readHead(bytes: Buffer, to: number): void {
    // A corked socket has not sent the request yet.
    if (this.#socket.writableCorked > 0) throw new BackendFault('unsolicited', 'bytes before the request');
    for (let from = 0; from < to; ) {
      const head = this.#heads.read(bytes, from, to);
      if (head === null) {
        this.#partialHead = new GrowingBuffer(bytes.subarray(from, to));
        return;
      }
      from += head.size;
      if (head.status === 101) throw notHttp('an upgrade that nobody asked for');
      if (head.status < 200) continue;
      // A server may send 408 as it closes an idle connection (RFC 9110 §15.5.9); it crosses a request that is on its way.
      if (head.status === 408 && !head.reusable && this.#used)
        throw new BackendFault('unsolicited', 'the end of an idle connection');
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
      // A reader that paused the connection is done, and the next reader starts unpaused.
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
    else this.#close(new BackendFault('disconnected', 'the connection ended'));
  }

  #socketClosed(): void {
    // Most connections have been closed from this side by now, and an Error costs a stack trace.
    if (!this.#closed) this.#close(new BackendFault('disconnected', 'the connection closed'));
  }

  /** Closes the connection. The first cause wins. */
  #close(cause: unknown): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#connecting);
    this.#socket.destroy();
    this.#events.closed(this);
    const handler = this.#handler;
    this.#handler = null;
    handler?.failed(cause, !this.#connected);
  }
}
