// A WebSocket connection to the sidecar over a Unix socket: hello first, then frames, until it ends. The gateway, the health check and
// the doctor use it. For Node only: no other file of proto/ imports `ws` or a Node module.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { type FromSidecar, fromSidecarSchema, type Hello, PROTOCOL } from '../proto/attestation/frames.ts';

/** The reason why a connection has ended. */
export type ConnectionEnd =
  /** An error of the system or of the WebSocket: nothing listens there, or the peer sent no valid WebSocket frame. */
  | { readonly reason: 'error'; readonly error: NodeJS.ErrnoException }
  | { readonly reason: 'closed'; readonly code: number }
  | { readonly reason: 'no_hello_in_time' }
  /** No frame came for too long, not even the pong to a ping. */
  | { readonly reason: 'silent' }
  /** A frame that is not part of the protocol. */
  | { readonly reason: 'invalid_frame' }
  /** The sidecar is of another version; `protocol` is the one that its hello names. */
  | { readonly reason: 'other_protocol'; readonly protocol: string }
  /** Another frame came before the hello. */
  | { readonly reason: 'hello_not_first' }
  /** By {@link SidecarConnection.end}. */
  | { readonly reason: 'ended' };

/** Every frame but the hello, as `read` returns them. */
type Frame<T> = Exclude<T, Hello>;

interface ConnectionOptions<T extends { readonly type: string }> {
  /** Called once. A URL cannot hold a Unix socket's path: a space or a # would change it. */
  readonly createConnection: () => Socket;
  /** `/` by default; `HEALTH_PATH` for a health check. */
  readonly path?: string;
  readonly max_frame_bytes: number;
  /** From connecting to the hello, the handshake included. */
  readonly hello_timeout_ms: number;
  /** Pings every `every_ms`, and ends after `silence_ms` without a frame or a pong. Without it a connection may be silent. */
  readonly heartbeat?: { readonly every_ms: number; readonly silence_ms: number };
  /** Parses one frame; null for an invalid one. {@link readTextFrame} for a client that sends no binary frames. */
  readonly read: (data: Buffer, isBinary: boolean) => Hello | T | null;
  /** Called first, and with `again` when the attester or the devices have changed during the connection. */
  readonly onHello: (hello: Hello, again: boolean) => void;
  readonly onFrame: (frame: Frame<T>) => void;
  /** Called once, last. */
  readonly onEnd: (end: ConnectionEnd) => void;
}

interface SidecarConnection {
  readonly isOpen: boolean;
  /** Sends one message, or with `fin: false` a fragment of one. Does nothing unless the connection is open. */
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
    // RFC 6455 masks frames against confused proxies. A Unix socket has none, and with a zero mask `ws` skips a pass over raw.
    generateMask: (mask: Buffer) => mask.fill(0),
  });
  let greeted = false;
  let ended = false;
  let received_ms = performance.now();

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
      if (performance.now() - received_ms > heartbeat.silence_ms) end({ reason: 'silent' });
      else if (ws.readyState === WebSocket.OPEN) ws.ping();
    }, heartbeat.every_ms);

  ws.on('message', (data, isBinary) => {
    // After the end, `ws` still emits messages that came in the same read.
    if (ended) return;
    received_ms = performance.now();
    const frame = read(data as Buffer, isBinary);
    if (frame === null) return end((greeted ? null : otherProtocol(data as Buffer)) ?? { reason: 'invalid_frame' });
    if (!isHello(frame)) return greeted ? onFrame(frame as Frame<T>) : end({ reason: 'hello_not_first' });
    const again = greeted;
    greeted = true;
    clearTimeout(hello_timer);
    onHello(frame, again);
  });
  ws.on('pong', () => {
    received_ms = performance.now();
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

/** The end for a hello of another version, with the protocol that it names; null for any other data. */
function otherProtocol(data: Buffer): ConnectionEnd | null {
  try {
    const { type, protocol } = JSON.parse(data.toString('utf8'));
    const isOther = type === 'hello' && protocol !== PROTOCOL && /^[\w./-]{1,64}$/.test(protocol);
    return isOther ? { reason: 'other_protocol', protocol } : null;
  } catch {
    return null;
  }
}

/** The message for an operator. */
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

/** Either end's writes: a call of the function collects all that is sent in this turn of the event loop into one write. */
export function turnCork(socket: Pick<Duplex, 'cork' | 'uncork'>): () => void {
  let corked = false;
  return () => {
    if (corked) return;
    corked = true;
    socket.cork();
    setImmediate(() => {
      corked = false;
      socket.uncork();
    });
  };
}
