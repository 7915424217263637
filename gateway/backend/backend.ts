// The interface between the gateway and its backend: the request, the response and its handler, and the canary's result.
import type { IncomingHttpHeaders } from 'node:http';
import type { Problem } from '../base/problem.ts';
import type { Owner } from '../keys/keys.ts';

/** Names are in lower case. An array is a header that occurs more than once. */
export type Headers = Record<string, string | string[]>;

export interface BackendRequest {
  readonly method: string;
  /** The path after BACKEND_URL, with its query. It begins with a slash: `/chat/completions`. */
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer | string | null;
  /** The request is idempotent: it may be sent again when the backend closes the connection. */
  readonly repeatable: boolean;
  /**
   * The key that the request belongs to: its connection carries requests of no other key. null: a new connection that carries this request
   * only.
   */
  readonly owner: Owner | null;
  /**
   * The model, by which one of several backends is chosen. undefined: any backend that serves all models. null: the request is about a
   * stored resource, which only the first of those backends may have.
   */
  readonly model?: string | null | undefined;
  /** The response is to be attested: a backend whose canary is wrong does not serve it. */
  readonly attested?: boolean;
}

/** The head of the backend's response. */
export interface ResponseHead {
  readonly status: number;
  /** Names are in lower case. Values of one name are joined by a comma. Content-Length and Date are left out. */
  readonly headers: IncomingHttpHeaders;
  /** Content-Length in bytes; null when there is none. */
  readonly length: number | null;
}

/**
 * Reads a response as it arrives. The calls come in this order: head once, data any number of times, then end or fail once. An error thrown
 * by `head`, `data` or `end` is passed to `fail`.
 */
export interface ResponseHandler {
  /** Called where there are several backends, with the one that the request is sent to, and again at each failover. */
  sentTo?(backend: BackendName): void;
  head(head: ResponseHead): void;
  /** The handler may keep the bytes. */
  data(chunk: Buffer): void;
  end(): void;
  /** `unsent`: no byte of the request has left the gateway, so that another backend may be tried. */
  fail(problem: Problem, unsent?: boolean): void;
}

/** One of several backends. */
export interface BackendName {
  /** Its `name` in BACKENDS_FILE, or its index there, from 0. */
  readonly name: string;
  readonly url: URL;
}

/** Controls a request that was sent. */
export interface BackendCall {
  /** Stops reading, which puts back-pressure on the backend. */
  pause(): void;
  resume(): void;
  /** Ends the backend's request. No handler method is called after it. */
  cancel(): void;
}

export interface Backend {
  call(request: BackendRequest, handler: ResponseHandler): BackendCall;
  close(): Promise<void>;
}

/** A model in a backend's list. */
export interface Model {
  readonly id: string;
  /** The whole entry of the list. */
  readonly json: string;
}

export interface BackendsHealth {
  /** ok: all backends are up. degraded: some. down: none. */
  readonly status: 'ok' | 'degraded' | 'down';
  readonly backends: { readonly name: string; readonly state: 'up' | 'down' }[];
  /** The reason why the current file cannot be used. Its last valid version stays in use. */
  readonly file_error?: string;
}

/** Several backends, of which the model chooses one (BACKENDS_FILE). `call` throws model_not_found where none serves the model. */
export interface Backends extends Backend {
  /** The models of all backends, without duplicates, in the order of the file. @throws {Problem} where no backend lists its models */
  models(): Promise<readonly Model[]>;
  health(): Promise<BackendsHealth>;
  /** Each backend by itself, called with its own key. `serves`: whether requests for the model go to it. */
  readonly each: readonly {
    readonly name: string;
    readonly call: Backend['call'];
    serves(model: string): boolean;
  }[];
  /** Whether each is up, by name. */
  readonly states: readonly (readonly [name: string, up: boolean])[];
  /** How many requests failed, by name and reason, since the start. */
  readonly failures: readonly (readonly [name: string, reason: string, count: number])[];
  /** Requests that were sent to a further backend, since the start. */
  readonly failovers: number;
}

// The canary's result (canary.ts).

export const CANARY_STATES = ['off', 'pending', 'good', 'wrong', 'unavailable'] as const;

/**
 * `sense`: the answer is text with the expected name. `repeats`: at temperature 0 it comes again. `sampling`: at a high temperature two
 * seeds differ. `top_k`: with `top_k` 1 it is that of temperature 0.
 */
export const CANARY_CHECKS = ['sense', 'repeats', 'sampling', 'top_k'] as const;
/** `unknown`: the backend does not know the parameter, or a check before it failed. */
export type CanaryVerdict = 'good' | 'wrong' | 'unknown';
export type CanaryChecks = Record<(typeof CANARY_CHECKS)[number], CanaryVerdict>;

export interface CanaryResult {
  /** `pending`: there is no result yet. `unavailable`: there is none, because the backend gave no complete answer. */
  readonly state: (typeof CANARY_STATES)[number];
  /**
   * `wrong`: empty, not_text, repetition, unexpected, changed, same_samples, top_k_ignored. `unavailable`: no_model, no_answer, cut,
   * timeout, a code or a status.
   */
  readonly reason?: string;
  /** Absent where no answer could be judged. */
  readonly checks?: Readonly<CanaryChecks>;
  /** Whether the backend gives token ids, by which answers can be audited later. Present where the state is `good`. */
  readonly token_ids?: boolean;
  /** Of several backends, the one that is wrong. */
  readonly backend?: string;
  /** The time of the result, RFC 3339. */
  readonly at?: string;
}

export interface Canary {
  readonly result: CanaryResult;
  /** Whether this backend is wrong; null: the only one. */
  isWrong(backend: string | null): boolean;
  /** False: every backend is wrong. */
  readonly usable: boolean;
  close(): void;
}
