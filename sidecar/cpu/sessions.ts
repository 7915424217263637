// The sidecar's sessions: every device and the processor sign a statement with a fresh key, which is renewed at half of its life. That
// key signs each response, so that no response waits for the processor.
import { generateKeyPairSync, hash, type KeyObject, randomBytes, sign } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { MAX_UNAVAILABLE_MESSAGE } from '../../proto/attestation/frames.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import {
  answerMessage,
  evidenceMessage,
  MAX_SESSION_SECONDS,
  sessionMessage,
  writeStatement,
} from '../../proto/attestation/statement.ts';
import { CheckFailure } from '../../verify/index.ts';
import { bootRomKey, checkSession } from '../../verify/service.ts';
import { AttesterError, failed } from '../common/attester.ts';
import { until } from '../common/lock.ts';
import { backoffMs, SESSION_RETRY } from '../common/retry.ts';
import { type CpuCollector, REPORT_DEADLINE_MS } from './cpu-collector.ts';

/** A session as gateways return it to clients. */
interface Session {
  readonly statement: string;
  /** JSON of the member `cpu`, without a signature over a response. */
  readonly cpu: string;
  /** JSON of the evidence over the statement. */
  readonly gpu: string;
}

export interface Signed {
  /** SHA-256 of the statement, in hex. */
  readonly session: string;
  /** base64 */
  readonly signature: string;
}

/** @param digest the SHA-256 of raw. @returns null where the devices have changed and no session is required. @throws {AttesterError} */
type Signer = (digest: Nonce, evidence: readonly Evidence[]) => Promise<Signed | null>;

export interface Sessions {
  /** null until the first report shows it. */
  readonly type: string | null;
  /** PEM of the test root of a simulated processor; null for a real one. */
  readonly simulatedRoot: string | null;
  /** The session whose key signs responses; null while there is none. */
  readonly current: Session | null;
  /** The reason why nothing may be attested: a session is required and there is none. */
  readonly unavailable: { readonly code: AttesterError['code']; readonly message: string } | null;
  /** Resolves when the first session was made, or the first attempt failed. */
  readonly ready: Promise<void>;
  /**
   * Returns the signer of the current session. It keeps signing in that session after a renewal.
   * @param named the session that raw names; null: none. @returns null where there is no session and none is required.
   * @throws {SessionChanged} if `named` is not the current session. @throws {AttesterError} a session is required and there is none.
   */
  signerIn(named: string | null): Signer | null;
  /**
   * A separate session that holds `challenge`, under the current key; cached for a minute.
   * @throws {SessionBusy} another one is being made. @throws {AttesterError}; what `signal` was aborted with.
   */
  challenged(challenge: string, signal: AbortSignal): Promise<Session>;
  /**
   * Sets the key configurations of sealed prompts (base64) that the gateway can open. New sessions name the first; where the current one
   * names none of them, a new one is made at once.
   */
  setKeys(hpke: readonly string[]): void;
  close(): void;
}

export interface SessionsOptions {
  readonly collector: CpuCollector;
  /** Whether nothing is attested without a session. */
  readonly required: boolean;
  /** The launch file's text; null by default. */
  readonly launch?: string | null;
  /** Has every device sign. @throws {AttesterError} */
  readonly attest: (nonce: Nonce, signal: AbortSignal) => Promise<{ readonly evidence: readonly Evidence[] }>;
  /** Called with each new session whose key signs responses, and with null when there is none any more. */
  readonly onSession: (session: Session | null) => void;
  /** A session could not be made; the next attempt follows. For the log. */
  readonly onFailure: (error: AttesterError) => void;
  /** PEM of the simulated GPU's test root; null for real devices. */
  readonly simulatedRoot: () => string | null;
  readonly now_ms?: () => number;
  /** The session's lifetime in seconds; by default the longest that a statement may have. */
  readonly life_s?: number;
}

/** The session for another challenge is being made. */
export class SessionBusy extends Error {
  override readonly name = 'SessionBusy';
  override readonly message = 'another session is being made';
}

/** raw names another session than the current one: the gateway drafts it again. */
export class SessionChanged extends Error {
  override readonly name = 'SessionChanged';
  override readonly message = 'raw names another session than the current one';
}

/** A session begins before it is made: after a restart, a response's timestamp may be older than the session that signs it. */
const MARGIN_S = 300;
const CHALLENGE_CACHE_MS = 60_000;
const REPORT_DATA_BYTES = 64;
/** Certificate chains whose boot ROM key is kept. */
const MAX_CHAINS = 256;

interface Live {
  readonly session: Session;
  readonly id: string;
  readonly digest: Uint8Array;
  readonly key: Key;
  readonly devices: ReadonlySet<string>;
  /** The key configuration that the statement names. */
  readonly hpke: string | null;
  readonly not_after_ms: number;
}

const unavailable = (message: string, options?: ErrorOptions) =>
  failed('collection_failed', 'cpu_unavailable', message, 'retry', options);

export function createSessions(options: SessionsOptions): Sessions {
  const { collector, required, now_ms = Date.now, life_s = MAX_SESSION_SECONDS } = options;
  const stop = new AbortController();
  const { make, devicesOf } = createMaker(options, now_ms, life_s);
  let live: Live | null = null;
  let last: AttesterError | null = null;
  let renew: (() => void) | null = null;
  let hpkeKeys: readonly string[] = [];
  const { promise: ready, resolve: first } = Promise.withResolvers<void>();

  /** The live session, unless it has expired. */
  function current(): Live | null {
    return live !== null && now_ms() < live.not_after_ms ? live : null;
  }

  /** Renews the session for as long as the process lives. */
  async function run(): Promise<void> {
    let failures = 0;
    while (!stop.signal.aborted) {
      try {
        const key = newKey();
        const known = failures > 0 || live === null ? null : [...live.devices];
        live = await make(key, hpkeKeys[0] ?? null, null, known, stop.signal);
        last = null;
        failures = 0;
        options.onSession(live.session);
        first();
        if (!namesOpenedKeys(live)) continue;
        await waitFor(((life_s - MARGIN_S) / 2) * 1000);
      } catch (error) {
        if (stop.signal.aborted) return;
        last = error instanceof AttesterError ? error : unavailable('a session could not be made', { cause: error });
        options.onFailure(last);
        if (current() === null) options.onSession(null);
        first();
        await waitFor(backoffMs(SESSION_RETRY, failures++));
      }
    }
  }

  /** Whether the gateway can open prompts that are sealed to the session's key; true where it has no keys. */
  const namesOpenedKeys = ({ hpke }: Live) => hpkeKeys.length === 0 || (hpke !== null && hpkeKeys.includes(hpke));

  /** Waits, or returns early when a session is needed at once. */
  async function waitFor(ms: number): Promise<void> {
    const wake = new AbortController();
    renew = () => wake.abort();
    const signal = AbortSignal.any([stop.signal, wake.signal]);
    await delay(ms, undefined, { signal, ref: false }).catch(() => {});
    renew = null;
  }

  async function signIn(active: Live, digest: Nonce, evidence: readonly Evidence[]): Promise<Signed | null> {
    if (!(await devicesOf(evidence)).every((one) => active.devices.has(one))) {
      // A device was replaced: the next session includes the new one.
      if (active === live) renew?.();
      if (!required) return null;
      throw last ?? unavailable('the devices have changed');
    }
    const message = answerMessage(active.digest, Buffer.from(digest, 'hex'), digestOf(evidence));
    // Signed on this thread: an offload costs more than the signature.
    const signature = sign('sha256', message, { key: active.key.private, dsaEncoding: 'ieee-p1363' });
    return { session: active.id, signature: signature.toString('base64') };
  }

  const challenged = createChallenged(now_ms, async (value) => {
    const active = current();
    if (active === null) throw last ?? unavailable('there is no session yet');
    return (await make(active.key, active.hpke, value, [...active.devices], stop.signal)).session;
  });

  void run();
  return {
    get type() {
      return collector.type;
    },
    simulatedRoot: collector.simulated?.root ?? null,
    ready,
    get current() {
      return current()?.session ?? null;
    },
    get unavailable() {
      if (!required || current() !== null) return null;
      const { code, message } = last ?? unavailable('there is no session yet');
      return { code, message: message.slice(0, MAX_UNAVAILABLE_MESSAGE) };
    },
    signerIn(named) {
      const active = current();
      if (active === null && required) throw last ?? unavailable('there is no session yet');
      if (named !== (active?.id ?? null)) throw new SessionChanged();
      return active === null ? null : (digest, evidence) => signIn(active, digest, evidence);
    },
    challenged,
    setKeys(hpke) {
      hpkeKeys = hpke;
      if (live !== null && !namesOpenedKeys(live)) renew?.();
    },
    close: () => stop.abort(),
  };
}

/** What makes sessions, and knows the devices by their boot ROM keys. */
function createMaker(options: SessionsOptions, now_ms: () => number, life_s: number) {
  const { collector, launch = null } = options;
  const chains = new LRUCache<string, string>({ max: MAX_CHAINS });

  /** The key of a device's boot ROM, parsed once for each chain. */
  async function deviceOf({ certificate_chain }: Evidence): Promise<string> {
    const known = chains.get(certificate_chain);
    if (known !== undefined) return known;
    const key = await bootRomKey(certificate_chain);
    if (key === null) throw unavailable('a device has no boot ROM certificate');
    chains.set(certificate_chain, key);
    return key;
  }

  const devicesOf = (evidence: readonly Evidence[]) => Promise.all(evidence.map(deviceOf));

  /** Makes a session. `known`: the devices' keys, where an earlier session has them. */
  async function make(
    key: Key,
    hpke: string | null,
    challenged: string | null,
    known: readonly string[] | null,
    signal: AbortSignal,
  ): Promise<Live> {
    const trial = () => options.attest(randomBytes(32).toString('hex') as Nonce, signal);
    const devices = known ?? (await devicesOf((await trial()).evidence));
    const now_s = Math.floor(now_ms() / 1000);
    const [not_before, not_after] = [now_s - MARGIN_S, now_s - MARGIN_S + life_s];
    const own = { challenge: challenged, key: key.spki, devices, not_before, not_after };
    const launchDigest = launch === null ? null : sha256(Buffer.from(launch)).toString('hex');
    const statement = writeStatement({ ...own, tls: [], hpke, launch: launchDigest });
    const digest = sha256(Buffer.from(statement));
    const id = digest.toString('hex');
    const { evidence } = await options.attest(id as Nonce, signal);
    const signers = await devicesOf(evidence);
    // Other devices signed: the next attempt reads the devices' keys first.
    if (signers.some((one) => !devices.includes(one))) throw unavailable('the devices have changed');
    const gpuDigest = digestOf(evidence);
    const reportData = new Uint8Array(REPORT_DATA_BYTES);
    reportData.set(sha256(sessionMessage(digest, gpuDigest)));
    const { type, ...members } = await collect(reportData, signal);
    const gpu_sha256 = gpuDigest.toString('hex');
    const cpu = { type, statement, gpu_sha256, ...members, ...(launch === null ? {} : { launch }) };
    await check({ ...cpu, gpu: evidence });
    return {
      session: { statement, cpu: JSON.stringify(cpu), gpu: JSON.stringify(evidence) },
      id,
      digest,
      key,
      devices: new Set(devices),
      hpke,
      not_after_ms: not_after * 1000,
    };
  }

  /** @throws {AttesterError} the processor gave no evidence within its deadline. */
  async function collect(reportData: Uint8Array, signal: AbortSignal) {
    try {
      return await collector.collect(reportData, AbortSignal.any([signal, AbortSignal.timeout(REPORT_DEADLINE_MS)]));
    } catch (cause) {
      signal.throwIfAborted();
      if (cause instanceof AttesterError) throw cause;
      throw unavailable('the processor gave no evidence in its time', { cause });
    }
  }

  /** The checks that gateways run too. @throws {AttesterError} */
  async function check(session: object): Promise<void> {
    const roots = [options.simulatedRoot(), collector.simulated?.root ?? null].filter((root) => root !== null);
    try {
      await checkSession(session, roots.length === 0 ? null : roots.join(''), undefined, new Date(now_ms()));
    } catch (cause) {
      if (!(cause instanceof CheckFailure)) throw cause;
      throw failed('appraisal_failed', 'cpu_refused', `${cause.code}: ${cause.message}`, 'retry', { cause });
    }
  }

  return { make, devicesOf };
}

/** Caches the session of the last challenge. @param make makes the session that holds this challenge. */
function createChallenged(now_ms: () => number, make: (value: string) => Promise<Session>): Sessions['challenged'] {
  let last: { readonly value: string; readonly made: Promise<Session>; readonly until_ms: number } | null = null;
  return async (value, signal) => {
    signal.throwIfAborted();
    if (last === null || now_ms() >= last.until_ms || last.value !== value) {
      if (last?.until_ms === Number.POSITIVE_INFINITY) throw new SessionBusy();
      // No caller's signal ends it: others may wait for the same session.
      const own = { value, made: make(value), until_ms: Number.POSITIVE_INFINITY };
      last = own;
      own.made.then(
        () => {
          last = { ...own, until_ms: now_ms() + CHALLENGE_CACHE_MS };
        },
        () => {
          last = null;
        },
      );
    }
    return until(last.made, signal);
  };
}

/** A session's key, which is only in this process's memory. */
interface Key {
  readonly private: KeyObject;
  /** SubjectPublicKeyInfo in base64. */
  readonly spki: string;
}

function newKey(): Key {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { private: privateKey, spki: publicKey.export({ type: 'spki', format: 'der' }).toString('base64') };
}

const sha256 = (bytes: Uint8Array): Buffer => hash('sha256', bytes, 'buffer');

/** All responses of a batch share the same evidence. */
const digests = new WeakMap<readonly Evidence[], Buffer>();

function digestOf(evidence: readonly Evidence[]): Buffer {
  const known = digests.get(evidence);
  if (known !== undefined) return known;
  const bytes = evidence.map(({ report, certificate_chain }) => ({
    report: Buffer.from(report, 'base64'),
    chain: Buffer.from(certificate_chain, 'base64'),
  }));
  const digest = sha256(evidenceMessage(bytes));
  digests.set(evidence, digest);
  return digest;
}
