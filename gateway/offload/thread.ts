// A thread that answers questions: it starts with the first, and ends when there is none for a while.
import { parentPort, type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';

/** Every question that was not answered yet is rejected with it: the thread died, or was ended. */
export class ThreadEnded extends Error {
  override readonly name = 'ThreadEnded';
}

interface Generation<Question> {
  readonly id: number;
  readonly question: Question;
}

type Answered<Answer> = { readonly id: number } & (
  | { readonly answer: Answer }
  /** The name of what was thrown: a message could quote what was asked. */
  | { readonly error: string }
);

interface Pending<Answer> {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

const IDLE_MS = 60_000;

export class Thread<Question, Answer> {
  readonly #file: URL;
  readonly #options: WorkerOptions;
  readonly #idle_ms: number;
  readonly #pending = new Map<number, Pending<Answer>>();
  #worker: Worker | null = null;
  #idle: NodeJS.Timeout | null = null;
  #last = 0;

  /** `file` calls {@link answerQuestions}. */
  constructor(file: URL, options: WorkerOptions = {}, idle_ms = IDLE_MS) {
    this.#file = file;
    this.#options = options;
    this.#idle_ms = idle_ms;
  }

  /** Questions that have no answer yet. */
  get pending(): number {
    return this.#pending.size;
  }

  /** A question is coming: starting takes as long as many an answer. */
  warm(): void {
    this.#worker ??= this.#start();
    if (this.#pending.size === 0) this.#rest();
  }

  /** @throws {ThreadEnded} @throws {Error} that names what the thread threw. */
  ask(question: Question): Promise<Answer> {
    return new Promise((resolve, reject) => {
      clearTimeout(this.#idle ?? undefined);
      this.#worker ??= this.#start();
      const id = ++this.#last;
      this.#worker.postMessage({ id, question } satisfies Generation<Question>);
      this.#pending.set(id, { resolve, reject });
    });
  }

  /** Whoever waits is told; the next question starts another thread. */
  async end(): Promise<void> {
    const ended = this.#worker;
    this.#worker = null;
    clearTimeout(this.#idle ?? undefined);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const one of pending) one.reject(new ThreadEnded('the thread ended before it answered'));
    await ended?.terminate();
  }

  #start(): Worker {
    const started = new Worker(this.#file, this.#options);
    started.on('message', (answered: Answered<Answer>) => this.#settle(answered));
    // Its heap was not enough, most likely; `exit` follows.
    started.on('error', () => {});
    started.on('exit', () => {
      if (this.#worker === started) void this.end();
    });
    started.unref();
    return started;
  }

  #settle(answered: Answered<Answer>): void {
    const one = this.#pending.get(answered.id);
    if (one === undefined) return;
    this.#pending.delete(answered.id);
    if ('answer' in answered) one.resolve(answered.answer);
    else one.reject(new Error(`the thread threw ${answered.error}`));
    if (this.#pending.size === 0) this.#rest();
  }

  #rest(): void {
    clearTimeout(this.#idle ?? undefined);
    this.#idle = setTimeout(() => void this.end(), this.#idle_ms).unref();
  }
}

/** In the thread: `answer` says what goes back. What `handOver` names of it moves there, and is not copied. */
export function answerQuestions<Question, Answer>(
  answer: (question: Question) => Answer | Promise<Answer>,
  handOver: (answer: Answer) => Transferable[] = () => [],
): void {
  parentPort?.on('message', async ({ id, question }: Generation<Question>) => {
    try {
      const given = await answer(question);
      parentPort?.postMessage({ id, answer: given } satisfies Answered<Answer>, handOver(given));
    } catch (error) {
      const name = error instanceof Error ? error.name : 'unknown';
      parentPort?.postMessage({ id, error: name } satisfies Answered<Answer>);
    }
  });
}
