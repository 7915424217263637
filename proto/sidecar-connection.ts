// A WebSocket connection to the sidecar over a Unix socket: hello first, then frames, until it ends. The gateway, the health check and
// the doctor connect by it. For Node alone: no other file of proto/ imports `ws` or a module of Node's.
import type { Socket } from 'node:net';
import { WebSocket } from 'ws';
import { type FromSidecar, fromSidecarSchema, type Hello, PROTOCOL } from './frames.ts';

/** Why a connection has ended. */
export type ConnectionEnd =
  /** The system's or the WebSocket's error: nobody listens there, or what was sent is no WebSocket frame. */
  | { readonly reason: 'error'; readonly error: NodeJS.ErrnoException }
  | { readonly reason: 'closed'; readonly code: number }
  | { readonly reason: 'no_hello_in_time' }
  /** Nothing came for too long, not even the pong to a ping. */
  | { readonly reason: 'silent' }
  /** A frame that is not one of the protocol. */
  | { readonly reason: 'invalid_frame' }
  /** The sidecar is of another version: the protocol that its hello names. */
  | { readonly reason: 'other_protocol'; readonly protocol: string }
  /** A frame of the protocol before the hello. */
  | { readonly reason: 'hello_not_first' }
  /** By {@link SidecarConnection.end}. */
  | { readonly reason: 'ended' };

/** Every frame but the hello, as `read` returns them. */
type Frame<T> = Exclude<T, Hello>;

interface ConnectionOptions<T extends { readonly type: string }> {
  /** Called once. A Unix socket's path has no place in a URL, where a space or a # would make another of it. */
  readonly createConnection: () => Socket;
  /** `/` by default; `HEALTH_PATH` for a health check. */
  readonly path?: string;
  readonly max_frame_bytes: number;
  /** From connecting to the hello, the handshake included. */
  readonly hello_timeout_ms: number;
  /** Pings every `every_ms`, and ends after `silence_ms` without a frame or a pong. Without it a connection may be silent. */
  readonly heartbeat?: { readonly every_ms: number; readonly silence_ms: number };
  /** One frame; null for what is none. {@link readTextFrame} for a client that sends no binary frames. */
  readonly read: (data: Buffer, isBinary: boolean) => Hello | T | null;
  /** First; with `again` when the sidecar has another attester or other devices on the same connection. */
  readonly onHello: (hello: Hello, again: boolean) => void;
  readonly onFrame: (frame: Frame<T>) => void;
  /** Once, last. */
  readonly onEnd: (end: ConnectionEnd) => void;
}

interface SidecarConnection {
  readonly isOpen: boolean;
  /** One message, or with `fin: false` a fragment of one. Nothing is sent unless it is open. */
  send(data: string | Uint8Array, options?: { readonly fin: boolean }): void;
  /** Ends it at once; `onEnd` is called before this returns. */
  end(): void;
}

export function connectToSidecar<T extends { readonly type: string }>(
  options: ConnectionOptions<T>,
): SidecarConnection {
  const { hello_timeout_ms, heartbeat, read, onHello, onFrame, onEnd } = options;
  const ws = new WebSocket(`ws://localhost${options.path ?? '/'}`, {
    createConnection: options.createConnection,
    perMessageDeflate: false,
    maxPayload: options.max_frame_bytes,
    // RFC 6455 masks against confused proxies. On a Unix socket there is none, and a zero mask costs no pass over raw.
    generateMask: (mask: Buffer) => mask.fill(0),
  });
  let greeted = false;
  let ended = false;
  let heard_ms = performance.now();

  const end = (how: ConnectionEnd) => {
    if (ended) return;
    ended = true;
    clearTimeout(hello_timer);
    clearInterval(heartbeat_timer);
    ws.terminate();
    onEnd(how);
  };
  const hello_timer = setTimeout(() => end({ reason: 'no_hello_in_time' }), hello_timeout_ms);
  const heartbeat_timer =
    heartbeat &&
    setInterval(() => {
      if (performance.now() - heard_ms > heartbeat.silence_ms) end({ reason: 'silent' });
      else if (ws.readyState === WebSocket.OPEN) ws.ping();
    }, heartbeat.every_ms);

  ws.on('message', (data, isBinary) => {
    // ws still emits the messages that came in one read with the one that ended the connection.
    if (ended) return;
    heard_ms = performance.now();
    const frame = read(data as Buffer, isBinary);
    if (frame === null) return end((greeted ? null : otherProtocol(data as Buffer)) ?? { reason: 'invalid_frame' });
    if (!isHello(frame)) return greeted ? onFrame(frame as Frame<T>) : end({ reason: 'hello_not_first' });
    const again = greeted;
    greeted = true;
    clearTimeout(hello_timer);
    onHello(frame, again);
  });
  ws.on('pong', () => {
    heard_ms = performance.now();
  });
  ws.on('error', (error) => end({ reason: 'error', error }));
  ws.on('close', (code) => end({ reason: 'closed', code }));

  return {
    get isOpen() {
      return ws.readyState === WebSocket.OPEN;
    },
    send(data, { fin } = { fin: true }) {
      if (ws.readyState === WebSocket.OPEN) ws.send(data, { fin });
    },
    end: () => end({ reason: 'ended' }),
  };
}

const isHello = (frame: { readonly type: string }): frame is Hello => frame.type === 'hello';

/** For the hello of another version: its protocol, for people to read. */
function otherProtocol(data: Buffer): ConnectionEnd | null {
  try {
    const { type, protocol } = JSON.parse(data.toString('utf8'));
    const isOther = type === 'hello' && protocol !== PROTOCOL && /^[\w./-]{1,64}$/.test(protocol);
    return isOther ? { reason: 'other_protocol', protocol } : null;
  } catch {
    return null;
  }
}

/** In words, for an operator. */
export const updateBoth = (protocol: string) =>
  `the sidecar speaks ${protocol} and this process ${PROTOCOL}: install one version of both`;

/** A frame in JSON. The sidecar sends binary frames only to clients that sent one. */
export function readTextFrame(data: Buffer, isBinary: boolean): FromSidecar | null {
  try {
    return isBinary ? null : fromSidecarSchema.parse(JSON.parse(data.toString('utf8')));
  } catch {
    return null;
  }
}
