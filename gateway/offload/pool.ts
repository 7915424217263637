// What takes long where there is much: reading a request, drafting an attestation. Little is done at once, much on a thread.
import { bufferOf, MANY_BYTES } from '../http/bytes.ts';
import type { Outgoing } from '../http/plain-path/response.ts';
import { Problem, type ProblemCode } from '../http/problem.ts';
import { ClientGone } from '../http/request.ts';
import type { Caller } from '../keys/keys.ts';
import { OFFLOAD_HEAP_MB, OFFLOAD_YOUNG_HEAP_MB } from '../limits/bounds.ts';
import { createPermits, type Permits } from '../limits/permits.ts';
import {
  type Draft,
  draft,
  type Endpoint,
  type Generation,
  type Parts,
  type PassThrough,
  type PassThroughRequest,
  parseGeneration,
  parsePassThrough,
  unread,
} from './jobs.ts';
import { Thread, ThreadEnded } from './thread.ts';

// Who waits for a thread: as many as it serves are with it, the others wait here, each owner in turn. Whoever leaves takes along
// what was to be read.

/** For whom something is read. */
export interface Waiter {
  /** Of an API key, or an address. */
  readonly owner: string;
  readonly outgoing: Pick<Outgoing, 'destroyed' | 'once' | 'off'>;
}

/** Each keeps a large body, or an answer. */
const MAX_WAITING = 4096;

const full = () => new Problem('overloaded', 'Too much is waiting to be read.', { retryAfterSeconds: 1 });
const gone = () => new ClientGone('the client left before it was its turn');

export class ThreadQueue {
  readonly #permits: Permits;
  readonly #waiting = new Set<(error: Error) => void>();

  constructor(permits: Permits = createPermits({ max_permits: 1, max_waiting: MAX_WAITING })) {
    this.#permits = permits;
  }

  /**
   * @param signal ends the wait, and not what has begun.
   * @throws {ClientGone} @throws {ThreadEnded} before its turn. @throws {Problem} overloaded; the signal's reason; what `does` throws.
   */
  run<T>({ owner, outgoing }: Waiter, does: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    // The client may have left while something else was waited for, and `close` does not come twice.
    if (outgoing.destroyed) return Promise.reject(gone());
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    let release = () => {};
    const done = new Promise<T>((resolve, reject) => {
      const settle = () => {
        outgoing.off('close', onClose);
        signal?.removeEventListener('abort', onAbort);
        this.#waiting.delete(stop);
      };
      const stop = (error: Error) => {
        settle();
        release();
        reject(error);
      };
      const onClose = () => stop(gone());
      const onAbort = () => stop(signal?.reason);
      outgoing.once('close', onClose);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.add(stop);
      const start = () => {
        settle();
        resolve(does());
      };
      release = this.#permits.acquire(owner, start, () => stop(full()));
    });
    return done.finally(() => release());
  }

  /** Whoever waits is told. */
  end(): void {
    for (const stop of this.#waiting) stop(new ThreadEnded('the thread ended before it was asked'));
  }
}

export interface Offload {
  /** A body of so many bytes is coming. */
  expect(bytes: number): void;
  /** @throws {Problem} as {@link parseGeneration}, and overloaded. A promise rejects with the same, or with {@link ClientGone}. */
  read(endpoint: Endpoint, body: Buffer, caller: Caller, waiter: Waiter): Generation | Promise<Generation>;
  /** @throws {Problem} as {@link parsePassThrough}, and overloaded. A promise rejects with the same, or with {@link ClientGone}. */
  pass(passing: PassThroughRequest, waiter: Waiter): PassThrough | Promise<PassThrough>;
  /** @throws {Problem} backend_bad_response, attestation_unavailable. A promise rejects with the same, or with {@link ClientGone}. */
  draft(parts: Parts, waiter: Waiter): Draft | Promise<Draft>;
  close(): Promise<void>;
}

/** What the thread is given, and what it says of each. A Buffer arrives as a Uint8Array. */
export interface Questions {
  read: { readonly endpoint: Endpoint; readonly body: Buffer; readonly caller: Caller };
  pass: PassThroughRequest;
  draft: Parts;
}
/** `forward`: null for the body as it came, which stays where it is. */
export interface Answers {
  read: Omit<Generation, 'request' | 'forward'> & { readonly forward: Uint8Array<ArrayBuffer> | null };
  pass: Omit<PassThrough, 'forward'> & { readonly forward: Uint8Array<ArrayBuffer> | null };
  draft: Draft;
}
export type Kind = keyof Questions;
export interface Question<K extends Kind = Kind> {
  readonly kind: K;
  readonly of: Questions[K];
}
export type Answer<K extends Kind = Kind> = { readonly result: Answers[K] } | { readonly refused: Refused };

interface Refused {
  readonly code: ProblemCode;
  readonly message: string;
  readonly param: string | null;
}

/** Whoever sends one picture sends the next within minutes. */
const IDLE_MS = 600_000;

export function createOffload(): Offload {
  const file = new URL('./worker.ts', import.meta.url);
  const thread = new Thread<Question, Answer>(
    file,
    { resourceLimits: { maxOldGenerationSizeMb: OFFLOAD_HEAP_MB, maxYoungGenerationSizeMb: OFFLOAD_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  const queue = new ThreadQueue();

  async function ask<K extends Kind>(
    kind: K,
    of: Questions[K],
    waiter: Waiter,
    code: ProblemCode,
    lost: string,
  ): Promise<Answers[K]> {
    const answer = (await queue
      .run(waiter, () => thread.ask({ kind, of }))
      .catch((cause) => {
        if (!(cause instanceof ThreadEnded)) throw cause;
        throw new Problem(code, lost, { cause, retryAfterSeconds: 1 });
      })) as Answer<K>;
    if ('result' in answer) return answer.result;
    const { refused } = answer;
    throw new Problem(refused.code, refused.message, { param: refused.param });
  }

  async function readOnThread(endpoint: Endpoint, body: Buffer, caller: Caller, waiter: Waiter): Promise<Generation> {
    const read = await ask('read', { endpoint, body, caller }, waiter, 'overloaded', UNREAD);
    return { ...read, request: body, forward: forwardOf(read, body) };
  }

  async function passOnThread(passing: PassThroughRequest, waiter: Waiter): Promise<PassThrough> {
    const read = await ask('pass', passing, waiter, 'overloaded', UNREAD);
    return { ...read, forward: forwardOf(read, passing.body) };
  }

  return {
    expect: (bytes) => void (bytes > MANY_BYTES && thread.warm()),
    read: (endpoint, body, caller, waiter) =>
      body.length > MANY_BYTES ? readOnThread(endpoint, body, caller, waiter) : parseGeneration(endpoint, body, caller),
    pass: (passing, waiter) =>
      unread(passing) ?? (passing.body.length > MANY_BYTES ? passOnThread(passing, waiter) : parsePassThrough(passing)),
    draft: (parts, waiter) =>
      lengthOf(parts) > MANY_BYTES ? ask('draft', parts, waiter, 'attestation_unavailable', UNDRAFTED) : draft(parts),
    close() {
      queue.end();
      return thread.end();
    },
  };
}

const UNREAD = 'The request could not be read.';
const UNDRAFTED = 'The attestation could not be drafted.';

const forwardOf = ({ forward }: Answers['read' | 'pass'], body: Buffer) =>
  forward === null ? body : bufferOf(forward);

function lengthOf({ request, answer }: Parts): number {
  if ('body' in answer) return request.length + answer.body.length;
  const { response } = answer;
  if (typeof response === 'string') return request.length + response.length;
  return response.reduce(
    (length, piece) => length + (typeof piece === 'string' ? piece : piece.quote).length,
    request.length,
  );
}
