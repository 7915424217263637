// One gateway's connection: reads its frames, queues what it asks for, answers each id once.
import { createHash } from 'node:crypto';
import type { WebSocket } from 'ws';
import { type Failed, type FromSidecar, PROTOCOL, type ToSidecar, toSidecarSchema } from '../proto/frames.ts';
import { JsonTextError } from '../proto/json.ts';
import { type Nonce, splitRaw } from '../proto/raw.ts';
import { type Attester, AttesterError } from './attester.ts';
import { DeadlineExceeded, QueueFull } from './queue.ts';
import type { Scheduler } from './scheduler.ts';

export interface SessionDeps {
  readonly attester: Attester;
  readonly scheduler: Scheduler;
  readonly onResult: (result: { code: 'attested' | Failed['code']; ms: number }) => void;
  readonly totals: () => { attested_total: number; failed_total: number };
}

export interface Session {
  /** Sends the gateway the state: call it when that changes. */
  sendStatus(): void;
  /** Takes nothing new from now on. Resolves when what was asked for before is answered. */
  drain(): Promise<void>;
}

const COLLECTION_RETRY_MS = 250;
/** By then this sidecar has closed the connection, and its successor is asked. */
const SHUTDOWN_RETRY_MS = 1_000;

export function runSession(ws: WebSocket, deps: SessionDeps): Session {
  const { attester, scheduler } = deps;
  const asked = new Map<string, AbortController>();
  let drained: (() => void) | null = null;
  const send = (frame: FromSidecar) => {
    if (ws.readyState === ws.OPEN) ws.send(JSON.stringify(frame));
  };
  const fail = (id: string | null, code: Failed['code'], message: string, retry_after_ms?: number) =>
    send({ type: 'failed', id, code, message, ...(retry_after_ms === undefined ? {} : { retry_after_ms }) });

  const { name, devices, simulated, token_keys } = attester;
  const { trouble } = scheduler;
  send({
    type: 'hello',
    protocol: PROTOCOL,
    attester: name,
    devices: [...devices],
    simulated,
    ...(token_keys === undefined ? {} : { token_keys: { keys: token_keys.keys.map((key) => ({ ...key })) } }),
    trouble,
  });
  const sendStatus = () =>
    send({
      type: 'status',
      attester: name,
      queued: scheduler.waiting,
      collecting: scheduler.running,
      ...deps.totals(),
      trouble: scheduler.trouble,
    });

  ws.on('message', (data, isBinary) => {
    const frame = isBinary ? null : parseFrame((data as Buffer).toString('utf8'));
    if (frame === null) return fail(null, 'invalid_frame', 'the frame is not one of the protocol');
    if (frame.type === 'status') return sendStatus();
    if (frame.type === 'cancel') return asked.get(frame.id)?.abort(new Error('cancelled'));
    if (asked.has(frame.id)) return fail(frame.id, 'duplicate_id', 'this id is being worked on');
    if (drained !== null) return fail(frame.id, 'shutting_down', 'the sidecar stops', SHUTDOWN_RETRY_MS);
    void answer(frame.id, frame.raw);
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

  async function answer(id: string, raw: string): Promise<void> {
    const started = performance.now();
    const abort = new AbortController();
    asked.set(id, abort);
    let code: 'attested' | Failed['code'] = 'attested';
    try {
      splitRaw(raw);
      const nonce = createHash('sha256').update(raw, 'utf8').digest('hex') as Nonce;
      const { token, evidence } = await scheduler.attest(nonce, abort.signal);
      send({ type: 'attested', id, nonce, token, evidence: [...evidence] });
    } catch (error) {
      if (abort.signal.aborted) return;
      const failure = failureOf(error);
      code = failure.code;
      fail(id, failure.code, failure.message, failure.retry_after_ms);
    } finally {
      asked.delete(id);
      if (asked.size === 0) drained?.();
      deps.onResult({ code, ms: performance.now() - started });
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

function failureOf(error: unknown): { code: Failed['code']; message: string; retry_after_ms?: number } {
  if (error instanceof JsonTextError) return { code: 'invalid_raw', message: error.message };
  if (error instanceof QueueFull)
    return { code: 'queue_full', message: error.message, retry_after_ms: error.retry_after_ms };
  if (error instanceof DeadlineExceeded) return { code: 'deadline_exceeded', message: error.message };
  if (error instanceof AttesterError)
    return {
      code: error.code,
      message: error.message.slice(0, 1024),
      ...(error.retryable ? { retry_after_ms: error.retry_after_ms ?? COLLECTION_RETRY_MS } : {}),
    };
  return { code: 'collection_failed', message: 'the attester failed in an unexpected way' };
}
