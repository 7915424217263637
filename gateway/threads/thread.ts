// A worker thread that runs jobs. It starts with the first job and ends after a time without any.
import { parentPort, type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';

/** The thread died or was ended. Every job that is still open is rejected with this error. */
export class ThreadEnded extends Error {
  override readonly name = 'ThreadEnded';
}

interface JobMessage<Job> {
  readonly id: number;
  readonly job: Job;
}

type ResultMessage<Result> = { readonly id: number } & (
  | { readonly result: Result }
  /** The name of the error. Its message could quote the job. */
  | { readonly error: string }
);

interface Pending<Result> {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: Error) => void;
}

const IDLE_MS = 60_000;

export class Thread<Job, Result> {
  readonly #file: URL;
  readonly #options: WorkerOptions;
  readonly #idle_ms: number;
  readonly #pending = new Map<number, Pending<Result>>();
  #worker: Worker | null = null;
  #endTimer: NodeJS.Timeout | null = null;
  #last = 0;

  /** `file`: a module that calls {@link serveJobs}. */
  constructor(file: URL, options: WorkerOptions = {}, idle_ms = IDLE_MS) {
    this.#file = file;
    this.#options = options;
    this.#idle_ms = idle_ms;
  }

  /** Starts the thread before the first job, because starting takes as long as many jobs. */
  warm(): void {
    this.#worker ??= this.#start();
    if (this.#pending.size === 0) this.#scheduleEnd();
  }

  /** @throws {ThreadEnded} @throws {Error} with the name of the error that the thread threw. */
  run(job: Job): Promise<Result> {
    return new Promise((resolve, reject) => {
      clearTimeout(this.#endTimer ?? undefined);
      this.#worker ??= this.#start();
      const id = ++this.#last;
      this.#worker.postMessage({ id, job } satisfies JobMessage<Job>);
      this.#pending.set(id, { resolve, reject });
    });
  }

  /** Ends the thread and rejects all open jobs. The next job starts a new thread. */
  async end(): Promise<void> {
    const ended = this.#worker;
    this.#worker = null;
    clearTimeout(this.#endTimer ?? undefined);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const one of pending) one.reject(new ThreadEnded('the thread ended before it answered'));
    await ended?.terminate();
  }

  #start(): Worker {
    const started = new Worker(this.#file, this.#options);
    started.on('message', (message: ResultMessage<Result>) => this.#settle(message));
    // Most likely the heap was too small. The event `exit` follows.
    started.on('error', () => {});
    started.on('exit', () => {
      if (this.#worker === started) void this.end();
    });
    started.unref();
    return started;
  }

  #settle(message: ResultMessage<Result>): void {
    const one = this.#pending.get(message.id);
    if (one === undefined) return;
    this.#pending.delete(message.id);
    if ('result' in message) one.resolve(message.result);
    else one.reject(new Error(`the thread threw ${message.error}`));
    if (this.#pending.size === 0) this.#scheduleEnd();
  }

  #scheduleEnd(): void {
    clearTimeout(this.#endTimer ?? undefined);
    this.#endTimer = setTimeout(() => void this.end(), this.#idle_ms).unref();
  }
}

/** Serves jobs inside the thread. The objects that `transfer` returns are moved to the main thread, not copied. */
export function serveJobs<Job, Result>(
  handler: (job: Job) => Result | Promise<Result>,
  transfer: (result: Result) => Transferable[] = () => [],
): void {
  parentPort?.on('message', async ({ id, job }: JobMessage<Job>) => {
    try {
      const result = await handler(job);
      parentPort?.postMessage({ id, result } satisfies ResultMessage<Result>, transfer(result));
    } catch (error) {
      const name = error instanceof Error ? error.name : 'unknown';
      parentPort?.postMessage({ id, error: name } satisfies ResultMessage<Result>);
    }
  });
}
