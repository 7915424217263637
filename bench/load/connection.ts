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

const EMPTY = Buffer.alloc(0);
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
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (bytes: Buffer) => this.#take(bytes));
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

  #take(arrived: Buffer): void {
    let bytes = this.#rest.length === 0 ? arrived : Buffer.concat([this.#rest, arrived]);
    this.#rest = EMPTY;
    while (bytes.length > 0) {
      const used = this.#step(bytes);
      if (used === 0) {
        this.#rest = bytes;
        return;
      }
      bytes = used === bytes.length ? EMPTY : bytes.subarray(used);
    }
  }

  /** Reads what it can; 0 when more must arrive first. */
  #step(bytes: Buffer): number {
    switch (this.#state) {
      case 'head':
        return this.#head(bytes);
      case 'length':
        return this.#bodyPart(bytes, 0);
      case 'size':
        return this.#size(bytes);
      case 'chunk':
        return this.#bodyPart(bytes, 2);
      case 'trailer': {
        const end = bytes.indexOf('\r\n');
        if (end < 0) return 0;
        if (end === 0) this.#done();
        return end + 2;
      }
      case 'idle':
        this.#broken('bytes that nobody asked for');
        this.#socket.destroy();
        return bytes.length;
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

  #size(bytes: Buffer): number {
    const end = bytes.indexOf('\r\n');
    if (end < 0) return 0;
    const size = Number.parseInt(bytes.toString('latin1', 0, end), 16);
    this.#state = size === 0 ? 'trailer' : 'chunk';
    this.#left = size + 2;
    return end + 2;
  }

  /** `after` bytes at the end of what is left are framing. */
  #bodyPart(bytes: Buffer, after: number): number {
    const used = Math.min(bytes.length, this.#left);
    const payload = Math.min(used, this.#left - after);
    this.#left -= used;
    if (payload > 0) this.#reader?.body(payload === bytes.length ? bytes : bytes.subarray(0, payload));
    if (this.#left === 0) {
      if (this.#state === 'chunk') this.#state = 'size';
      else this.#done();
    }
    return used;
  }
}
