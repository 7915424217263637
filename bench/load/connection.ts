// One client connection of the load generator: HTTP/1.1 by hand. Gives the bytes of each answer's body, without their framing.
import { connect, type Socket } from 'node:net';

export interface Reader {
  /** The head, as text. */
  head(status: number, head: string): void;
  /** Bytes of the body; `bytes` is valid during the call only. */
  body(bytes: Buffer): void;
  /** The answer is complete; the connection can take the next request. */
  end(): void;
  /** The connection broke before the answer was complete. */
  broken(reason: string): void;
}

/** Every read lands here: a buffer for each would cost more than the rest of a chunk. */
const LANDING = Buffer.allocUnsafeSlow(64 * 1024);
const EMPTY = Buffer.alloc(0);
const CR = 13;
const LF = 10;
const UNTIL_CLOSE = Number.POSITIVE_INFINITY;

type State = 'idle' | 'head' | 'length' | 'size' | 'chunk' | 'trailer';

export class Connection {
  readonly #socket: Socket;
  #reader: Reader | null = null;
  #state: State = 'idle';
  /** Bytes left of the body or of the chunk with its CRLF. */
  #left = 0;
  #rest: Buffer = EMPTY;
  #usable = true;

  constructor(port: number) {
    const callback = (length: number): true => {
      this.#take(LANDING, length);
      return true;
    };
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true, onread: { buffer: LANDING, callback } });
    this.#socket.on('error', (error) => this.#broken(error.message));
    this.#socket.on('end', () => this.#ended());
    this.#socket.on('close', () => this.#broken('closed'));
  }

  get usable(): boolean {
    return this.#usable;
  }

  ask(request: Buffer, reader: Reader): void {
    this.#reader = reader;
    this.#state = 'head';
    this.#socket.write(request);
  }

  leave(): void {
    this.#usable = false;
    this.#reader = null;
    this.#socket.destroy();
  }

  #ended(): void {
    if (this.#state === 'length' && this.#left === UNTIL_CLOSE) this.#done();
    else this.#broken('ended early');
  }

  #broken(reason: string): void {
    this.#usable = false;
    const reader = this.#reader;
    this.#reader = null;
    reader?.broken(reason);
  }

  #done(): void {
    const reader = this.#reader;
    this.#reader = null;
    this.#state = 'idle';
    reader?.end();
  }

  /** The first `length` bytes of `landed`, which are others when this returns. */
  #take(landed: Buffer, length: number): void {
    let bytes = landed;
    let to = length;
    if (this.#rest.length > 0) {
      bytes = Buffer.concat([this.#rest, landed.subarray(0, length)]);
      to = bytes.length;
      this.#rest = EMPTY;
    }
    for (let at = 0; at < to; ) {
      const next = this.#step(bytes, at, to);
      if (next === at) {
        this.#rest = Buffer.from(bytes.subarray(at, to));
        return;
      }
      at = next;
    }
  }

  /** Reads what it can of the bytes from `at` to `to`; says where it stopped: at `at` when more must arrive first. */
  #step(bytes: Buffer, at: number, to: number): number {
    switch (this.#state) {
      case 'head':
        return at + this.#head(bytes.subarray(at, to));
      case 'length':
        return this.#bodyPart(bytes, at, to, 0);
      case 'size':
        return this.#size(bytes, at, to);
      case 'chunk':
        return this.#bodyPart(bytes, at, to, 2);
      case 'trailer': {
        const end = bytes.indexOf('\r\n', at);
        if (end < 0 || end + 2 > to) return at;
        if (end === at) this.#done();
        return end + 2;
      }
      case 'idle':
        this.#broken('bytes that nobody asked for');
        this.#socket.destroy();
        return to;
    }
  }

  #head(bytes: Buffer): number {
    const end = bytes.indexOf('\r\n\r\n');
    if (end < 0) return 0;
    const head = bytes.toString('latin1', 0, end);
    const status = Number(head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/i.exec(head);
    if (status === 100) return end + 4;
    if (/\r\nconnection: *close/i.test(head)) this.#usable = false;
    if (length !== null) {
      this.#state = 'length';
      this.#left = Number(length[1]);
    } else if (/\r\ntransfer-encoding: *chunked/i.test(head)) this.#state = 'size';
    else {
      this.#state = 'length';
      this.#left = UNTIL_CLOSE;
    }
    this.#reader?.head(status, head);
    if (this.#state === 'length' && this.#left === 0) this.#done();
    return end + 4;
  }

  #size(bytes: Buffer, from: number, to: number): number {
    let size = 0;
    let at = from;
    for (let digit = hex(bytes[at]); digit >= 0 && at < to; digit = hex(bytes[++at])) size = size * 16 + digit;
    if (at + 2 > to) return from;
    if (at === from || bytes[at] !== CR || bytes[at + 1] !== LF) {
      this.#broken('a chunk without its size');
      this.#socket.destroy();
      return to;
    }
    this.#state = size === 0 ? 'trailer' : 'chunk';
    this.#left = size + 2;
    return at + 2;
  }

  /** `after` bytes at the end of what is left are framing. */
  #bodyPart(bytes: Buffer, at: number, to: number, after: number): number {
    const used = Math.min(to - at, this.#left);
    const payload = Math.min(used, this.#left - after);
    this.#left -= used;
    if (payload > 0) this.#reader?.body(bytes.subarray(at, at + payload));
    if (this.#left === 0) {
      if (this.#state === 'chunk') this.#state = 'size';
      else this.#done();
    }
    return at + used;
  }
}

/** The value of a hexadecimal digit; less than 0 of anything else. */
function hex(byte = 0): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
