// One gateway's connection: reads its frames, queues its requests, sends one result for each id.
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { turnCork } from '../../node/sidecar-connection.ts';
import type { Evidence } from '../../proto/attestation/attestation.ts';
import {
  type AttestedBatchHead,
  attestHeadSchema,
  type BatchGroup,
  type BatchLeaf,
  type Failed,
  type FromSidecar,
  type KeysFrame,
  MAX_FAILED_MESSAGE,
  MAX_UNAVAILABLE_MESSAGE,
  type Phases,
  PROTOCOL,
  type SharedKeys,
  splitBinaryFrame,
  type ToSidecar,
  toSidecarSchema,
} from '../../proto/attestation/frames.ts';
import { MAX_RAW_LENGTH, type Nonce } from '../../proto/attestation/raw.ts';
import { JsonTextError } from '../../proto/json.ts';
import { type Attester, AttesterError } from '../common/attester.ts';
import { RETRY_AFTER_MS } from '../common/retry.ts';
import { SessionBusy, SessionChanged, type Sessions, type Signed } from '../cpu/sessions.ts';
import type { Timed, TimedLeaf } from '../signing/batches.ts';
import { DeadlineExceeded, QueueFull } from '../signing/queue.ts';
import type { Scheduler } from '../signing/scheduler.ts';
import { nonceOfRaw, type ReadRaw } from './nonce.ts';

/** How one request ended, for the log. */
export interface Result {
  readonly id: string;
  readonly code: 'attested' | 'cancelled' | Failed['code'];
  readonly ms: number;
  readonly phases: Phases | null;
}

type AttestFrame = Extract<ToSidecar, { type: 'attest' }>;
type Send = (frame: FromSidecar) => void;
type Reply = (id: string, attested: Timed | TimedLeaf, cpu: Signed | null) => void;

interface ConnectionDeps {
  readonly attester: Attester;
  readonly scheduler: Scheduler;
  /** null: no processor signs. */
  readonly sessions: Sessions | null;
  readonly onKeys: (frame: KeysFrame) => void;
  readonly onResult: (result: Result) => void;
  /** Called with an error of an unknown type, for the log. */
  readonly onUnexpected: (error: unknown) => void;
  readonly totals: () => { attested_total: number; failed_total: number };
}

export interface GatewayConnection {
  /** Sends the gateway the current state. To be called when the state changes. */
  sendStatus(): void;
  /** Sends the session whose key signs responses from now on. */
  sendSession(): void;
  sendKeys(keys: SharedKeys): void;
  /** Takes no new requests from now on. Resolves when every earlier one has its result. */
  drain(): Promise<void>;
}

/** A UTF-16 code unit of raw takes at most three bytes of UTF-8. */
const MAX_RAW_BYTES = 3 * MAX_RAW_LENGTH;

/** @param socket the connection that carries `ws`. */
export function serveConnection(ws: WebSocket, socket: Duplex, deps: ConnectionDeps): GatewayConnection {
  const { scheduler, sessions } = deps;
  const requests = new Map<string, AbortController>();
  let drained: (() => void) | null = null;
  const send: Send = (frame) => {
    if (ws.readyState === ws.OPEN) ws.send(JSON.stringify(frame));
  };
  const { sendText, sendBinary } = createReplies(ws, socket, send);
  const fail = (id: string | null, code: Failed['code'], message: string, retry_after_ms?: number) =>
    send({ type: 'failed', id, code, message, ...(retry_after_ms === undefined ? {} : { retry_after_ms }) });

  const { sendStatus, sendSession, sendHello } = createAnnouncements(deps, send);
  sendHello();
  sendSession();

  ws.on('message', (data, isBinary) => {
    const frame = isBinary ? parseBinary(data as Buffer) : parseFrame((data as Buffer).toString('utf8'));
    if (frame === null) return fail(null, 'invalid_frame', 'the frame is not one of the protocol');
    if (frame.type === 'status') return sendStatus();
    if (frame.type === 'keys') return deps.onKeys(frame);
    if (frame.type === 'cancel') return requests.get(frame.id)?.abort(new Error('cancelled'));
    if (requests.has(frame.id)) return fail(frame.id, 'duplicate_id', 'this id is being worked on');
    if (drained !== null) return fail(frame.id, 'shutting_down', 'the sidecar stops', RETRY_AFTER_MS.shutting_down);
    if (frame.type === 'session') return void handleChallenge(frame.id, frame.challenge);
    const reply = isBinary ? sendBinary : sendText;
    void handleAttest(frame.id, readOf(frame.raw), frame.batch, reply);
  });
  // A gateway that reconnects sends its requests again.
  ws.on('close', () => {
    for (const abort of requests.values()) abort.abort(new Error('the gateway left'));
  });
  ws.on('error', () => ws.terminate());
  return {
    sendStatus,
    sendSession,
    sendKeys: send,
    drain() {
      return new Promise((resolve) => {
        drained = resolve;
        if (requests.size === 0) resolve();
      });
    },
  };

  async function handleAttest(
    id: string,
    reading: Promise<ReadRaw>,
    group: BatchGroup | undefined,
    reply: Reply,
  ): Promise<void> {
    const started = performance.now();
    const abort = new AbortController();
    requests.set(id, abort);
    let code: Result['code'] = 'attested';
    let phases: Phases | null = null;
    try {
      const { nonce: digest, session } = await reading;
      const signer = signerOf(sessions, session);
      const attested = await (group === undefined
        ? scheduler.attest(digest, abort.signal)
        : scheduler.attestInBatch(digest, group, abort.signal));
      const cpu = (await signer?.(digest, attested.evidence)) ?? null;
      abort.signal.throwIfAborted();
      phases = attested.phases;
      reply(id, attested, cpu);
    } catch (error) {
      code = 'cancelled';
      if (abort.signal.aborted) return;
      const failure = failureOf(error);
      code = failure.code;
      if (failure.unexpected) deps.onUnexpected(error);
      fail(id, failure.code, failure.message, failure.retry_after_ms);
    } finally {
      requests.delete(id);
      deps.onResult({ id, code, ms: performance.now() - started, phases });
      if (requests.size === 0) drained?.();
    }
  }

  async function handleChallenge(id: string, challenge: string): Promise<void> {
    if (sessions === null) return fail(id, 'no_session', 'no processor signs here');
    const abort = new AbortController();
    requests.set(id, abort);
    try {
      const session = await sessions.challenged(challenge, abort.signal);
      send({ type: 'session', id, ...session });
    } catch (error) {
      if (abort.signal.aborted) return;
      const failure = failureOf(error);
      if (failure.unexpected) deps.onUnexpected(error);
      fail(id, failure.code, failure.message, failure.retry_after_ms);
    } finally {
      requests.delete(id);
      if (requests.size === 0) drained?.();
    }
  }
}

/** @throws {SessionChanged} raw names another session than the current one. */
function signerOf(sessions: Sessions | null, named: string | null) {
  if (sessions !== null) return sessions.signerIn(named);
  if (named !== null) throw new SessionChanged();
  return null;
}

/** Sends what this sidecar is, its session and its state. */
function createAnnouncements({ attester, scheduler, sessions, totals }: ConnectionDeps, send: Send) {
  const unavailable = () => scheduler.unavailable ?? sessions?.unavailable ?? null;
  let announced: Attester['devices'] | null = null;
  let announcedCpu: string | null = null;
  /** Sent first, and again when the attester's devices have changed. */
  const sendHello = () => {
    const { name, reason, devices, simulated, token_keys } = attester;
    announced = devices;
    announcedCpu = sessions?.type ?? null;
    send({
      type: 'hello',
      protocol: PROTOCOL,
      attester: name,
      ...(reason === undefined ? {} : { attester_reason: reason.slice(0, MAX_UNAVAILABLE_MESSAGE) }),
      devices: [...devices],
      simulated: simulated === null ? null : { root: simulated.root + (sessions?.simulatedRoot ?? '') },
      cpu: sessions === null ? null : { type: sessions.type ?? 'unknown' },
      ...(scheduler.signers === 1 ? {} : { signers: scheduler.signers }),
      ...(token_keys === undefined ? {} : { token_keys: { keys: token_keys.keys.map((key) => ({ ...key })) } }),
      trouble: unavailable(),
    });
  };
  const sendSession = () => {
    if (sessions !== null && sessions.type !== announcedCpu) sendHello();
    const session = sessions?.current ?? null;
    if (session !== null) send({ type: 'session', id: null, ...session });
  };
  const sendStatus = () => {
    if (attester.devices !== announced) sendHello();
    send({
      type: 'status',
      attester: attester.name,
      queued: scheduler.waiting,
      collecting: scheduler.running,
      ...totals(),
      trouble: unavailable(),
    });
  };
  return { sendHello, sendSession, sendStatus };
}

/** Sends results: as JSON in one text frame, or in a binary frame, where those of a batch share one. */
function createReplies(ws: WebSocket, socket: Duplex, send: Send) {
  const corkForThisTurn = turnCork(socket);
  const sendText: Reply = (id, attested, cpu) => {
    const { nonce, token, evidence, phases } = attested;
    const batch = 'batch' in attested ? { batch: { ...attested.batch, path: [...attested.batch.path] } } : {};
    const signed = cpu === null ? {} : { cpu };
    send({ type: 'attested', id, nonce, token, evidence: [...evidence], ...batch, ...signed, phases });
  };
  const sendBinary: Reply = (id, attested, cpu) => {
    if ('batch' in attested) return sendWithBatch(id, attested, cpu);
    const { nonce, phases } = attested;
    const head = JSON.stringify({ type: 'attested', id, nonce, ...(cpu === null ? {} : { cpu }), phases });
    sendWithMembers(`${head}\n`, attested);
  };
  const sendWithMembers = (heads: string, { token, evidence }: Timed) => {
    if (ws.readyState !== ws.OPEN) return;
    corkForThisTurn();
    const texts = [`${heads}{"token":${JSON.stringify(token)},"evidence":[`];
    for (const [i, one] of evidence.entries()) texts.push(i === 0 ? '' : ',', ...evidenceJson(one));
    texts.push(']}');
    ws.send(utf8Of(texts));
  };
  /** Results of batches that are ready in this event-loop turn, by nonce. */
  const ready = new Map<Nonce, { readonly timed: TimedLeaf; readonly leaves: BatchLeaf[] }>();
  /** The results of a batch are sent in one frame, which holds their attestation token and evidence once. */
  const sendWithBatch = (id: string, timed: TimedLeaf, cpu: Signed | null) => {
    if (ready.size === 0) setImmediate(sendReady);
    const { salt, leaf_index, path } = timed.batch;
    const { queue_ms } = timed.phases;
    const leaf = { id, salt, leaf_index, path: [...path], ...(cpu === null ? {} : { cpu }), queue_ms };
    const batch = ready.get(timed.nonce);
    if (batch === undefined) ready.set(timed.nonce, { timed, leaves: [leaf] });
    else batch.leaves.push(leaf);
  };
  const sendReady = () => {
    for (const [nonce, { timed, leaves }] of ready) {
      const { queue_ms: _, ...phases } = timed.phases;
      const head: AttestedBatchHead = { type: 'attested_batch', nonce, tree_size: timed.batch.tree_size, phases };
      sendWithMembers(`${JSON.stringify(head)}\n${JSON.stringify(leaves)}\n`, timed);
    }
    ready.clear();
  };
  return { sendText, sendBinary };
}

function parseFrame(text: string): ToSidecar | null {
  try {
    return toSidecarSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** As `JSON.stringify`, in parts: base64 was checked before, so it is not searched for characters to escape. */
function evidenceJson(one: Evidence): readonly string[] {
  const { arch, report, certificate_chain, ...more } = one;
  if (Object.keys(more).length > 0) return [JSON.stringify(one)];
  return [`{"arch":${JSON.stringify(arch)},"report":"`, report, '","certificate_chain":"', certificate_chain, '"}'];
}

/** Encodes the texts as UTF-8 without first joining them into one string. */
function utf8Of(texts: readonly string[]): Buffer {
  const bytes = Buffer.allocUnsafe(texts.reduce((length, text) => length + Buffer.byteLength(text), 0));
  let at = 0;
  for (const text of texts) at += bytes.write(text, at);
  return bytes;
}

function parseBinary(frame: Buffer): (Omit<AttestFrame, 'raw'> & { readonly raw: Buffer }) | null {
  try {
    const { head, payload } = splitBinaryFrame(frame);
    const request = attestHeadSchema.parse(JSON.parse(head));
    if (payload.length > MAX_RAW_BYTES) return null;
    return { ...request, raw: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength) };
  } catch {
    return null;
  }
}

/** A waiting request keeps only this, not raw. @throws {JsonTextError} */
const readOf = async (raw: string | Buffer): Promise<ReadRaw> => nonceOfRaw(raw);

interface Failure {
  readonly code: Failed['code'];
  readonly message: string;
  readonly retry_after_ms?: number;
  readonly unexpected?: boolean;
}

function failureOf(error: unknown): Failure {
  if (error instanceof JsonTextError) return { code: 'invalid_raw', message: error.message };
  if (error instanceof SessionChanged) return { code: 'session_changed', message: error.message };
  if (error instanceof SessionBusy)
    return { code: 'queue_full', message: error.message, retry_after_ms: RETRY_AFTER_MS.session };
  if (error instanceof QueueFull)
    return { code: 'queue_full', message: error.message, retry_after_ms: error.retry_after_ms };
  if (error instanceof DeadlineExceeded) return { code: 'deadline_exceeded', message: error.message };
  if (error instanceof AttesterError)
    return {
      code: error.code,
      message: error.message.slice(0, MAX_FAILED_MESSAGE),
      ...(error.retryable ? { retry_after_ms: error.retry_after_ms ?? RETRY_AFTER_MS.attester } : {}),
    };
  return { code: 'collection_failed', message: 'the attester failed in an unexpected way', unexpected: true };
}
