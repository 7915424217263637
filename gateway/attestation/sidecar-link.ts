// One WebSocket connection to the sidecar, from connecting to its end: frames in, frames out, hello first, heartbeat.

import { isUtf8 } from 'node:buffer';
import type { Socket } from 'node:net';
import {
  attestedHeadSchema,
  attestedMembersSchema,
  type FromSidecar,
  type Hello,
  type Phases,
  splitBinaryFrame,
  type ToSidecar,
} from '../../proto/frames.ts';
import { type ConnectionEnd, connectToSidecar, readTextFrame } from '../../proto/sidecar-connection.ts';

/** No frame of a sidecar's is larger: 64 devices' evidence and a token about them take some 2 MiB. */
const MAX_FRAME_BYTES = 8 * 1024 * 1024;
const HELLO_TIMEOUT_MS = 5_000;
const ONE_PIECE_BYTES = 64 * 1024;
/** A sidecar that is stopped keeps its connection open: only its silence shows. */
const HEARTBEAT = { every_ms: 1_000, silence_ms: 5_000 } as const;

/** What the sidecar says of one raw: `members` is JSON, an object with the attestation's token and evidence, in UTF-8. Whoever has taken them lets go of them. */
export interface Answered {
  readonly type: 'attested';
  readonly id: string;
  readonly nonce: string;
  members: Buffer;
  readonly phases: Phases | undefined;
}

type Frame = Exclude<FromSidecar, { type: 'attested' }> | Answered;

interface LinkEvents {
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
  const connection = connectToSidecar<Frame>({
    createConnection: () => socket,
    max_frame_bytes: MAX_FRAME_BYTES,
    hello_timeout_ms: HELLO_TIMEOUT_MS,
    heartbeat: HEARTBEAT,
    read: (data, isBinary) => (isBinary ? parseBinary(data) : parseFrame(data)),
    onHello: events.hello,
    onFrame: events.frame,
    onEnd: (end) => events.gone(inWords(end)),
  });
  let corked = false;
  /** The requests of one turn of the event loop go out in one write. */
  const corkForThisTurn = () => {
    if (corked) return;
    corked = true;
    socket.cork();
    setImmediate(() => {
      corked = false;
      socket.uncork();
    });
  };

  return {
    send: (frame) => connection.send(JSON.stringify(frame)),
    attest(id, raw) {
      if (!connection.isOpen) return;
      corkForThisTurn();
      const head = Buffer.from(`${JSON.stringify({ type: 'attest', id })}\n`);
      if (raw.length <= ONE_PIECE_BYTES) return connection.send(Buffer.concat([head, raw]));
      // One message in two fragments: a large raw is not copied behind its head.
      connection.send(head, { fin: false });
      connection.send(raw, { fin: true });
    },
    close: () => connection.end(),
  };
}

function inWords(end: ConnectionEnd): string {
  switch (end.reason) {
    case 'error':
      return end.error.code ?? end.error.message;
    case 'closed':
      return `closed with ${end.code}`;
    case 'no_hello_in_time':
      return 'no hello in time';
    case 'silent':
      return 'silent for too long';
    case 'invalid_frame':
    case 'hello_not_first':
      return 'a frame that the protocol does not allow';
    case 'ended':
      return 'closed by the gateway';
  }
}

function parseFrame(data: Buffer): Frame | null {
  const frame = readTextFrame(data, false);
  if (frame?.type !== 'attested') return frame;
  const { type, id, nonce, token, evidence, phases } = frame;
  return { type, id, nonce, members: Buffer.from(JSON.stringify({ token, evidence })), phases };
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

// What an attestation has beside raw and nonce, as the sidecar sends it: in its own form looked at without being taken apart. Of each
// attestation it is the largest part, and the texts and objects of a parse would be half of what the gateway's memory is cleaned of.

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'));

const TOKEN = Buffer.from('{"token":');
const EVIDENCE = Buffer.from(',"evidence":[');
const ARCH = Buffer.from('{"arch":');
const REPORT = Buffer.from(',"report":');
const CHAIN = Buffer.from(',"certificate_chain":');
const NEXT = Buffer.from('},');
const END = Buffer.from('}]}');
/** As many devices as the schema allows; more are for it to refuse. */
const MAX_DEVICES = 64;

/**
 * The bytes, if they are JSON of {@link attestedMembersSchema}; null otherwise. The form that a sidecar writes is seen at a glance.
 * Any other is parsed and written anew: it goes into an answer, and into the one line of an event.
 */
export function membersIn(bytes: Buffer): Buffer | null {
  if (isPlain(bytes)) return bytes;
  if (bytes[0] !== BRACE || !isUtf8(bytes)) return null;
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return attestedMembersSchema.safeParse(value).success ? Buffer.from(JSON.stringify(value)) : null;
  } catch {
    return null;
  }
}

/** Exactly the members of the schema in their order, without spaces, in ASCII. */
function isPlain(bytes: Buffer): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const text = (expected: Buffer): boolean => {
    for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
    at += expected.length;
    return true;
  };
  const string = (min: number): boolean => {
    const end = endOfString(view, at, min);
    at = end;
    return end > 0;
  };
  if (!text(TOKEN) || !string(2) || !text(EVIDENCE)) return false;
  for (let devices = 1; devices <= MAX_DEVICES; devices++) {
    if (!text(ARCH) || !string(1) || !text(REPORT) || !string(4) || !text(CHAIN) || !string(4)) return false;
    if (text(END)) return at === bytes.length;
    if (!text(NEXT)) return false;
  }
  return false;
}

/** After the closing quote of the string at `at`, of at least `min` characters; 0 when there is none that is surely right. */
function endOfString(view: DataView, at: number, min: number): number {
  const { byteLength } = view;
  if (at >= byteLength || view.getUint8(at) !== QUOTE) return 0;
  let escapes = 0;
  for (let i = at + 1; i < byteLength; ) {
    if (i + 4 <= byteLength && isOrdinary(view.getInt32(i))) {
      i += 4;
      continue;
    }
    const byte = view.getUint8(i);
    if (byte === QUOTE) return i - at - 1 - escapes >= min ? i + 1 : 0;
    if (byte === BACKSLASH) {
      if (i + 1 >= byteLength || !ESCAPED.has(view.getUint8(i + 1))) return 0;
      escapes++;
      i += 2;
    } else if (byte < 0x20 || byte >= 0x80) return 0;
    else i++;
  }
  return 0;
}

/** Four bytes at once: none is a quote, a backslash, a control character or outside of ASCII. Each term sets a byte's high bit for one of them. */
function isOrdinary(four: number): boolean {
  const control = four - 0x20202020;
  const quote = (four ^ 0x22222222) - 0x01010101;
  const backslash = (four ^ 0x5c5c5c5c) - 0x01010101;
  return ((four | control | quote | backslash) & 0x80808080) === 0;
}
