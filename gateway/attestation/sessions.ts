// The sidecar's sessions with its processor. Each is checked once, for all responses that are signed in it.
import { hash, randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Batch } from '../../proto/attestation/batch.ts';
import type { Failed, SessionFrame } from '../../proto/attestation/frames.ts';
import { readStatement } from '../../proto/attestation/statement.ts';
import type { TdxCollateral } from '../../verify/cpu.ts';
import type { FailureCode } from '../../verify/index.ts';
import { CheckFailure } from '../../verify/index.ts';
import { collateralEnd } from '../../verify/service.ts';
import { delayAfter } from '../base/backoff.ts';
import { CHECKING_HEAP_MB, CHECKING_YOUNG_HEAP_MB } from '../base/memory-bounds.ts';
import { Problem } from '../base/problem.ts';
import { createPermits, OwnerLimit } from '../limits/concurrency.ts';
import { JobQueue, type Waiter } from '../threads/offload.ts';
import { Thread } from '../threads/thread.ts';
import type { Session, SessionEnds, Sidecar } from './interfaces.ts';
import type { Link } from './sidecar-link.ts';

/** A response may still be signed in an earlier session, so the last few are kept. */
const MAX_SESSIONS = 4;

export const unavailable = (message: string) =>
  new Problem('attestation_unavailable', message, { retryAfterSeconds: 2 });

export const timedOut = () => unavailable('The attestation did not come in time (ATTEST_TIMEOUT_MS).');

export const noSession = () => new Problem('not_found', 'No processor signs here: there are no sessions.');

/** A request for a session with a challenge. */
interface SessionRequest {
  resolve(frame: SessionFrame): void;
  reject(error: Error): void;
  repeat(frame: Failed): void;
}

/** Backoff for such a request. The sidecar asks for a longer wait: about the time of one session. */
const RETRY = { min_ms: 250, max_ms: 2_000 };

export interface Sessions {
  /** The session in which responses are signed; null without one. */
  readonly current: Session | null;
  /** The ends of the current session; null without one. */
  readonly ends: SessionEnds | null;
  /** Resolves when the last session that was received has been checked. */
  checked(): Promise<void>;
  /** Resolves when the session has been checked. null: the sidecar has sent none of this id, or its check failed. */
  find(id: string): Promise<Session | null>;
  /** Takes a session frame. @returns the reason to refuse the sidecar, or null */
  received(frame: SessionFrame, simulatedRoot: string | null): Promise<Failure | null>;
  /** Rejects or repeats the session request with the frame's id. Returns false where there is none. */
  failed(frame: Failed): boolean;
  /** Requests a session that contains this challenge. @throws {Problem} not_found, overloaded, attestation_unavailable */
  request(challenge: string, link: Link, simulatedRoot: string | null, timeout_ms: number): Promise<Session>;
  disconnected(): void;
}

export function createSessions(checker: Pick<Checker, 'checkSession'>): Sessions {
  /** The last sessions, by id; null: the check failed. */
  const sessions = new LRUCache<string, Promise<Session | null>>({ max: MAX_SESSIONS });
  /** Requests for sessions with a challenge, by the ids of their frames. */
  const requests = new Map<string, SessionRequest>();
  let current: Session | null = null;
  let last: Promise<unknown> = Promise.resolve();
  let ends: SessionEnds | null = null;
  /** The number of sessions received, and the number of the current one: their checks may end in another order. */
  let received = 0;
  let currentNumber = 0;

  return {
    get current() {
      return current;
    },
    get ends() {
      return ends;
    },
    checked: async () => void (await last),
    find: async (id) => (await sessions.peek(id)) ?? null,
    async received(frame, simulatedRoot) {
      if (frame.id !== null) {
        requests.get(frame.id)?.resolve(frame);
        return null;
      }
      const session = sessionOf(frame);
      const number = ++received;
      const checked = checker.checkSession({ session: wholeSession(session), simulatedRoot }).catch(unchecked);
      last = checked;
      sessions.set(
        session.id,
        checked.then((refusal) => (refusal === null ? session : null)),
      );
      const refusal = await checked;
      if (refusal !== null) return refusal;
      if (number < currentNumber) return null;
      currentNumber = number;
      current = session;
      ends = endsOf(session);
      return null;
    },
    failed(frame) {
      const request = frame.id === null ? undefined : requests.get(frame.id);
      // The sidecar makes the session of another gateway's challenge, or has too much to sign.
      if (frame.code === 'queue_full') request?.repeat(frame);
      else request?.reject(problemOf(frame));
      return request !== undefined;
    },
    async request(challenge, link, simulatedRoot, timeout_ms) {
      const id = `session-${randomUUID()}`;
      const until_ms = performance.now() + timeout_ms;
      const { promise, resolve, reject } = Promise.withResolvers<SessionFrame>();
      const timer = setTimeout(() => reject(timedOut()), timeout_ms);
      const send = () => link.send({ type: 'session', id, challenge });
      let retry: NodeJS.Timeout | undefined;
      const repeat = (frame: Failed) => {
        const wait_ms = delayAfter(1, RETRY, frame.retry_after_ms);
        if (performance.now() + wait_ms > until_ms) reject(problemOf(frame));
        else retry = setTimeout(send, wait_ms);
      };
      requests.set(id, { resolve, reject, repeat });
      try {
        send();
        const session = sessionOf(await promise);
        const job = { session: wholeSession(session), simulatedRoot, challenge };
        const refusal = await checker.checkSession(job).catch(unchecked);
        if (refusal !== null) throw unavailable(`The sidecar’s session failed a check: ${refusal.message}.`);
        return session;
      } finally {
        clearTimeout(timer);
        clearTimeout(retry);
        requests.delete(id);
      }
    },
    disconnected() {
      // No session of this connection may become the current one after its check.
      currentNumber = ++received;
      current = null;
      ends = null;
      for (const { reject } of requests.values()) reject(unavailable('The sidecar has left.'));
    },
  };
}

const sessionOf = ({ statement, cpu, gpu }: SessionFrame): Session => ({
  id: hash('sha256', statement),
  statement,
  cpu,
  gpu,
});

/** Returns the ends of a checked session. */
function endsOf({ statement, cpu }: Session): SessionEnds {
  const { type, collateral } = JSON.parse(cpu) as { type: string; collateral?: object };
  const session_ms = readStatement(statement).not_after * 1000;
  return { type, session_ms, collateral_ms: endOf(collateral) };
}

/** Returns null for collateral that a verifier rejects: with CPU_EVIDENCE=auto the sidecar may send it. */
function endOf(collateral: object | undefined): number | null {
  if (collateral === undefined || !('tcb_info' in collateral)) return null;
  try {
    return collateralEnd(collateral as TdxCollateral).getTime();
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return null;
  }
}

/** JSON of the session by itself: the member `cpu` with the evidence over its statement. */
export const wholeSession = ({ cpu, gpu }: Session): string => `${cpu.slice(0, -1)},"gpu":${gpu}}`;

function problemOf({ code, message, retry_after_ms }: Failed): Problem {
  if (code === 'no_session') return noSession();
  const retryAfterSeconds = Math.max(1, Math.ceil((retry_after_ms ?? 2_000) / 1000));
  if (code === 'queue_full') return new Problem('overloaded', 'Another session is being made.', { retryAfterSeconds });
  return new Problem('attestation_unavailable', `The sidecar made no session: ${message} (${code}).`, {
    retryAfterSeconds,
  });
}

// Sessions with a client's challenge. Each costs a signature of every GPU, so they are made one at a time, in turns by API key.

/** Challenges that wait, in total. Past it, one of the owner with the most is refused. */
const MAX_WAITING = 256;
const MAX_OF_KEY = 16;
/** Several keys may have one address: all have it behind a proxy, unless CLIENT_ADDRESS_HEADER is set. */
const MAX_OF_ADDRESS = 64;
/** The longest rest after a challenge. One that took longer has mostly waited. */
const MAX_REST_MS = 5_000;

/** Returns a session that contains the challenge. @throws {ClientGone} @throws {Problem} as {@link Sidecar.challenge}, and rate_limit_exceeded */
type Challenges = (challenge: string, waiter: Waiter, address: string) => Promise<Session>;

export function createChallenges(sidecar: Pick<Sidecar, 'challenge'>, timeout_ms: number): Challenges {
  const permits = createPermits({ max_permits: 1, max_waiting: MAX_WAITING });
  const queue = new JobQueue(permits, 'Too many challenges wait.');
  const ofKey = new OwnerLimit(MAX_OF_KEY, 'challenges of one API key or address');
  const ofAddress = new OwnerLimit(MAX_OF_ADDRESS, 'challenges from one address');

  async function wait(challenge: string, waiter: Waiter): Promise<Session> {
    const until_ms = performance.now() + timeout_ms;
    const { promise, resolve, reject } = Promise.withResolvers<Session>();
    const waiting = new AbortController();
    const timer = setTimeout(() => waiting.abort(timedOut()), timeout_ms);
    const make = async () => {
      const began_ms = performance.now();
      resolve(await sidecar.challenge(challenge, until_ms - began_ms));
      // The permit stays taken for as long again, so that challenges leave at least half of the GPU's time to answers.
      await delay(Math.min(performance.now() - began_ms, MAX_REST_MS), undefined, { ref: false });
    };
    queue.run(waiter, make, waiting.signal).catch(reject);
    return promise.finally(() => clearTimeout(timer));
  }

  return async (challenge, waiter, address) => {
    const leaveKey = ofKey.acquire(waiter.owner);
    try {
      const leaveAddress = ofAddress.acquire(address);
      return await wait(challenge, waiter).finally(leaveAddress);
    } finally {
      leaveKey();
    }
  };
}

// Checks the sidecar's attestations and sessions. The checks run on a thread: a signature check takes a millisecond, and parsing the data
// of a faulty sidecar may take longer.

/** A job of the check thread: one attestation, or those of a batch, which differ only in `answers`. */
interface AttestationJob {
  /** JSON of the attestation's token and evidence, in UTF-8. */
  readonly members: Uint8Array;
  /** The nonce that every report and the attestation token must contain. */
  readonly nonce: string;
  /** PEM of the trust anchor that replaces NVIDIA's; null: NVIDIA's only. */
  readonly simulatedRoot: string | null;
  readonly answers: readonly AnswerJob[];
}

interface AnswerJob {
  /** SHA-256 of raw, in hex. */
  readonly digest: string;
  /** Merkle proof of the digest under the nonce; null: the nonce is the digest. */
  readonly batch: Batch | null;
  /** The statement of a checked session, and the signature over this response; null where no processor signs. */
  readonly signed: { readonly statement: string; readonly signature: string } | null;
}

/** A job of the check thread: one session, as JSON. */
interface SessionJob {
  readonly session: string;
  readonly simulatedRoot: string | null;
  /** The challenge that its statement must contain; absent: any or none. */
  readonly challenge?: string;
}

export type CheckJob = AttestationJob | SessionJob;

/** The check that failed. */
interface Failure {
  readonly code: FailureCode;
  readonly message: string;
}

/** The failed check, or else the devices that signed, by their `ueid`; none for a session. */
export type CheckResult = Failure | { readonly devices: readonly string[] };

export interface Checker {
  /** Starts the thread before the first attestation arrives. */
  warm(): void;
  /** @throws {Error} when the thread ended before the check was done. */
  check(job: AttestationJob): Promise<CheckResult>;
  /** @throws {Error} as `check` does. */
  checkSession(job: SessionJob): Promise<Failure | null>;
  close(): Promise<void>;
}

/** Starting the thread takes longer than a GPU signature may take, so it is kept for an hour after its last job. */
const IDLE_MS = 3_600_000;

export function createChecker(): Checker {
  const thread = new Thread<CheckJob, CheckResult>(
    new URL('./check-worker.ts', import.meta.url),
    { resourceLimits: { maxOldGenerationSizeMb: CHECKING_HEAP_MB, maxYoungGenerationSizeMb: CHECKING_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  return {
    warm: () => thread.warm(),
    // The members are copied: posting a view would send the whole buffer that it belongs to.
    check: ({ members, ...job }) => thread.run({ members: new Uint8Array(members), ...job }),
    async checkSession(job) {
      const result = await thread.run(job);
      return 'code' in result ? result : null;
    },
    close: () => thread.end(),
  };
}

/** The result when the thread ended during the check, most likely because its heap was too small. */
export const unchecked = (): Failure => ({ code: 'evidence_malformed', message: 'it could not be read' });
