// One WebSocket connection to the sidecar, from connecting to its end: frames in, frames out, hello first, heartbeat.
import type { Socket } from 'node:net';
import { WebSocket } from 'ws';
import {
  attestedHeadSchema,
  type FromSidecar,
  fromSidecarSchema,
  type Hello,
  type Phases,
  splitBinaryFrame,
  type ToSidecar,
} from '../../proto/frames.ts';
import { membersIn } from './members.ts';

/** No frame of a sidecar's is larger: 64 devices' evidence and a token about them take some 2 MiB. */
const MAX_FRAME_BYTES = 8 * 1024 * 1024;
const HELLO_TIMEOUT_MS = 5_000;
const ONE_PIECE_BYTES = 64 * 1024;
const HEARTBEAT_MS = 1_000;
/** A sidecar that is stopped keeps its connection open: only its silence shows. */
const SILENCE_MS = 5_000;

/** What the sidecar says of one raw: `members` is JSON, an object with the attestation's token and evidence, in UTF-8. Whoever has taken them lets go of them. */
export interface Answered {
  readonly type: 'attested';
  readonly id: string;
  readonly nonce: string;
  members: Buffer;
  readonly phases: Phases | undefined;
}

type Frame = Exclude<FromSidecar, { type: 'attested' }> | Answered;

export interface LinkEvents {
  /** First; again, `greeted`, when the sidecar has become another on the same connection. */
  hello(hello: Hello, greeted: boolean): void;
  frame(frame: Exclude<Frame, Hello>): void;
  /** Once, last. The reason is for the log. */
  gone(reason: string): void;
}

export interface Link {
  send(frame: Exclude<ToSidecar, { type: 'attest' }>): void;
  /** `raw` in UTF-8. */
  attest(id: string, raw: Uint8Array): void;
  close(): void;
}

/** `socket`: one that is being connected. */
export function openLink(socket: Socket, events: LinkEvents): Link {
  // The path stays out of the address: in a URL a space or a # would make another of it.
  const ws = new WebSocket('ws://localhost/', {
    createConnection: () => socket,
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
  let corked = false;
  /** What is asked for in one turn of the event loop goes out in one write. */
  const together = () => {
    if (corked) return;
    corked = true;
    socket.cork();
    setImmediate(() => {
      corked = false;
      socket.uncork();
    });
  };
  const helloTimer = setTimeout(() => end('no hello in time'), HELLO_TIMEOUT_MS);
  const heartbeat = setInterval(() => {
    if (performance.now() - heard_ms > SILENCE_MS) end('silent for too long');
    else if (ws.readyState === WebSocket.OPEN) ws.ping();
  }, HEARTBEAT_MS);

  ws.on('message', (data, isBinary) => {
    // What came in one read with the frame that ended it is still told.
    if (gone) return;
    heard_ms = performance.now();
    const frame = isBinary ? parseBinary(data as Buffer) : parseFrame((data as Buffer).toString('utf8'));
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
    attest(id, raw) {
      if (ws.readyState !== WebSocket.OPEN) return;
      together();
      const head = Buffer.from(`${JSON.stringify({ type: 'attest', id })}\n`);
      if (raw.length <= ONE_PIECE_BYTES) return ws.send(Buffer.concat([head, raw]));
      // One message in two fragments: a large raw is not copied behind its head.
      ws.send(head, { fin: false });
      ws.send(raw, { fin: true });
    },
    close: () => end('closed by the gateway'),
  };
}

function parseFrame(text: string): Frame | null {
  try {
    const frame = fromSidecarSchema.parse(JSON.parse(text));
    if (frame.type !== 'attested') return frame;
    const { type, id, nonce, token, evidence, phases } = frame;
    return { type, id, nonce, members: Buffer.from(JSON.stringify({ token, evidence })), phases };
  } catch {
    return null;
  }
}

function parseBinary(frame: Buffer): Answered | null {
  try {
    const { head, carried } = splitBinaryFrame(frame);
    const { type, id, nonce, phases } = attestedHeadSchema.parse(JSON.parse(head));
    const members = membersIn(Buffer.from(carried.buffer, carried.byteOffset, carried.byteLength));
    return members === null ? null : { type, id, nonce, members, phases };
  } catch {
    return null;
  }
}
