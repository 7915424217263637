// The session that requests are sealed to: requested with a challenge, verified, and cached while it is valid.
import { readStatement } from '../../proto/attestation/statement.ts';
import { chooseKey, SealedError, type SealingKey } from '../../sealed/index.ts';
import { digest, fromBase64, toHex, utf8 } from '../common/bytes.ts';
import { VerificationError } from '../common/checks.ts';
import { readLimited } from '../common/limited.ts';
import { LruMap } from '../common/lru.ts';
import type { VerifiedSession } from '../cpu/cpu-options.ts';
import { LEVELS, type Level, type Policy, type VerificationReport, type VerifyOptions } from '../policy/options.ts';
import { appraiseSession } from '../session.ts';
import { levelTooLow, SealedFetchError } from './errors.ts';
import type { IsInSession } from './sealed-answers.ts';

/** How the session is verified. */
export interface SessionOptions
  extends Omit<VerifyOptions, 'at' | 'clocks' | 'expected' | 'session' | 'policy' | 'stopAtFailure'> {
  /**
   * `minLevel`: the least level of the machine that requests are sealed to, `measured` by default, which needs `cpu.reference`. With less,
   * anybody who runs that machine may read what is sealed to it. `requiredChecks`: of the session. Other members are for responses.
   */
  readonly policy?: Policy | undefined;
  /**
   * Whether the session must hold a challenge of this client, which proves that devices and processor signed now; the gateway's GPU signs
   * once more for each client. `true` by default. `false`: a session of this hour is enough, for a gateway that requires an API key for a
   * challenge, where that key is not to be read on the way (`edgeHeaders`). Nothing that a server sends makes it false.
   */
  readonly challenge?: boolean;
  /** Called with each session that requests are sealed to from now on. */
  readonly onSession?: (session: SealedSession) => void;
}

/** A verified session that requests are sealed to. */
export interface SealedSession extends VerifiedSession {
  readonly level: Level;
  readonly report: VerificationReport;
}

/** A session, and its key that this runtime seals to. */
export interface Sealing {
  readonly session: SealedSession;
  readonly key: SealingKey;
  /** The end of its validity by this clock, less a margin. */
  readonly until_ms: number;
}

interface Sessions {
  /** @param stale a session whose key the gateway no longer has. @throws {SealedFetchError} */
  current(signal: AbortSignal, stale?: Sealing): Promise<Sealing>;
  readonly isInSession: IsInSession;
}

interface SessionSource {
  /** The URL of `GET /v1/attestation/session`. */
  readonly url: string;
  readonly headers: Headers;
  readonly fetch: typeof globalThis.fetch;
  readonly now_ms: () => number;
}

/** A session ends earlier here, so that its last requests arrive in time. */
const MARGIN_MS = 60_000;
/** A session is 10 to 50 KB for each device; a machine has 16 at most. */
const MAX_SESSION_BYTES = 4 * 1024 * 1024;
/** For one attempt: a processor may take a minute. */
const TIMEOUT_MS = 90_000;
/** The sidecar makes one session at a time, each in some seconds. */
const MAX_ATTEMPTS = 5;
const MAX_WAIT_MS = 5_000;
/** Sessions, of an hour each, whose responses may still come. */
const MAX_KNOWN = 8;

export function createSessions(source: SessionSource, options: SessionOptions): Sessions {
  const { url, headers, fetch, now_ms } = source;
  const {
    policy: { minLevel = 'measured', requiredChecks } = {},
    challenge: isChallenged = true,
    onSession,
    ...verify
  } = options;
  /** Of each verified session: the key that signs responses, and the SHA-256 of the statement. */
  const known = new LruMap<string, true>(2 * MAX_KNOWN);
  let kept: Sealing | null = null;
  let pending: Promise<Sealing> | null = null;

  /** Concurrent callers share one renewal. */
  function renewed(): Promise<Sealing> {
    pending ??= make().finally(() => {
      pending = null;
    });
    return pending;
  }

  async function make(): Promise<Sealing> {
    const challenge = isChallenged ? toHex(crypto.getRandomValues(new Uint8Array(32))) : undefined;
    const text = await fetchSession(challenge);
    const { session, ...report } = await appraiseSession(text, {
      ...verify,
      at: new Date(now_ms()),
      policy: { requiredChecks },
      expected: { challenge },
    });
    if (session === null) {
      const cause = new VerificationError(report.checks);
      throw new SealedFetchError(cause.code, { cause });
    }
    if (LEVELS.indexOf(report.level) < LEVELS.indexOf(minLevel)) throw levelTooLow(report.level, minLevel);
    if (session.hpke === null) throw new SealedFetchError('session_without_key');
    const statement = readStatement(session.statement);
    const made = {
      session: { ...session, level: report.level, report },
      key: await keyOf(session.hpke),
      until_ms: statement.not_after * 1000 - MARGIN_MS,
    };
    known.set(statement.key, true);
    known.set(toHex(await digest('SHA-256', utf8(session.statement))), true);
    kept = made;
    onSession?.(made.session);
    return made;
  }

  /** @throws {SealedFetchError} session_missing, session_unavailable */
  async function fetchSession(challenge: string | undefined): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const at = challenge === undefined ? url : `${url}?challenge=${challenge}`;
      const response = await fetch(at, { headers, signal, redirect: 'manual' });
      if (response.status === 200) return textOf(response);
      await response.body?.cancel();
      const { status } = response;
      if (status === 404) throw new SealedFetchError('session_missing');
      const retry_after = retryAfter(response);
      if (status !== 503 || attempt === MAX_ATTEMPTS)
        throw new SealedFetchError('session_unavailable', { status, retry_after, message: unavailable(status) });
      await new Promise((resolve) => setTimeout(resolve, Math.min(Number(retry_after ?? 1) * 1000, MAX_WAIT_MS)));
    }
  }

  return {
    current(signal, stale) {
      signal.throwIfAborted();
      if (kept !== null && kept !== stale && now_ms() < kept.until_ms) return Promise.resolve(kept);
      return unlessAborted(renewed(), signal);
    },
    async isInSession({ attestation: { cpu } }) {
      const name = nameOf(cpu);
      if (name === null) return false;
      if (known.get(name) === true) return true;
      // The gateway's session may be newer than the one that was verified.
      await renewed().catch((error: unknown) => {
        if (!(error instanceof SealedFetchError)) throw error;
      });
      return known.get(name) === true;
    },
  };
}

function unavailable(status: number): string {
  const hint =
    status === 401 || status === 403
      ? ' The gateway wants an API key for a session with a challenge: give it in edgeHeaders, where it may be read on the way, or do without a challenge (challenge: false).'
      : '';
  return `The session was not to be had, so nothing was sealed and nothing was sent.${hint}`;
}

/** Whole seconds. A date would need the server's clock. */
export function retryAfter({ headers }: Response): string | null {
  const value = headers.get('retry-after');
  return value !== null && /^\d{1,6}$/.test(value) ? value : null;
}

/** @throws {SealedFetchError} session_unavailable */
async function textOf(response: Response): Promise<string> {
  try {
    const bytes = await readLimited(response, MAX_SESSION_BYTES);
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new SealedFetchError('session_unavailable', { cause });
  }
}

/** @throws {SealedFetchError} session_without_key, sealed_unsupported */
async function keyOf(hpke: string): Promise<SealingKey> {
  try {
    return await chooseKey(fromBase64(hpke));
  } catch (cause) {
    const code =
      cause instanceof SealedError && cause.code === 'sealed_unsupported' ? cause.code : 'session_without_key';
    throw new SealedFetchError(code, { cause });
  }
}

/** The entry in `known` for the session that a verified attestation is signed in; null: in none. */
function nameOf(cpu: Readonly<Record<string, unknown>> | undefined): string | null {
  const { statement, statement_sha256 } = cpu ?? {};
  if (typeof statement === 'string') return readStatement(statement).key;
  return typeof statement_sha256 === 'string' ? statement_sha256 : null;
}

/** Rejects when the signal aborts. The promise goes on, because others may wait for it. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
