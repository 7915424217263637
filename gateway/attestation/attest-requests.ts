// Attestations that are requested from the sidecar and pending: each waits for a permit of its owner, is repeated after a restart, and
// settles when its result was checked.
import { MAX_LEAVES } from '../../proto/attestation/batch.ts';
import type { BatchGroup, Failed, Signed } from '../../proto/attestation/frames.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { delayAfter } from '../base/backoff.ts';
import { Problem } from '../base/problem.ts';
import { ClientGone } from '../http/body.ts';
import { createPermits, type Permits } from '../limits/concurrency.ts';
import { type Attested, type Refusal, SessionChanged, type Sidecar, type TokenAndEvidence } from './interfaces.ts';
import { type Checker, type Sessions, timedOut, unavailable, unchecked } from './sessions.ts';
import type { AttestedFrame, Link } from './sidecar-link.ts';

/** Backoff for one request. The sidecar may ask for a longer wait. */
const RETRY = { min_ms: 20, max_ms: 2_000 };

export interface AttestRequestOptions {
  readonly attest_timeout_ms: number;
  /** Permits for attestations without a batch. The queue is fair between owners. */
  readonly permits: Permits;
  /** Responses beyond one full batch that may wait for the next. */
  readonly max_attestations_waiting: number;
  readonly checker: Pick<Checker, 'check'>;
  /** A request to the sidecar is repeated. */
  readonly onRetry?: () => void;
  /** A GPU signature over this number of responses was checked: over a single one, or over a batch. */
  readonly onSigned?: (answers: number, kind: 'strict' | 'batch') => void;
  /** Whether responses may share a signature, which the error of a full queue then suggests. */
  readonly batches?: boolean;
}

/** A settled entry drops its references, because V8 may keep the Map's old table until the next major collection. */
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
      ? 'Too many answers wait for a GPU signature of their own. With "tee": {"batch": true} this one would have shared one.'
      : 'Too many answers wait for their attestation.',
    { retryAfterSeconds: 2 },
  );

const statementOf = (cpu: Attested['cpu']) =>
  cpu === null ? null : { statement: cpu.session.statement, signature: cpu.signature };

export class AttestRequests {
  readonly #options: AttestRequestOptions;
  readonly #sessions: Pick<Sessions, 'find'>;
  /** The link to the sidecar; null while none is connected. */
  readonly #connected: () => Link | null;
  readonly #pending = new Map<string, Pending>();
  /** Batched responses do not wait for each other: one collection of evidence serves a whole batch. */
  readonly #batchPermits: Permits;

  constructor(options: AttestRequestOptions, sessions: Pick<Sessions, 'find'>, connected: () => Link | null) {
    this.#options = options;
    this.#sessions = sessions;
    this.#connected = connected;
    this.#batchPermits = createPermits({ max_permits: MAX_LEAVES, max_waiting: options.max_attestations_waiting });
  }

  get pending(): number {
    return this.#pending.size;
  }

  get oldest_ms(): number {
    const [oldest] = this.#pending.values();
    return oldest === undefined ? 0 : performance.now() - oldest.began_ms;
  }

  readonly attest: Sidecar['attest'] = (
    owner,
    id,
    raw,
    digest,
    onDisconnect,
    { began_ms = performance.now(), batch = null, session } = {},
  ) =>
    new Promise<Attested>((resolve, reject) => {
      const settle = () => {
        clearTimeout(timer);
        clearTimeout(one.retry ?? undefined);
        this.#pending.delete(id);
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
        if (one.has_permit) this.#connected()?.send({ type: 'cancel', id });
        one.reject(error);
      };
      const timer = setTimeout(
        () => abandon(timedOut()),
        Math.max(0, began_ms + this.#options.attest_timeout_ms - performance.now()),
      );
      this.#pending.set(id, one);
      const start = () => {
        one.has_permit = true;
        this.#connected()?.attest(id, raw, batch);
      };
      one.release = (batch === null ? this.#options.permits : this.#batchPermits).acquire(owner, start, () =>
        one.reject(tooMany(this.#options.batches === true && batch === null)),
      );
      onDisconnect(() => {
        if (this.#pending.get(id) === one) abandon(new ClientGone('nobody waits for this attestation any more'));
      });
    });

  /** Repeats over a new link what the last one left open. */
  repeat(link: Link): void {
    for (const [id, one] of this.#pending) {
      clearTimeout(one.retry ?? undefined);
      one.retry = null;
      if (!one.has_permit || one.has_response) continue;
      this.#options.onRetry?.();
      link.attest(id, one.raw, one.batch);
    }
  }

  /** Checks an attestation, or those of a batch, and settles their requests. @returns the reason to refuse the sidecar, or null */
  async attested(frame: AttestedFrame, simulatedRoot: string | null): Promise<Refusal | null> {
    const { members, nonce } = frame;
    const answers = frame.answers.flatMap((answer) => {
      const request = this.#pending.get(answer.id);
      if (request === undefined || !request.has_permit || request.has_response) return [];
      request.has_response = true;
      // The sidecar is free for the next request while this result is checked.
      request.release();
      return [{ ...answer, request, digest: request.digest }];
    });
    if (answers.length === 0) return null;
    const signed = await Promise.all(answers.map(({ cpu }) => (cpu === null ? null : this.#inSession(cpu))));
    let refusal: Refusal | null = null;
    let devices: readonly string[] = [];
    if (answers.some(({ batch, digest }) => batch === null && nonce !== digest))
      refusal = { code: 'report_nonce_mismatch', message: 'the answer is for something else' };
    else if (answers.some(({ batch, request }) => batch !== null && request.batch === null))
      refusal = { code: 'batch_refused', message: 'it put an answer into a batch that may share no nonce' };
    else if (signed.includes(undefined))
      refusal = { code: 'cpu_missing', message: 'it signed in a session that it never sent, or whose check failed' };
    else if (answers.some(({ cpu, request }) => cpu !== null && cpu.session !== request.session))
      refusal = { code: 'session_mismatch', message: 'it signed in another session than the one that raw names' };
    else {
      const jobs = answers.map(({ digest, batch }, i) => ({ digest, batch, signed: statementOf(signed[i] ?? null) }));
      const result = await this.#options.checker
        .check({ members, nonce, simulatedRoot, answers: jobs })
        .catch(unchecked);
      if ('code' in result) refusal = result;
      else devices = result.devices;
    }
    if (refusal === null) this.#options.onSigned?.(answers.length, answers[0]?.batch === null ? 'strict' : 'batch');
    // Copied, because the frame's buffer holds more.
    const shared: TokenAndEvidence = { nonce, json: Buffer.from(members.subarray(1, -1)) };
    const genuine = simulatedRoot === null;
    for (const [i, { request, batch, phases }] of answers.entries())
      if (refusal === null)
        request.resolve({ batch, members: shared, cpu: signed[i] ?? null, phases, devices, genuine });
      else request.reject(unavailable(`The sidecar’s attestation failed a check: ${refusal.message}.`));
    return refusal;
  }

  /** undefined: the sidecar has sent no session with that id, or its check failed. */
  async #inSession({ session: id, signature }: Signed): Promise<Attested['cpu'] | undefined> {
    const session = await this.#sessions.find(id);
    return session === null ? undefined : { session, signature };
  }

  /** Rejects the request with the frame's id, or repeats it. */
  failed(frame: Failed): void {
    const one = frame.id === null ? undefined : this.#pending.get(frame.id);
    if (one === undefined || frame.id === null || !one.has_permit || one.has_response) return;
    // The sidecar still works on this request and will send the result.
    if (frame.code === 'duplicate_id') return;
    if (frame.code === 'session_changed') return one.reject(new SessionChanged(frame.message));
    if (frame.retry_after_ms === undefined)
      return one.reject(unavailable(`The sidecar could not attest: ${frame.message} (${frame.code}).`));
    const { id } = frame;
    // A delay beyond the range of Node's timers would fire at once.
    const retry_after_ms = Math.min(frame.retry_after_ms, this.#options.attest_timeout_ms);
    clearTimeout(one.retry ?? undefined);
    const retry = () => {
      one.retry = null;
      // After a disconnect, the next hello repeats everything that is pending.
      const link = this.#connected();
      if (link === null) return;
      this.#options.onRetry?.();
      link.attest(id, one.raw, one.batch);
    };
    one.retry = setTimeout(retry, delayAfter(++one.retries, RETRY, retry_after_ms));
  }

  close(): void {
    for (const one of [...this.#pending.values()]) one.reject(unavailable('The gateway stops.'));
  }
}
