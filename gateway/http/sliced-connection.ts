// A client's connection as Node's HTTP server gets it: many requests that were read at once come in slices. Node parses all requests of a
// chunk before the server can stop it, and keeps more than a kilobyte for each.
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

/** A slice is longer only where no head ends in the rest of it, as in a body. The shortest request has 26 bytes. */
const SLICE_BYTES = 4 * 1024;
const HEAD_END = '\r\n\r\n';
/** The bytes that are read of a client that gets no further response. */
const MAX_DISCARDED_BYTES = 1024 * 1024;

type Callback = (error?: Error | null) => void;

export class SlicedConnection extends Duplex {
  readonly #socket: Socket;
  #stopped = false;
  #discarded_bytes = 0;
  #watch: NodeJS.Timeout | undefined;

  /** `socket`: TCP, or the decrypted side of TLS. */
  constructor(socket: Socket) {
    super({ readableHighWaterMark: socket.readableHighWaterMark, writableHighWaterMark: socket.writableHighWaterMark });
    this.#socket = socket;
    socket
      .on('data', (bytes: Buffer) => this.#slice(bytes))
      .on('end', () => (this.#stopped ? this.destroy() : this.push(null)))
      .on('timeout', () => this.emit('timeout'))
      .on('error', (error) => this.destroy(error))
      .on('close', () => this.destroy());
  }

  #slice(bytes: Buffer): void {
    if (this.#stopped) return this.#discard(bytes.length);
    let more = true;
    for (let at = 0, end: number; at < bytes.length; at = end) {
      const found = bytes.indexOf(HEAD_END, at + SLICE_BYTES);
      end = found === -1 ? bytes.length : found + HEAD_END.length;
      more = this.push(bytes.subarray(at, end));
    }
    if (!more) this.#socket.pause();
  }

  #discard(bytes: number): void {
    this.#discarded_bytes += bytes;
    if (this.#discarded_bytes > MAX_DISCARDED_BYTES) this.#socket.pause();
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  get bytesRead(): number {
    return this.#socket.bytesRead;
  }

  setTimeout(ms: number, listener?: () => void): this {
    this.#socket.setTimeout(ms);
    if (listener !== undefined) this.once('timeout', listener);
    return this;
  }

  /** Node and Hono's adaptor call this after the last response. */
  destroySoon(): void {
    linger(this);
  }

  override pause(): this {
    this.#socket.pause();
    this.#watchWrites();
    return super.pause();
  }

  /** Does nothing once the connection takes no further request: Node resumes it for each body that it discards. */
  override resume(): this {
    if (this.#stopped) return this;
    clearInterval(this.#watch);
    this.#socket.resume();
    return super.resume();
  }

  /** Node gets nothing more, not even what has been read. Reading goes on for a while, because only a read shows that the client has left. */
  stop(): void {
    this.#stopped = true;
    this.pause();
    this.#socket.resume();
  }

  /** A paused socket reads some more, and its own timeout takes that for a sign of life: here only writes count. */
  #watchWrites(): void {
    clearInterval(this.#watch);
    const { timeout } = this.#socket;
    if (!timeout) return;
    let before = 0;
    this.#watch = setInterval(() => {
      const { writableLength } = this.#socket;
      if (writableLength > 0 && writableLength === before) this.emit('timeout');
      before = writableLength;
    }, timeout).unref();
  }

  override _read(): void {
    if (!this.isPaused()) this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: Callback): void {
    this.#socket.write(chunk, callback);
  }

  override _writev(chunks: { chunk: Buffer; encoding: BufferEncoding }[], callback: Callback): void {
    const last = chunks.length - 1;
    this.#socket.cork();
    for (const [i, { chunk }] of chunks.entries()) this.#socket.write(chunk, i === last ? callback : undefined);
    this.#socket.uncork();
  }

  override _final(callback: Callback): void {
    this.#socket.end(() => callback());
  }

  override _destroy(error: Error | null, callback: Callback): void {
    clearInterval(this.#watch);
    this.#socket.destroy();
    callback(error);
  }
}

/** How long a client may take to read its last response before the connection is cut. */
const LINGER_MS = 1_000;

/** Ends our side of a connection and reads on for a while: a client that still sends would lose its response if it were cut at once. */
export function linger(connection: Duplex): void {
  if (connection instanceof SlicedConnection) connection.stop();
  connection.end();
  setTimeout(() => connection.destroy(), LINGER_MS).unref();
}

/** Gives Node every new connection of `server` in this form. Over TLS it is the decrypted connection. */
export function sliceConnections(server: Server): void {
  const event = server instanceof TlsServer ? 'secureConnection' : 'connection';
  const listeners = server.listeners(event) as ((this: Server, connection: Duplex) => void)[];
  server.removeAllListeners(event);
  server.on(event, (socket: Socket) => {
    const connection = new SlicedConnection(socket);
    for (const listener of listeners) listener.call(server, connection);
  });
}
