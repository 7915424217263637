// The sidecar client: keeps a connection to the sidecar, repeats requests that a restart left open, and checks every attestation before it
// is used.
import type { Socket } from 'node:net';
import { MAX_LEAVES } from '../../proto/attestation/batch.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { BatchGroup, Failed, Hello, SessionFrame, SharedKeys, Signed } from '../../proto/frames.ts';
import { delayAfter } from '../base/backoff.ts';
import { Problem } from '../base/problem.ts';
import { ClientGone } from '../http/messages.ts';
import { createPermits, type Permits } from '../limits/concurrency.ts';
import {
  type Attested,
  type Members,
  type Refusal,
  type Session,
  SessionChanged,
  type Sidecar,
  type SidecarState,
} from './interfaces.ts';
import { type Checker, createSessions, noSession, timedOut, unavailable, unchecked } from './sessions.ts';
import { type AttestedFrame, connectOwned, type Link, openLink, SocketRefused } from './sidecar-link.ts';

/** Backoff for connecting. An attempt costs a refused Unix connection; a longer wait delays every response that waits for a restart. */
const RECONNECT = { min_ms: 25, max_ms: 250 };
/** A connection that lasted this long counts as established; the backoff begins anew. */
const STEADY_MS = 1_000;
/** A refused sidecar is tried again after this time, because it may have been replaced. */
const REFUSED_RETRY_MS = 5_000;
/** Backoff for one request. The sidecar may ask for a longer wait. */
const RETRY = { min_ms: 20, max_ms: 2_000 };

interface SidecarOptions {
  readonly sidecar_socket: string;
  /** A user who may own the socket beside root and this process's user; null: no other user. */
  readonly sidecar_uid: number | null;
  readonly attest_timeout_ms: number;
  /** Permits for attestations without a batch. The queue is fair between owners. */
  readonly permits: Permits;
  /** Responses beyond one full batch that may wait for the next. */
  readonly max_attestations_waiting: number;
  readonly allow_simulated: boolean;
  readonly checker: Pick<Checker, 'warm' | 'check' | 'checkSession'>;
  /** Reports state changes for the log, never content. `refusal` is set in the state `refused`. */
  readonly onState?: (state: SidecarState, reason: string, refusal: Refusal | null) => void;
  /** A request to the sidecar is repeated. */
  readonly onRetry?: () => void;
  /** A GPU signature over this number of responses was checked: over a single one, or over a batch. */
  readonly onSigned?: (answers: number, kind: 'strict' | 'batch') => void;
  /** A sidecar with a processor is connected. */
  readonly onProcessor?: () => void;
  /** The keys for sealed requests that gateways share at this sidecar. */
  readonly onKeys?: (keys: SharedKeys) => void;
  /** A session was checked, and responses are signed in it from now on. */
  readonly onSession?: (session: Session) => void;
  /** Whether responses may share a signature, which the error of a full queue then suggests. */
  readonly batches?: boolean;
}

/** A settled entry drops its references: a table that the Map has outgrown may still refer to it until the next major collection. */
interface Pending {
  raw: Uint8Array;
  readonly digest: Nonce;
  readonly batch: BatchGroup | null;
  readonly session: string | undefined;
  readonly began_ms: number;
  resolve: (attested: Attested) => void;
  reject: (error: Error) => void;
  /** The request has a permit and may be sent. */
  has_permit: boolean;
  /** An attestation has arrived. */
  has_response: boolean;
  retries: number;
  retry: NodeJS.Timeout | null;
  /** Releases the permit. Repeated calls have no effect. */
  release: () => void;
}

const SETTLED = { raw: new Uint8Array(0), resolve: () => {}, reject: () => {}, release: () => {} };

const tooMany = (batches: boolean) =>
  new Problem(
    'overloaded',
    batches
      ? 'Too many answers wait for a GPU signature of their own (MAX_ATTESTATIONS_WAITING). With "tee": {"batch": true} this one would have shared one.'
      : 'Too many answers wait for their attestation (MAX_ATTESTATIONS_WAITING).',
    { retryAfterSeconds: 2 },
  );

const statementOf = (cpu: Attested['cpu']) =>
  cpu === null ? null : { statement: cpu.session.statement, signature: cpu.signature };

const cannotAttest = (message: string) => unavailable(`The sidecar cannot attest: ${message}`);

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
  const sessions = createSessions(options.checker);
  /** Batched responses do not wait for each other: one collection of evidence serves a whole batch. */
  const batchPermits = createPermits({ max_permits: MAX_LEAVES, max_waiting: options.max_attestations_waiting });

  function setState(next: SidecarState, reason: string, refusal: Refusal | null = null): void {
    const changed = state !== next || refused?.code !== refusal?.code;
    state = next;
    refused = refusal;
    if (changed) options.onState?.(next, reason, refusal);
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
      sessions.disconnected();
      if (state === 'closed') return;
      if (usable) setState('connecting', reason);
      // The backoff also grows for a sidecar that sends hello and disconnects at once.
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
      hello(greeting, again) {
        if (greeting.simulated !== null && !options.allow_simulated) {
          refuse({ code: 'simulated', message: 'the sidecar is simulated and ALLOW_SIMULATED is not 1' });
          return opened.close();
        }
        hello = greeting;
        cause = greeting.trouble;
        setState('connected', greeting.attester);
        options.checker.warm();
        if (greeting.cpu !== null && !again) options.onProcessor?.();
        if (again) return; // Everything pending was already requested on this connection.
        for (const [id, one] of pending) {
          clearTimeout(one.retry ?? undefined);
          one.retry = null;
          if (!one.has_permit || one.has_response) continue;
          options.onRetry?.();
          opened.attest(id, one.raw, one.batch);
        }
        for (const wake of waiting) wake();
      },
      frame(frame) {
        if (frame.type === 'failed') return failed(frame);
        if (frame.type === 'keys') return options.onKeys?.(frame);
        if (frame.type === 'status') {
          cause = frame.trouble;
          return;
        }
        const simulatedRoot = hello?.simulated?.root ?? null;
        const checked = frame.type === 'session' ? received(frame, simulatedRoot) : attested(frame, simulatedRoot);
        void checked.then((refusal) => {
          // A new connection may have replaced this one.
          if (refusal === null || link !== opened) return;
          refuse(refusal);
          opened.close();
        });
      },
      closed(reason, end) {
        if (end === 'other_protocol') refuse({ code: 'other_protocol', message: reason });
        disconnected(reason);
      },
    });
    link = opened;
  }

  async function received(frame: SessionFrame, simulatedRoot: string | null): Promise<Refusal | null> {
    const refusal = await sessions.received(frame, simulatedRoot);
    if (refusal === null && frame.id === null && sessions.current !== null) options.onSession?.(sessions.current);
    return refusal;
  }

  /** Checks an attestation, or those of a batch, and settles their requests. @returns the reason to refuse the sidecar, or null */
  async function attested(frame: AttestedFrame, simulatedRoot: string | null): Promise<Refusal | null> {
    const { members, nonce } = frame;
    const answers = frame.answers.flatMap((answer) => {
      const request = pending.get(answer.id);
      if (request === undefined || !request.has_permit || request.has_response) return [];
      request.has_response = true;
      // The sidecar is free for the next request while this result is checked.
      request.release();
      return [{ ...answer, request, digest: request.digest }];
    });
    if (answers.length === 0) return null;
    const signed = await Promise.all(answers.map(({ cpu }) => (cpu === null ? null : inSession(cpu))));
    let refusal: Refusal | null = null;
    let devices: readonly string[] = [];
    if (answers.some(({ batch, digest }) => batch === null && nonce !== digest))
      refusal = { code: 'report_nonce_mismatch', message: 'the answer is for something else' };
    else if (answers.some(({ batch, request }) => batch !== null && request.batch === null))
      refusal = { code: 'batch_refused', message: 'it put an answer into a batch that may share no nonce' };
    else if (signed.includes(undefined))
      refusal = { code: 'cpu_missing', message: 'the session of its processor is none that it has sent' };
    else if (answers.some(({ cpu, request }) => cpu !== null && cpu.session !== request.session))
      refusal = { code: 'session_mismatch', message: 'it signed in another session than the one that raw names' };
    else {
      const jobs = answers.map(({ digest, batch }, i) => ({ digest, batch, signed: statementOf(signed[i] ?? null) }));
      const result = await options.checker.check({ members, nonce, simulatedRoot, answers: jobs }).catch(unchecked);
      if ('code' in result) refusal = result;
      else devices = result.devices;
    }
    if (refusal === null) options.onSigned?.(answers.length, answers[0]?.batch === null ? 'strict' : 'batch');
    const json = Buffer.concat([Buffer.from(`"nonce":"${nonce}",`), members.subarray(1, -1)]);
    const shared: Members = { nonce, json, sharing: answers.length };
    const genuine = simulatedRoot === null;
    for (const [i, { request, batch, phases }] of answers.entries())
      if (refusal === null)
        request.resolve({ batch, members: shared, cpu: signed[i] ?? null, phases, devices, genuine });
      else request.reject(unavailable(`What the sidecar answered does not hold: ${refusal.message}.`));
    return refusal;
  }

  /** undefined: the sidecar has sent no session with that id, or its check failed. */
  async function inSession({ session: id, signature }: Signed): Promise<Attested['cpu'] | undefined> {
    const session = await sessions.find(id);
    return session === null ? undefined : { session, signature };
  }

  function failed(frame: Failed): void {
    if (sessions.failed(frame)) return;
    const one = frame.id === null ? undefined : pending.get(frame.id);
    if (one === undefined || frame.id === null || !one.has_permit || one.has_response) return;
    // The sidecar still works on this request and will send the result.
    if (frame.code === 'duplicate_id') return;
    if (frame.code === 'session_changed') return one.reject(new SessionChanged(frame.message));
    if (frame.retry_after_ms === undefined)
      return one.reject(unavailable(`The sidecar could not attest: ${frame.message} (${frame.code}).`));
    const { id } = frame;
    // A delay beyond the range of Node's timers would fire at once.
    const retry_after_ms = Math.min(frame.retry_after_ms, options.attest_timeout_ms);
    clearTimeout(one.retry ?? undefined);
    const retry = () => {
      one.retry = null;
      // After a disconnect, the next hello repeats everything that is pending.
      if (state !== 'connected') return;
      options.onRetry?.();
      link?.attest(id, one.raw, one.batch);
    };
    one.retry = setTimeout(retry, delayAfter(++one.retries, RETRY, retry_after_ms));
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

    get session() {
      return sessions.current;
    },
    sessionChecked: () => sessions.checked(),
    get sessionEnds() {
      return sessions.ends;
    },

    get pending() {
      return pending.size;
    },
    get oldest_ms() {
      const [oldest] = pending.values();
      return oldest === undefined ? 0 : performance.now() - oldest.began_ms;
    },

    sendKeys(frame) {
      if (state === 'connected') link?.send(frame);
    },

    async challenge(challenge, timeout_ms) {
      if (hello !== null && hello.cpu === null) throw noSession();
      const open = link;
      if (state !== 'connected' || open === null) throw unavailable('No sidecar is connected.');
      return sessions.request(challenge, open, hello?.simulated?.root ?? null, timeout_ms);
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

    attest(owner, id, raw, digest, onDisconnect, { began_ms = performance.now(), batch = null, session } = {}) {
      return new Promise<Attested>((resolve, reject) => {
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
          digest,
          batch,
          session,
          began_ms,
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
          if (state === 'connected') link?.attest(id, raw, batch);
        };
        one.release = (batch === null ? options.permits : batchPermits).acquire(owner, start, () =>
          one.reject(tooMany(options.batches === true && batch === null)),
        );
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
