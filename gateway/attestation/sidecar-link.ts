// One WebSocket connection to the sidecar: hello first, then frames in both directions, with a heartbeat.
import { isUtf8 } from 'node:buffer';
import { closeSync, constants, fstatSync, lstatSync, openSync, type Stats } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import {
  type ConnectionEnd,
  connectToSidecar,
  readTextFrame,
  turnCork,
  updateBoth,
} from '../../node/sidecar-connection.ts';
import { MAX_DEVICES } from '../../proto/attestation/attestation.ts';
import { type Batch, MAX_LEAVES } from '../../proto/attestation/batch.ts';
import {
  attestedBatchHeadSchema,
  attestedHeadSchema,
  attestedMembersSchema,
  type BatchGroup,
  type FromSidecar,
  type Hello,
  leavesSchema,
  type Phases,
  type Signed,
  splitBinaryFrame,
  type ToSidecar,
} from '../../proto/attestation/frames.ts';
import { bufferOf } from '../base/bytes.ts';

/** Limit for a frame from the sidecar. The evidence of 64 devices and an attestation token about them take some 2 MiB. */
const MAX_FRAME_BYTES = 8 * 1024 * 1024;
const HELLO_TIMEOUT_MS = 5_000;
const MAX_COPIED_BYTES = 64 * 1024;
/** Limit for a leaf of a batch as JSON: its id, salt, path, signature. */
const MAX_LEAF_BYTES = 2 * 1024;
/** A stopped sidecar keeps its connection open. Only its silence shows that it has stopped. */
const HEARTBEAT = { every_ms: 1_000, silence_ms: 5_000 } as const;

/** The sidecar's result for one raw, or for those of a batch. */
export interface AttestedFrame {
  readonly type: 'attested';
  readonly nonce: string;
  /** A JSON object with the attestation's token and evidence, in UTF-8. */
  readonly members: Buffer;
  readonly answers: readonly AttestedAnswer[];
}

interface AttestedAnswer {
  readonly id: string;
  /** Merkle proof of this raw under the nonce; null: the nonce is its SHA-256. */
  readonly batch: Batch | null;
  /** The session, and its key's signature over this response; null where no processor signs. */
  readonly cpu: Signed | null;
  readonly phases: Phases | undefined;
}

type Frame = Exclude<FromSidecar, { type: 'attested' }> | AttestedFrame;

interface LinkEvents {
  /** Called first; then with `again`, when the attester or the devices behind this connection have changed. */
  hello(hello: Hello, again: boolean): void;
  frame(frame: Exclude<Frame, Hello>): void;
  /** Called once and last. The reason is for the log. `other_protocol`: the sidecar is of another version. */
  closed(reason: string, end: ConnectionEnd['reason']): void;
}

export interface Link {
  send(frame: Exclude<ToSidecar, { type: 'attest' }>): void;
  /** `raw` is in UTF-8. `batch`: the group of responses that may share the nonce; null: none may. */
  attest(id: string, raw: Uint8Array, batch: BatchGroup | null): void;
  close(): void;
}

/** `socket` may still be connecting. */
export function openLink(socket: Socket, events: LinkEvents): Link {
  const connection = connectToSidecar<Frame>({
    createConnection: () => socket,
    max_frame_bytes: MAX_FRAME_BYTES,
    hello_timeout_ms: HELLO_TIMEOUT_MS,
    heartbeat: HEARTBEAT,
    read: (data, isBinary) => (isBinary ? parseBinary(data) : parseFrame(data)),
    onHello: events.hello,
    onFrame: events.frame,
    onEnd: (end) => events.closed(describeEnd(end), end.reason),
  });
  const corkForThisTurn = turnCork(socket);

  return {
    send: (frame) => connection.send(JSON.stringify(frame)),
    attest(id, raw, batch) {
      if (!connection.isOpen) return;
      corkForThisTurn();
      const head = Buffer.from(`${JSON.stringify({ type: 'attest', id, ...(batch === null ? {} : { batch }) })}\n`);
      if (raw.length <= MAX_COPIED_BYTES) return connection.send(Buffer.concat([head, raw]));
      // A large raw is sent as a second fragment of the message, so that it is not copied behind its head.
      connection.send(head, { fin: false });
      connection.send(raw, { fin: true });
    },
    close: () => connection.end(),
  };
}

function describeEnd(end: ConnectionEnd): string {
  switch (end.reason) {
    case 'error':
      return end.error.code ?? end.error.message;
    case 'closed':
      return `closed with ${end.code}`;
    case 'no_hello_in_time':
      return 'no hello in time';
    case 'silent':
      return 'silent for too long';
    case 'other_protocol':
      return updateBoth(end.protocol);
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
  const { type, id, nonce, token, evidence, batch = null, cpu = null, phases } = frame;
  const members = Buffer.from(JSON.stringify({ token, evidence }));
  return { type, nonce, members, answers: [{ id, batch, cpu, phases }] };
}

function parseBinary(frame: Buffer): AttestedFrame | null {
  try {
    const { head, payload } = splitBinaryFrame(frame);
    const value: unknown = JSON.parse(head);
    if ((value as { type?: unknown }).type === 'attested_batch') return parseBatch(value, payload);
    const { type, id, nonce, cpu = null, phases } = attestedHeadSchema.parse(value);
    const members = membersIn(bufferOf(payload));
    return members === null ? null : { type, nonce, members, answers: [{ id, batch: null, cpu, phases }] };
  } catch {
    return null;
  }
}

/** @throws {Error} unless head and leaves match the protocol. */
function parseBatch(head: unknown, payload: Uint8Array): AttestedFrame | null {
  const { nonce, tree_size, phases } = attestedBatchHeadSchema.parse(head);
  const { head: leaves, payload: rest } = splitBinaryFrame(payload, MAX_LEAVES * MAX_LEAF_BYTES);
  const answers = leavesSchema
    .parse(JSON.parse(leaves))
    .map(({ id, salt, leaf_index, path, cpu = null, queue_ms }) => ({
      id,
      batch: { salt, leaf_index, tree_size, path },
      cpu,
      phases: { ...phases, queue_ms },
    }));
  const members = membersIn(bufferOf(rest));
  return members === null ? null : { type: 'attested', nonce, members, answers };
}

// Validates the members that the sidecar adds to an attestation. The usual form is validated without a JSON parse: it is the largest part
// of each attestation, and parsing it would cause half of the gateway's garbage.

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

/**
 * Returns the bytes if they are JSON of {@link attestedMembersSchema}, else null. The form that a sidecar writes is not parsed. Any
 * other form is parsed and serialized anew, because it becomes part of a response and of a single line of an event.
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

/** Whether the bytes have exactly the schema's members, in order, without spaces, in ASCII. */
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
  // An attestation of more devices is left to the schema, which refuses it.
  for (let devices = 1; devices <= MAX_DEVICES; devices++) {
    if (!text(ARCH) || !string(1) || !text(REPORT) || !string(4) || !text(CHAIN) || !string(4)) return false;
    if (text(END)) return at === bytes.length;
    if (!text(NEXT)) return false;
  }
  return false;
}

/**
 * Returns the offset after the string at `at`, which must have `min` characters or more. Returns 0 when the string is missing or may be
 * invalid.
 */
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

/**
 * Tests four bytes at once: none is a quote, a backslash, a control character or outside of ASCII. Each term sets a byte's high bit for one
 * of these cases.
 */
function isOrdinary(four: number): boolean {
  const control = four - 0x20202020;
  const quote = (four ^ 0x22222222) - 0x01010101;
  const backslash = (four ^ 0x5c5c5c5c) - 0x01010101;
  return ((four | control | quote | backslash) & 0x80808080) === 0;
}

// Connects to the sidecar's socket after checking who owns it. A user who can write in its folder could replace the socket and would
// receive prompts. Node does not report which process listens (SO_PEERCRED), so the owner and the mode of folder and socket decide.

/** The socket may be another user's. The message is for /health and the log, and names no path. */
export class SocketRefused extends Error {
  override readonly name = 'SocketRefused';
  readonly code: 'socket_owner' | 'socket_mode' | 'socket_kind';
  constructor(code: SocketRefused['code'], message: string) {
    super(message);
    this.code = code;
  }
}

const ROOT_UID = 0;
const GROUP_WRITES = 0o020;
const OTHERS_WRITE = 0o002;

/**
 * `sidecar_uid`: a user who may own folder and socket beside root and the gateway's own user; null: no other user.
 * @throws {SocketRefused}.
 * @throws the system's error for the folder or the socket: ENOENT, EACCES.
 */
export function connectOwned(path: string, sidecar_uid: number | null): Socket {
  const folder = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    checkFolder(fstatSync(folder), sidecar_uid);
    // The path goes through the open folder, so that renaming it, or a folder above it, cannot replace the socket between check and
    // connect.
    const socket = process.platform === 'linux' ? `/proc/self/fd/${folder}/${basename(path)}` : path;
    checkSocket(lstatSync(socket), sidecar_uid);
    return connect(socket);
  } finally {
    closeSync(folder);
  }
}

function checkFolder(stats: Stats, sidecar_uid: number | null): void {
  checkOwner("the socket's folder", stats.uid, sidecar_uid);
  if ((stats.mode & (GROUP_WRITES | OTHERS_WRITE)) !== 0)
    throw new SocketRefused('socket_mode', "others may write in the socket's folder: its mode must be 0750 or less");
}

function checkSocket(stats: Stats, sidecar_uid: number | null): void {
  if (!stats.isSocket()) throw new SocketRefused('socket_kind', 'what stands in its place is not a socket');
  checkOwner('the socket', stats.uid, sidecar_uid);
  if ((stats.mode & OTHERS_WRITE) !== 0)
    throw new SocketRefused('socket_mode', 'everybody may connect to the socket: its mode must be 0660 or less');
}

function checkOwner(subject: string, uid: number, sidecar_uid: number | null): void {
  const own_uid = process.getuid?.();
  if (uid === ROOT_UID || uid === own_uid || uid === sidecar_uid) return;
  throw new SocketRefused(
    'socket_owner',
    `${subject} belongs to user ${uid}, who is neither root nor this gateway's user (${own_uid}) nor SIDECAR_UID`,
  );
}
