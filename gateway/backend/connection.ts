// One connection to the backend: one request at a time, its answer read as it arrives.
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { GrowingBuffer } from '../http/bytes.ts';
import { batch } from '../http/write-batch.ts';
import type { Owner } from '../keys/keys.ts';
import { BackendFault, type ResponseHandler } from './backend.ts';
import { type Heads, mayEndHead, notHttp, type ParsedHead, ResponseBody } from './response.ts';

const silent = () => new BackendFault('silent', 'silent for too long');

export interface Origin {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** Who takes the response of one request; `broken` in place of `fail`, for the connection knows causes and no problems. */
export interface Taker extends Omit<ResponseHandler, 'fail'> {
  broken(cause: unknown): void;
}

interface ConnectionEvents {
  idle(connection: Connection): void;
  gone(connection: Connection): void;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Every read lands here and is copied out before the next one: connections that wait hold no buffer of their own. */
const LANDING = Buffer.allocUnsafeSlow(64 * 1024);

export class Connection {
  /** Whose requests it carries; null: one request and no other. */
  readonly owner: Owner | null;
  readonly #socket: Socket;
  readonly #heads: Heads;
  readonly #events: ConnectionEvents;
  readonly #connecting: NodeJS.Timeout;
  #taker: Taker | null = null;
  #silence_ms = 0;
  /**
   * Something moved since the last look; when it did, as the looks tell. What its taker is not given is no movement: interim
   * answers, pieces of a head and of chunk lines could come for ever.
   */
  #moved = false;
  #moved_ms = 0;
  #paused = false;
  #head: ParsedHead | null = null;
  #body: ResponseBody | null = null;
  /** A head that is not complete. */
  #early: GrowingBuffer | null = null;
  #gone = false;
  #carried = false;
  #idle_since_ms = 0;

  constructor(origin: Origin, heads: Heads, owner: Owner | null, events: ConnectionEvents) {
    this.owner = owner;
    this.#heads = heads;
    this.#events = events;
    const { host, port } = origin;
    this.#socket = origin.secure
      ? connectTls({ host, port, servername: host, ALPNProtocols: ['http/1.1'] }).on('data', (bytes: Buffer) =>
          this.#read(bytes, bytes.length),
        )
      : connectTcp({ host, port, onread: { buffer: LANDING, callback: (length) => this.#read(LANDING, length) } });
    this.#socket.setNoDelay(true);
    this.#connecting = setTimeout(
      () => this.#break(new BackendFault('unreachable', 'no connection in time')),
      CONNECT_TIMEOUT_MS,
    );
    this.#socket
      .once(origin.secure ? 'secureConnect' : 'connect', () => clearTimeout(this.#connecting))
      .on('timeout', () => this.#break(silent()))
      .on('error', (error) => this.#break(error))
      .on('end', () => this.#ended())
      .on('close', () => this.#break(new BackendFault('hung_up', 'the connection closed')));
  }

  /** It has carried an answer before, so the backend may have hung up on it by now. */
  get carried(): boolean {
    return this.#carried;
  }

  /** By `performance.now()`, of one that is idle. */
  get idle_since_ms(): number {
    return this.#idle_since_ms;
  }

  /** Sends a request, head and body, and gives its answer to `taker`. `silence_ms`: the longest wait for its head, then for its next piece. */
  ask(parts: readonly Buffer[], silence_ms: number, taker: Taker): void {
    this.#taker = taker;
    this.#silence_ms = silence_ms;
    this.#moved = true;
    batch.add(this.#socket);
    // What is here already is read before the request leaves, and cannot be its answer.
    if (this.#carried && this.#socket.writableCorked === 0) {
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
    this.#watchedByNode(0);
  }

  resume(): void {
    this.#paused = false;
    this.#moved = true;
    this.#socket.resume();
  }

  /** Ends it when it was silent for too long. The pool asks all of its connections: a timer for each would move with every read. */
  look(now_ms: number): void {
    if (this.#taker === null || this.#paused) return;
    if (this.#socket.writableLength > 0) {
      // While a request is still going out, only Node knows whether bytes do.
      this.#moved = true;
      this.#watchedByNode(this.#silence_ms);
    } else if (this.#moved) {
      this.#moved = false;
      this.#moved_ms = now_ms;
    } else if (now_ms - this.#moved_ms > this.#silence_ms) this.#break(silent());
  }

  /** `ms`: 0 for no longer. */
  #watchedByNode(ms: number): void {
    if ((this.#socket.timeout ?? 0) !== ms) this.#socket.setTimeout(ms);
  }

  /** Ends it and whatever it carries, without a word to the taker. */
  destroy(): void {
    this.#taker = null;
    this.#break(null);
  }

  /** Ends it, and its taker hears that the gateway stops. */
  cut(): void {
    this.#break(new BackendFault('stopped', 'the gateway stops'));
  }

  /** The first `length` of `bytes`, which are another's when this returns. True: it may read on. */
  #read(bytes: Buffer, length: number): true {
    try {
      // Nobody asked: whatever it says cannot be an answer.
      if (this.#taker === null) throw notHttp('bytes without a request');
      if (this.#body !== null) this.#take(this.#body, bytes, 0, length);
      else if (this.#early === null) this.#begin(bytes, length);
      else {
        const before = this.#early.bytes;
        const all = this.#early.add(bytes.subarray(0, length));
        if (!mayEndHead(all, before)) return true;
        this.#early = null;
        this.#begin(all, all.length);
      }
    } catch (error) {
      this.#break(error);
      return true;
    }
    if (this.#body?.ended === true) this.#answered();
    return true;
  }

  #take(body: ResponseBody, bytes: Buffer, from: number, to: number): void {
    const data = body.take(bytes, from, to);
    if (data.length === 0) return;
    this.#moved = true;
    this.#taker?.data(data);
  }

  /** The head and what follows it; kept while that is not complete. Interim answers are passed over, those nobody asked for too. */
  #begin(bytes: Buffer, to: number): void {
    // Corked: the request has not left yet.
    if (this.#socket.writableCorked > 0) throw new BackendFault('not_asked', 'bytes before the request');
    for (let from = 0; from < to; ) {
      const head = this.#heads.read(bytes, from, to);
      if (head === null) {
        this.#early = new GrowingBuffer(bytes.subarray(from, to));
        return;
      }
      from += head.size;
      if (head.status === 101) throw notHttp('an upgrade that nobody asked for');
      if (head.status < 200) continue;
      // What a server says to an idle connection as it closes it (RFC 9110 §15.5.9) crosses a request that is on its way.
      if (head.status === 408 && !head.reusable && this.#carried)
        throw new BackendFault('not_asked', 'the end of an idle connection');
      this.#moved = true;
      this.#head = head;
      this.#body = new ResponseBody(head.framing);
      this.#taker?.head(head);
      return this.#take(this.#body, bytes, from, to);
    }
  }

  #answered(): void {
    const taker = this.#taker;
    const head = this.#head;
    this.#taker = null;
    this.#head = null;
    this.#body = null;
    this.#carried = true;
    if (head?.reusable === true && !this.#gone && this.#socket.writableLength === 0) {
      // A reader that had paused it is gone, and the next one starts anew.
      if (this.#paused) this.#socket.resume();
      this.#paused = false;
      this.#watchedByNode(0);
      this.#idle_since_ms = performance.now();
      this.#events.idle(this);
    } else this.#break(null);
    taker?.end();
  }

  #ended(): void {
    if (this.#body?.endsWithConnection === true) this.#answered();
    else this.#break(new BackendFault('hung_up', 'the connection ended'));
  }

  /** The end of this connection, for whatever reason came first. */
  #break(cause: unknown): void {
    if (this.#gone) return;
    this.#gone = true;
    clearTimeout(this.#connecting);
    this.#socket.destroy();
    this.#events.gone(this);
    const taker = this.#taker;
    this.#taker = null;
    taker?.broken(cause);
  }
}
