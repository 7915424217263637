// Runs the work on bodies: a small body is handled at once, a large one on a worker thread.

import { bufferOf, MANY_BYTES } from '../base/bytes.ts';
import { OFFLOAD_HEAP_MB, OFFLOAD_YOUNG_HEAP_MB } from '../base/memory-bounds.ts';
import { Problem, type ProblemCode } from '../base/problem.ts';
import type { Outgoing } from '../http/body.ts';
import { ClientGone } from '../http/body.ts';
import type { Caller } from '../keys/keys.ts';
import { createPermits, type Permits } from '../limits/concurrency.ts';
import {
  type Draft,
  type DraftInput,
  draft,
  type Endpoint,
  type Generation,
  isForm,
  type Metering,
  modelInForm,
  type PassThrough,
  type PassThroughRequest,
  parseGeneration,
  parsePassThrough,
  passThroughUnparsed,
} from './jobs.ts';
import { Thread, ThreadEnded } from './thread.ts';

// The queue of a thread. Jobs up to a limit are sent to the thread; the others wait, with a fair share for each owner. When a client
// disconnects, its waiting job is dropped.

/** The client whose job waits. */
export interface Waiter {
  /** The owner of an API key, or an address. */
  readonly owner: string;
  readonly outgoing: Pick<Outgoing, 'destroyed' | 'once' | 'off'>;
}

/** Each waiting job keeps a large body or a response in memory. */
const MAX_WAITING = 4096;

const clientLeft = () => new ClientGone('the client left before it was its turn');

export class JobQueue {
  readonly #permits: Permits;
  readonly #full: string;
  readonly #waiting = new Set<(error: Error) => void>();

  /** `full`: the error's message where the queue is full. */
  constructor(
    permits: Permits = createPermits({ max_permits: 1, max_waiting: MAX_WAITING }),
    full = 'Too much is waiting to be read.',
  ) {
    this.#permits = permits;
    this.#full = full;
  }

  /**
   * @param signal ends the wait, but not a job that has begun.
   * @throws {ClientGone}
   * @throws {ThreadEnded} before the job began.
   * @throws {Problem} overloaded; the signal's reason; the errors of `job`.
   */
  run<T>({ owner, outgoing }: Waiter, job: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    // The client may already have disconnected, and `close` is emitted only once.
    if (outgoing.destroyed) return Promise.reject(clientLeft());
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
      const onClose = () => stop(clientLeft());
      const onAbort = () => stop(signal?.reason);
      outgoing.once('close', onClose);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.add(stop);
      const start = () => {
        settle();
        resolve(job());
      };
      release = this.#permits.acquire(owner, start, () =>
        stop(new Problem('overloaded', this.#full, { retryAfterSeconds: 1 })),
      );
    });
    return done.finally(() => release());
  }

  /** Rejects all waiting jobs. */
  end(): void {
    for (const stop of this.#waiting) stop(new ThreadEnded('the thread ended before it was asked'));
  }
}

export interface Offload {
  /** Announces a body of this many bytes. */
  expect(bytes: number): void;
  /** @throws {Problem} as {@link parseGeneration}, and overloaded. A promise rejects with the same, or with {@link ClientGone}. */
  parse(
    endpoint: Endpoint,
    body: Buffer,
    caller: Caller,
    waiter: Waiter,
    metering?: Metering,
  ): Generation | Promise<Generation>;
  /** @throws {Problem} as {@link parsePassThrough}, and overloaded. A promise rejects with the same, or with {@link ClientGone}. */
  passThrough(request: PassThroughRequest, waiter: Waiter): PassThrough | Promise<PassThrough>;
  /** The field `model` of a form; null without one, or where the body is no form. @throws {Problem} overloaded. @throws {ClientGone} */
  modelInForm(type: string, body: Buffer, waiter: Waiter): Promise<string | null>;
  /** @throws {Problem} backend_bad_response, attestation_unavailable. A promise rejects with the same, or with {@link ClientGone}. */
  draft(input: DraftInput, waiter: Waiter): Draft | Promise<Draft>;
  close(): Promise<void>;
}

/** The jobs of the thread, by kind. A Buffer arrives there as a Uint8Array. */
export interface Jobs {
  parse: { readonly endpoint: Endpoint; readonly body: Buffer; readonly caller: Caller; readonly metering: Metering };
  passThrough: PassThroughRequest;
  form: { readonly type: string; readonly body: Buffer };
  draft: DraftInput;
}
/** The results, by kind. `forward` is null for an unchanged body, which is not sent back. */
export interface Results {
  parse: Omit<Generation, 'request' | 'forward'> & { readonly forward: Uint8Array<ArrayBuffer> | null };
  passThrough: Omit<PassThrough, 'forward'> & { readonly forward: Uint8Array<ArrayBuffer> | null };
  form: { readonly model: string | null };
  draft: Draft;
}
export type Kind = keyof Jobs;
export interface Job<K extends Kind = Kind> {
  readonly kind: K;
  readonly input: Jobs[K];
}
export type Result<K extends Kind = Kind> = { readonly result: Results[K] } | { readonly problem: ProblemData };

interface ProblemData {
  readonly code: ProblemCode;
  readonly message: string;
  readonly param: string | null;
}

/** A client that sends one image usually sends the next within minutes. */
const IDLE_MS = 600_000;

export function createOffload(): Offload {
  const file = new URL('./offload-worker.ts', import.meta.url);
  const thread = new Thread<Job, Result>(
    file,
    { resourceLimits: { maxOldGenerationSizeMb: OFFLOAD_HEAP_MB, maxYoungGenerationSizeMb: OFFLOAD_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  const queue = new JobQueue();

  async function runOnThread<K extends Kind>(
    kind: K,
    input: Jobs[K],
    waiter: Waiter,
    code: ProblemCode,
    failure: string,
  ): Promise<Results[K]> {
    const result = (await queue
      .run(waiter, () => thread.run({ kind, input }))
      .catch((cause) => {
        if (!(cause instanceof ThreadEnded)) throw cause;
        throw new Problem(code, failure, { cause, retryAfterSeconds: 1 });
      })) as Result<K>;
    if ('result' in result) return result.result;
    const { problem } = result;
    throw new Problem(problem.code, problem.message, { param: problem.param });
  }

  async function parseOnThread(job: Jobs['parse'], waiter: Waiter): Promise<Generation> {
    const result = await runOnThread('parse', job, waiter, 'overloaded', PARSE_FAILED);
    return { ...result, request: job.body, forward: forwardOf(result, job.body) };
  }

  async function passThroughOnThread(request: PassThroughRequest, waiter: Waiter): Promise<PassThrough> {
    const result = await runOnThread('passThrough', request, waiter, 'overloaded', PARSE_FAILED);
    return { ...result, forward: forwardOf(result, request.body) };
  }

  return {
    expect: (bytes) => void (bytes > MANY_BYTES && thread.warm()),
    parse: (endpoint, body, caller, waiter, metering = 'off') =>
      body.length > MANY_BYTES
        ? parseOnThread({ endpoint, body, caller, metering }, waiter)
        : parseGeneration(endpoint, body, caller, metering),
    passThrough: (request, waiter) =>
      passThroughUnparsed(request) ??
      (request.body.length > MANY_BYTES ? passThroughOnThread(request, waiter) : parsePassThrough(request)),
    async modelInForm(type, body, waiter) {
      if (body.length <= MANY_BYTES || !isForm(type)) return modelInForm(type, body);
      return (await runOnThread('form', { type, body }, waiter, 'overloaded', PARSE_FAILED)).model;
    },
    draft: (input, waiter) =>
      lengthOf(input) > MANY_BYTES
        ? runOnThread('draft', input, waiter, 'attestation_unavailable', DRAFT_FAILED)
        : draft(input),
    close() {
      queue.end();
      return thread.end();
    },
  };
}

const PARSE_FAILED = 'The request could not be read.';
const DRAFT_FAILED = 'The attestation could not be drafted.';

const forwardOf = ({ forward }: Results['parse' | 'passThrough'], body: Buffer) =>
  forward === null ? body : bufferOf(forward);

const lengthOf = ({ request, response }: DraftInput): number =>
  request.length + ('body' in response ? response.body : response.completion).length;
