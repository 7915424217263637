// One gateway's connection: reads its frames, queues what it asks for, answers each id once.
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Evidence } from '../../proto/attestation.ts';
import {
  attestHeadSchema,
  type Failed,
  type FromSidecar,
  type Phases,
  PROTOCOL,
  splitBinaryFrame,
  type ToSidecar,
  toSidecarSchema,
} from '../../proto/frames.ts';
import { JsonTextError } from '../../proto/json.ts';
import { MAX_RAW_LENGTH, type Nonce } from '../../proto/raw.ts';
import { type Attester, AttesterError } from '../attesters/attester.ts';
import { RETRY_AFTER_MS } from '../signing/retry.ts';
import { DeadlineExceeded, QueueFull, type Scheduler, type Timed } from '../signing/scheduler.ts';
import { nonceOfRaw } from './nonce.ts';

/** How one request ended, for the log. */
export interface Result {
  readonly id: string;
  readonly code: 'attested' | 'cancelled' | Failed['code'];
  readonly ms: number;
  readonly phases: Phases | null;
}

export interface SessionDeps {
  readonly attester: Attester;
  readonly scheduler: Scheduler;
  readonly onResult: (result: Result) => void;
  /** What an attester should not throw: its place is for the log. */
  readonly onUnexpected: (error: unknown) => void;
  readonly totals: () => { attested_total: number; failed_total: number };
}

export interface Session {
  /** Sends the gateway the state: call it when that changes. */
  sendStatus(): void;
  /** Takes nothing new from now on. Resolves when what was asked for before is answered. */
  drain(): Promise<void>;
}

/** A character of raw takes three bytes of UTF-8 at most. */
const MAX_RAW_BYTES = 3 * MAX_RAW_LENGTH;

/** `socket`: the one under `ws`. */
export function runSession(ws: WebSocket, socket: Duplex, deps: SessionDeps): Session {
  const { attester, scheduler } = deps;
  const asked = new Map<string, AbortController>();
  let drained: (() => void) | null = null;
  const send = (frame: FromSidecar) => {
    if (ws.readyState === ws.OPEN) ws.send(JSON.stringify(frame));
  };
  const sendText = (id: string, nonce: Nonce, { token, evidence, phases }: Timed) =>
    send({ type: 'attested', id, nonce, token, evidence: [...evidence], phases });
  const sendBinary = (id: string, nonce: Nonce, { token, evidence, phases }: Timed) => {
    if (ws.readyState !== ws.OPEN) return;
    together();
    const head = JSON.stringify({ type: 'attested', id, nonce, phases });
    const texts = [`${head}\n{"token":${JSON.stringify(token)},"evidence":[`];
    for (const [i, one] of evidence.entries()) texts.push(i === 0 ? '' : ',', ...evidenceJson(one));
    texts.push(']}');
    ws.send(inOne(texts));
  };
  let corked = false;
  /** What is answered in one turn of the event loop goes out in one write. */
  const together = () => {
    if (corked) return;
    corked = true;
    socket.cork();
    setImmediate(() => {
      corked = false;
      socket.uncork();
    });
  };
  const fail = (id: string | null, code: Failed['code'], message: string, retry_after_ms?: number) =>
    send({ type: 'failed', id, code, message, ...(retry_after_ms === undefined ? {} : { retry_after_ms }) });

  let announced: Attester['devices'] | null = null;
  /** First, and again when the attester has become what it was not. */
  const sendHello = () => {
    const { name, devices, simulated, token_keys } = attester;
    announced = devices;
    send({
      type: 'hello',
      protocol: PROTOCOL,
      attester: name,
      devices: [...devices],
      simulated,
      ...(token_keys === undefined ? {} : { token_keys: { keys: token_keys.keys.map((key) => ({ ...key })) } }),
      trouble: scheduler.unavailable,
    });
  };
  const sendStatus = () => {
    if (attester.devices !== announced) sendHello();
    send({
      type: 'status',
      attester: attester.name,
      queued: scheduler.waiting,
      collecting: scheduler.running,
      ...deps.totals(),
      trouble: scheduler.unavailable,
    });
  };
  sendHello();

  ws.on('message', (data, isBinary) => {
    const frame = isBinary ? parseBinary(data as Buffer) : parseFrame((data as Buffer).toString('utf8'));
    if (frame === null) return fail(null, 'invalid_frame', 'the frame is not one of the protocol');
    if (frame.type === 'status') return sendStatus();
    if (frame.type === 'cancel') return asked.get(frame.id)?.abort(new Error('cancelled'));
    if (asked.has(frame.id)) return fail(frame.id, 'duplicate_id', 'this id is being worked on');
    if (drained !== null) return fail(frame.id, 'shutting_down', 'the sidecar stops', RETRY_AFTER_MS.shutting_down);
    const reply = isBinary ? sendBinary : sendText;
    void answer(frame.id, frame.raw, reply);
  });
  // Whoever asked is gone; a gateway that comes back asks again.
  ws.on('close', () => {
    for (const abort of asked.values()) abort.abort(new Error('the gateway left'));
  });
  ws.on('error', () => ws.terminate());
  return {
    sendStatus,
    drain() {
      return new Promise((resolve) => {
        drained = resolve;
        if (asked.size === 0) resolve();
      });
    },
  };

  async function answer(id: string, raw: string | Buffer, reply: typeof sendText): Promise<void> {
    const started = performance.now();
    const abort = new AbortController();
    asked.set(id, abort);
    let code: Result['code'] = 'attested';
    let phases: Phases | null = null;
    try {
      const nonce = await nonceOfRaw(raw);
      const timed = await scheduler.attest(nonce, abort.signal);
      phases = timed.phases;
      reply(id, nonce, timed);
    } catch (error) {
      code = 'cancelled';
      if (abort.signal.aborted) return;
      const failure = failureOf(error);
      code = failure.code;
      if (failure.unexpected) deps.onUnexpected(error);
      fail(id, failure.code, failure.message, failure.retry_after_ms);
    } finally {
      asked.delete(id);
      deps.onResult({ id, code, ms: performance.now() - started, phases });
      if (asked.size === 0) drained?.();
    }
  }
}

function parseFrame(text: string): ToSidecar | null {
  try {
    return toSidecarSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** `JSON.stringify` in pieces, less the search for characters to escape in what was decoded as base64 before it got here. */
function evidenceJson(one: Evidence): readonly string[] {
  const { arch, report, certificate_chain, ...more } = one;
  if (Object.keys(more).length > 0) return [JSON.stringify(one)];
  return [`{"arch":${JSON.stringify(arch)},"report":"`, report, '","certificate_chain":"', certificate_chain, '"}'];
}

/** In UTF-8, without the one long text that would be made first. */
function inOne(texts: readonly string[]): Buffer {
  const bytes = Buffer.allocUnsafe(texts.reduce((length, text) => length + Buffer.byteLength(text), 0));
  let at = 0;
  for (const text of texts) at += bytes.write(text, at);
  return bytes;
}

function parseBinary(frame: Buffer): { type: 'attest'; id: string; raw: Buffer } | null {
  try {
    const { head, carried } = splitBinaryFrame(frame);
    const { type, id } = attestHeadSchema.parse(JSON.parse(head));
    if (carried.length > MAX_RAW_BYTES) return null;
    return { type, id, raw: Buffer.from(carried.buffer, carried.byteOffset, carried.byteLength) };
  } catch {
    return null;
  }
}

interface Failure {
  readonly code: Failed['code'];
  readonly message: string;
  readonly retry_after_ms?: number;
  readonly unexpected?: boolean;
}

function failureOf(error: unknown): Failure {
  if (error instanceof JsonTextError) return { code: 'invalid_raw', message: error.message };
  if (error instanceof QueueFull)
    return { code: 'queue_full', message: error.message, retry_after_ms: error.retry_after_ms };
  if (error instanceof DeadlineExceeded) return { code: 'deadline_exceeded', message: error.message };
  if (error instanceof AttesterError)
    return {
      code: error.code,
      message: error.message.slice(0, 1024),
      ...(error.retryable ? { retry_after_ms: error.retry_after_ms ?? RETRY_AFTER_MS.attester } : {}),
    };
  return { code: 'collection_failed', message: 'the attester failed in an unexpected way', unexpected: true };
}
