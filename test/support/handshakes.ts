// TLS as strangers speak it, over a bare socket: a ClientHello made byte by byte, and what follows it.
import { connect, type Socket } from 'node:net';

const u16 = (n: number) => [n >> 8, n & 0xff];
const short = (bytes: readonly number[]) => [bytes.length, ...bytes];
const long = (bytes: readonly number[]) => [...u16(bytes.length), ...bytes];
const extension = (type: number, bytes: readonly number[]) => [...u16(type), ...long(bytes)];
const textOf = (text: string) => [...Buffer.from(text, 'latin1')];

export const TLS_1_1 = 0x0302;
export const TLS_1_2 = 0x0303;
export const TLS_1_3 = 0x0304;

export interface Hello {
  readonly versions?: readonly number[];
  readonly ciphers?: readonly number[];
  readonly alpn?: readonly string[];
  readonly server_name?: string | null;
  readonly session_id?: readonly number[];
  /** Further extensions: types and contents. */
  readonly more?: readonly (readonly [type: number, content: readonly number[]])[];
}

/** The record of a ClientHello (RFC 8446 §4.1.2), which the gateway accepts as it is. The same bytes every time. */
export function clientHello({
  versions = [TLS_1_3, TLS_1_2],
  // TLS_AES_128_GCM_SHA256, ECDHE-ECDSA-AES128-GCM-SHA256
  ciphers = [0x1301, 0xc02b],
  alpn = [],
  server_name = null,
  session_id = [],
  more = [],
}: Hello = {}): Buffer {
  const X25519 = u16(0x1d);
  const extensions = [
    ...(server_name === null ? [] : extension(0, long([0, ...long(textOf(server_name))]))),
    ...extension(10, long([0x1d, 0x17, 0x18].flatMap(u16))),
    ...extension(11, short([0])),
    ...extension(13, long([0x0403, 0x0503, 0x0804].flatMap(u16))),
    ...(alpn.length === 0 ? [] : extension(16, long(alpn.flatMap((name) => short(textOf(name)))))),
    ...extension(43, short(versions.flatMap(u16))),
    // The base point as the public key.
    ...extension(51, long([...X25519, ...long([9, ...Array(31).fill(0)])])),
    ...more.flatMap(([type, content]) => extension(type, content)),
  ];
  const highest = Math.min(TLS_1_2, Math.max(0, ...versions));
  const body = [
    ...u16(highest),
    ...Array.from({ length: 32 }, (_, i) => i),
    ...short(session_id),
    ...long(ciphers.flatMap(u16)),
    ...short([0]),
    ...long(extensions),
  ];
  return record(22, [1, 0, ...long(body)]);
}

export const record = (type: number, bytes: readonly number[], length = bytes.length): Buffer =>
  Buffer.from([type, 3, 1, ...u16(length), ...bytes]);

/** `level` 1: a warning, 2: fatal. */
export const alert = (level: number, code: number): Buffer => record(21, [level, code]);
export const CLOSE_NOTIFY = 0;
export const UNKNOWN_CA = 48;

/** What a stranger does after its bytes: `waits` sends nothing more. */
export type Ending = 'waits' | 'ends' | 'resets';

export interface Stranger {
  /** Sent at once. */
  readonly sends: Buffer;
  /** Sent when the server has responded. */
  readonly replies?: Buffer;
  readonly ending: Ending;
}

/** Speaks to a server. @returns what came back, once the connection is over. @throws when the server does not end it in time */
export function speak(url: string, { sends, replies, ending }: Stranger, within_ms = 8_000): Promise<Buffer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let connected = false;
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true }, () => {
      connected = true;
      if (sends.length > 0) socket.write(sends);
      if (replies === undefined) setImmediate(end, socket, ending);
    });
    const timer = setTimeout(() => {
      reject(new Error(`the server holds on to a connection for ${within_ms} ms`));
      socket.destroy();
    }, within_ms);
    socket.on('data', (chunk) => {
      if (replies !== undefined && chunks.length === 0) {
        socket.write(replies);
        end(socket, ending);
      }
      chunks.push(chunk);
    });
    // The server has ended its side.
    socket.on('end', () => socket.destroy());
    socket.on('error', (error) => {
      if (!connected) reject(error);
    });
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(Buffer.concat(chunks));
    });
  });
}

function end(socket: Socket, ending: Ending): void {
  if (ending === 'ends') socket.end();
  if (ending === 'resets') socket.resetAndDestroy();
}
