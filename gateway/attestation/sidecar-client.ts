// The sidecar client: keeps a connection to the sidecar, asks again for whatever a restart left unanswered, and believes nothing of
// what it is answered before that was checked.
import type { Socket } from 'node:net';
import type { Failed, Hello } from '../../proto/frames.ts';
import type { Nonce } from '../../proto/raw.ts';
import type { FailureCode } from '../../verify/index.ts';
import { Problem } from '../http/problem.ts';
import { ClientGone } from '../http/request.ts';
import { delayAfter } from '../limits/backoff.ts';
import { CHECKING_HEAP_MB, CHECKING_YOUNG_HEAP_MB } from '../limits/bounds.ts';
import { createPermits, type Permits } from '../limits/permits.ts';
import { Thread } from '../offload/thread.ts';
import { type AttestedFrame, connectOwned, type Link, openLink, SocketRefused } from './sidecar-link.ts';

/** To a sidecar that is away. A try costs a refused Unix connection; waiting longer costs every response that waits for a restart. */
const RECONNECT = { min_ms: 25, max_ms: 250 };
/** A connection that lasted so long did not fail at its start. */
const STEADY_MS = 1_000;
/** A sidecar that may not be used is looked at again in case it was replaced. */
const REFUSED_RETRY_MS = 5_000;
/** Of one request, whatever the sidecar asks for. */
const RETRY = { min_ms: 20, max_ms: 2_000 };

interface SidecarOptions {
  readonly sidecar_socket: string;
  /** Who may own the socket beside root and this process's user; null: nobody else. */
  readonly sidecar_uid: number | null;
  readonly attest_timeout_ms: number;
  /** Asked for at once; the others wait for their owner's turn. */
  readonly max_attestations_in_flight: number;
  /** In place of that limit: its queue is bounded, and several processes may share it. */
  readonly permits?: Permits;
  readonly allow_simulated: boolean;
  readonly checker: Pick<Checker, 'warm' | 'check'>;
  /** For the log: state changes, never content. `refused`: why, in the state of that name. */
  readonly onState?: (state: SidecarState, reason: string, refusal: Refusal | null) => void;
  /** Something is asked for again. */
  readonly onRetry?: () => void;
}

/** Why a sidecar may not be used. */
interface Refusal {
  readonly code: 'simulated' | SocketRefused['code'] | FailureCode;
  readonly message: string;
}

type SidecarState = 'connecting' | 'connected' | 'refused' | 'closed';

export interface Sidecar {
  readonly state: SidecarState;
  /** Why it is in the state `refused`; null in every other. */
  readonly refused: Refusal | null;
  /** Of the connected sidecar. */
  readonly hello: Hello | null;
  /** Why the connected sidecar cannot attest, in its words; null when it can. */
  readonly unavailable: Hello['trouble'];
  /** How many wait for their attestation. */
  readonly pending: number;
  /** Resolves as soon as a sidecar is there. @throws {Problem} attestation_unavailable after `wait_ms`. */
  ready(wait_ms: number): Promise<void>;
  /**
   * The sidecar's answer over `raw` (UTF-8), whose nonce must be `nonce`, checked; asked for when it is the owner's turn, and again
   * after a reconnect: the same raw gives the same nonce. `onLeft` is called once, with what to call when nobody waits any more.
   * Since `began_ms`, as performance.now() tells it, it is waited for.
   * @throws {Problem} attestation_unavailable, overloaded. @throws {ClientGone} when nobody waited any more.
   */
  attest(
    owner: string,
    id: string,
    raw: Uint8Array,
    nonce: Nonce,
    onDisconnect: (callback: () => void) => void,
    began_ms?: number,
  ): Promise<AttestedFrame>;
  close(): void;
}

/** Settled, it lets go of what it holds: a table that the Map has outgrown still refers to it, until V8 looks through the old objects. */
interface Pending {
  raw: Uint8Array;
  readonly nonce: Nonce;
  resolve: (attested: AttestedFrame) => void;
  reject: (error: Error) => void;
  /** It has a permit. */
  has_permit: boolean;
  /** An answer has come. */
  has_response: boolean;
  retries: number;
  retry: NodeJS.Timeout | null;
  /** Of its permit. Whatever comes twice counts once. */
  release: () => void;
}

const SETTLED = { raw: new Uint8Array(0), resolve: () => {}, reject: () => {}, release: () => {} };

const unavailable = (message: string) => new Problem('attestation_unavailable', message, { retryAfterSeconds: 2 });

export const timedOut = () => unavailable('The attestation did not come in time.');

const tooMany = () =>
  new Problem('overloaded', 'Too many answers wait for their attestation.', { retryAfterSeconds: 2 });

const cannotAttest = (message: string) => unavailable(`The sidecar cannot attest: ${message}`);

/** The thread ended over it, as one does whose heap is not enough. */
const unchecked = (): Refusal => ({ code: 'evidence_malformed', message: 'it could not be read' });

export function createSidecar(options: SidecarOptions): Sidecar {
  let state: SidecarState = 'connecting';
  let refused: Refusal | null = null;
  let hello: Hello | null = null;
  let cause: Hello['trouble'] = null;
  let link: Link | null = null;
  let failures = 0;
  let reconnect: NodeJS.Timeout | null = null;
  const waiting = new Set<() => void>();
  const pending = new Map<string, Pending>();
  const { permits = createPermits({ max_permits: options.max_attestations_in_flight, max_waiting: Infinity }) } =
    options;

  function setState(next: SidecarState, reason: string, refusal: Refusal | null = null): void {
    if (state === next && refused?.message === refusal?.message) return;
    state = next;
    refused = refusal;
    options.onState?.(next, reason, refusal);
  }

  function connect(): void {
    reconnect = null;
    const began_ms = performance.now();
    let usable = true;
    const refuse = (refusal: Refusal) => {
      usable = false;
      setState('refused', refusal.message, refusal);
    };
    const disconnected = (reason: string) => {
      link = null;
      hello = null;
      cause = null;
      if (state === 'closed') return;
      if (usable) setState('connecting', reason);
      // One that greets and leaves at once is waited for longer and longer too.
      failures = performance.now() - began_ms > STEADY_MS ? 1 : failures + 1;
      reconnect = setTimeout(connect, usable ? delayAfter(failures, RECONNECT) : REFUSED_RETRY_MS);
    };
    let socket: Socket;
    try {
      socket = connectOwned(options.sidecar_socket, options.sidecar_uid);
    } catch (error) {
      if (error instanceof SocketRefused) refuse(error);
      return disconnected((error as NodeJS.ErrnoException).code ?? 'unknown');
    }
    const opened = openLink(socket, {
      hello(greeting, greeted) {
        if (greeting.simulated !== null && !options.allow_simulated) {
          refuse({ code: 'simulated', message: 'the sidecar is simulated and ALLOW_SIMULATED is not 1' });
          return opened.close();
        }
        hello = greeting;
        cause = greeting.trouble;
        setState('connected', greeting.attester);
        options.checker.warm();
        if (greeted) return; // whatever is pending was asked for on this connection
        for (const [id, one] of pending) {
          clearTimeout(one.retry ?? undefined);
          one.retry = null;
          if (!one.has_permit || one.has_response) continue;
          options.onRetry?.();
          opened.attest(id, one.raw);
        }
        for (const wake of waiting) wake();
      },
      frame(frame) {
        if (frame.type === 'failed') return failed(frame);
        if (frame.type === 'status') {
          cause = frame.trouble;
          return;
        }
        void attested(frame, hello?.simulated?.root ?? null).then((refusal) => {
          // Another connection may be there by now.
          if (refusal === null || link !== opened) return;
          refuse(refusal);
          opened.close();
        });
      },
      closed: disconnected,
    });
    link = opened;
  }

  /** Gives the answer to who waits for it, if it holds. @returns what is wrong with it */
  async function attested(frame: AttestedFrame, simulatedRoot: string | null): Promise<Refusal | null> {
    const one = pending.get(frame.id);
    if (one === undefined || !one.has_permit || one.has_response) return null;
    one.has_response = true;
    // The sidecar is free for the next one; what it brought is looked at here.
    one.release();
    const { members } = frame;
    const refusal: Refusal | null =
      frame.nonce === one.nonce
        ? await options.checker.check({ members, nonce: one.nonce, simulatedRoot }).catch(unchecked)
        : { code: 'report_nonce_mismatch', message: 'the answer is for something else' };
    if (refusal === null) one.resolve(frame);
    else one.reject(unavailable(`What the sidecar answered does not hold: ${refusal.message}.`));
    return refusal;
  }

  function failed(frame: Failed): void {
    const one = frame.id === null ? undefined : pending.get(frame.id);
    if (one === undefined || frame.id === null || !one.has_permit || one.has_response) return;
    // It is being worked on: the answer is on its way.
    if (frame.code === 'duplicate_id') return;
    if (frame.retry_after_ms === undefined)
      return one.reject(unavailable(`The sidecar could not attest: ${frame.message} (${frame.code}).`));
    const { id } = frame;
    // Node's timers would take one that is far too long for none.
    const retry_after_ms = Math.min(frame.retry_after_ms, options.attest_timeout_ms);
    clearTimeout(one.retry ?? undefined);
    one.retry = setTimeout(
      () => {
        one.retry = null;
        // Away now: hello asks again for everything that is pending.
        if (state !== 'connected') return;
        options.onRetry?.();
        link?.attest(id, one.raw);
      },
      Math.max(retry_after_ms * (1 + Math.random() / 4), delayAfter(++one.retries, RETRY)),
    );
  }

  connect();
  return {
    get state() {
      return state;
    },
    get refused() {
      return refused;
    },
    get hello() {
      return hello;
    },

    get unavailable() {
      return cause;
    },

    get pending() {
      return pending.size;
    },

    ready(wait_ms) {
      if (cause !== null) return Promise.reject(cannotAttest(cause.message));
      if (state === 'connected') return Promise.resolve();
      return new Promise((resolve, reject) => {
        const wake = () => {
          clearTimeout(timer);
          waiting.delete(wake);
          if (cause === null) resolve();
          else reject(cannotAttest(cause.message));
        };
        const timer = setTimeout(() => {
          waiting.delete(wake);
          reject(
            unavailable(
              state === 'refused'
                ? 'The sidecar that is there may not be used: /health says why.'
                : 'No sidecar is connected.',
            ),
          );
        }, wait_ms);
        waiting.add(wake);
      });
    },

    attest(owner, id, raw, nonce, onDisconnect, began_ms = performance.now()) {
      return new Promise<AttestedFrame>((resolve, reject) => {
        const settle = () => {
          clearTimeout(timer);
          clearTimeout(one.retry ?? undefined);
          pending.delete(id);
          const { release } = one;
          Object.assign(one, SETTLED);
          release();
        };
        const one: Pending = {
          raw,
          nonce,
          resolve: (attested) => {
            settle();
            resolve(attested);
          },
          reject: (error) => {
            settle();
            reject(error);
          },
          has_permit: false,
          has_response: false,
          retries: 0,
          retry: null,
          release: () => {},
        };
        const abandon = (error: Error) => {
          if (one.has_permit && state === 'connected') link?.send({ type: 'cancel', id });
          one.reject(error);
        };
        const timer = setTimeout(
          () => abandon(timedOut()),
          Math.max(0, began_ms + options.attest_timeout_ms - performance.now()),
        );
        pending.set(id, one);
        const start = () => {
          one.has_permit = true;
          if (state === 'connected') link?.attest(id, raw);
        };
        one.release = permits.acquire(owner, start, () => one.reject(tooMany()));
        onDisconnect(() => {
          if (pending.get(id) === one) abandon(new ClientGone('nobody waits for this attestation any more'));
        });
      });
    },

    close() {
      setState('closed', 'the gateway stops');
      clearTimeout(reconnect ?? undefined);
      for (const one of [...pending.values()]) one.reject(unavailable('The gateway stops.'));
      link?.close();
    },
  };
}

// Checks what a sidecar answered before anybody is given it: the same as the sidecar's own check, on a thread, because a signature and
// what surrounds it take a millisecond, and what a false sidecar sends may take longer to read.

/** What the thread is asked. */
export interface CheckJob {
  /** JSON of the attestation's token and evidence, in UTF-8. */
  readonly members: Uint8Array;
  /** What every report and the token must be over. */
  readonly nonce: string;
  /** PEM of the root that counts in place of NVIDIA's; null: NVIDIA's alone. */
  readonly simulatedRoot: string | null;
}

/** What is wrong, by the verifier's codes; null: nothing. */
export type CheckResult = { readonly code: FailureCode; readonly message: string } | null;

interface Checker {
  /** An answer will come: the thread starts meanwhile. */
  warm(): void;
  /** @throws {Error} when the thread ended before it had looked. */
  check(job: CheckJob): Promise<CheckResult>;
  close(): Promise<void>;
}

/** A start takes longer than a GPU may: whoever asked once is likely to ask again. */
const IDLE_MS = 3_600_000;

export function createChecker(): Checker {
  const thread = new Thread<CheckJob, CheckResult>(
    new URL('./check-worker.ts', import.meta.url),
    { resourceLimits: { maxOldGenerationSizeMb: CHECKING_HEAP_MB, maxYoungGenerationSizeMb: CHECKING_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  return {
    warm: () => thread.warm(),
    // A copy of its own: a view would take the whole of what it was read into along.
    check: ({ members, nonce, simulatedRoot }) =>
      thread.run({ members: new Uint8Array(members), nonce, simulatedRoot }),
    close: () => thread.end(),
  };
}
