// Passive health of one of several backends: what a client's request shows of it, and the gateway's own trial of one whose requests fail.
// A server may list its models long after its engine has died.
import * as z from 'zod';
import { Problem } from '../base/problem.ts';
import type { Backend, BackendRequest, ResponseHead } from './backend.ts';
import { collect } from './probe.ts';

export const FAILURES = [
  'http_5xx',
  'backend_unreachable',
  'backend_timeout',
  'backend_bad_response',
  'no_first_token',
] as const;
export type Failure = (typeof FAILURES)[number];

/** A client that leaves after it has waited so long for the first byte of the answer shows a failure. */
const FIRST_TOKEN_MS = 30_000;

const isFailure = (code: string): code is Failure => (FAILURES as readonly string[]).includes(code);

/** Judges one request of a client, once at most. Other ends, such as a status from 400 to 499, say nothing of the backend. */
export class Observation {
  readonly #method: string;
  readonly #report: (failure: Failure | null) => void;
  readonly #began_ms = performance.now();
  #status = 0;
  #hasBytes = false;
  #judged = false;

  /** `report` is called with null for a success. */
  constructor({ method }: BackendRequest, report: (failure: Failure | null) => void) {
    this.#method = method;
    this.#report = report;
  }

  head({ status }: ResponseHead): void {
    this.#status = status;
    if (status >= 500) this.#judge('http_5xx');
    else if (status >= 300 && status < 400) this.#judge('backend_bad_response');
  }

  data(): void {
    this.#hasBytes = true;
  }

  /** Only what is posted needs the engine. */
  end(): void {
    if (this.#method === 'POST' && this.#status < 300) this.#judge(null);
  }

  fail({ code }: Problem): void {
    if (isFailure(code)) this.#judge(code);
  }

  cancel(): void {
    if (!this.#hasBytes && performance.now() - this.#began_ms >= FIRST_TOKEN_MS) this.#judge('no_first_token');
  }

  #judge(failure: Failure | null): void {
    if (this.#judged) return;
    this.#judged = true;
    this.#report(failure);
  }
}

// The trial.

const LIMITS = { max_bytes: 1024 * 1024, timeout_ms: 10_000 };
const HEADERS = { accept: 'application/json', 'accept-encoding': 'identity', 'content-type': 'application/json' };
const JSON_TYPE = /^application\/json\b/i;
const answerSchema = z.object({ choices: z.array(z.unknown()) });

interface Trial {
  /** null: a good answer. */
  readonly reason: string | null;
  /** The backend rejects the request in JSON, as one for embeddings does, whether its engine works or not. */
  readonly inconclusive: boolean;
}

/** Requests one token. `model` undefined: the backend lists none. */
export async function tryBackend(backend: Pick<Backend, 'call'>, model: string | undefined): Promise<Trial> {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1 });
  const found = await collect(backend, { path: '/chat/completions', headers: HEADERS, body }, LIMITS);
  const { status, type, fault } = found;
  const inconclusive = status !== null && status >= 400 && status < 500 && JSON_TYPE.test(type);
  if (fault instanceof Problem) return { reason: `trial_${fault.code}`, inconclusive: false };
  if (fault === 'timeout') return { reason: 'trial_timeout', inconclusive: false };
  if (status !== 200) return { reason: `trial_http_${status}`, inconclusive };
  return { reason: hasChoices(found.body) ? null : 'trial_no_answer', inconclusive: false };
}

function hasChoices(body: Buffer | null): boolean {
  try {
    return answerSchema.safeParse(JSON.parse(body?.toString('utf8') ?? '')).success;
  } catch {
    return false;
  }
}
