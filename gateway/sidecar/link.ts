// One WebSocket connection to the sidecar, from connecting to its end: frames in, frames out, hello first, heartbeat.
import { WebSocket } from 'ws';
import {
  type FromSidecar,
  fromSidecarSchema,
  type Hello,
  MAX_FRAME_BYTES,
  type ToSidecar,
} from '../../proto/frames.ts';

const HELLO_TIMEOUT_MS = 5_000;
const HEARTBEAT_MS = 1_000;
/** A sidecar that is stopped keeps its connection open: only its silence shows. */
const SILENCE_MS = 5_000;

export interface LinkEvents {
  /** First; again, `greeted`, when the sidecar has become another on the same connection. */
  hello(hello: Hello, greeted: boolean): void;
  frame(frame: Exclude<FromSidecar, Hello>): void;
  /** Once, last. The reason is for the log. */
  gone(reason: string): void;
}

export interface Link {
  send(frame: ToSidecar): void;
  close(): void;
}

export function openLink(socketPath: string, events: LinkEvents): Link {
  const ws = new WebSocket(`ws+unix://${socketPath}:/`, {
    perMessageDeflate: false,
    maxPayload: MAX_FRAME_BYTES,
    handshakeTimeout: HELLO_TIMEOUT_MS,
    // RFC 6455 masks against confused proxies. On a Unix socket there is none, and a zero mask costs no pass over raw.
    generateMask: (mask: Buffer) => mask.fill(0),
  });
  let greeted = false;
  let gone = false;
  let heard_ms = performance.now();

  const end = (reason: string) => {
    if (gone) return;
    gone = true;
    clearTimeout(helloTimer);
    clearInterval(heartbeat);
    ws.terminate();
    events.gone(reason);
  };
  const helloTimer = setTimeout(() => end('no hello in time'), HELLO_TIMEOUT_MS);
  const heartbeat = setInterval(() => {
    if (performance.now() - heard_ms > SILENCE_MS) end('silent for too long');
    else if (ws.readyState === WebSocket.OPEN) ws.ping();
  }, HEARTBEAT_MS);

  ws.on('message', (data, isBinary) => {
    heard_ms = performance.now();
    const frame = isBinary ? null : parseFrame((data as Buffer).toString('utf8'));
    if (frame === null || (frame.type !== 'hello' && !greeted)) return end('a frame that the protocol does not allow');
    if (frame.type !== 'hello') return events.frame(frame);
    const again = greeted;
    greeted = true;
    clearTimeout(helloTimer);
    events.hello(frame, again);
  });
  ws.on('pong', () => {
    heard_ms = performance.now();
  });
  ws.on('error', (error) => end((error as NodeJS.ErrnoException).code ?? error.message));
  ws.on('close', (code) => end(`closed with ${code}`));

  return {
    send: (frame) => {
      if (ws.readyState === WebSocket.OPEN) ws.send(JSON.stringify(frame));
    },
    close: () => end('closed by the gateway'),
  };
}

function parseFrame(text: string): FromSidecar | null {
  try {
    return fromSidecarSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
