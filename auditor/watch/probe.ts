// Asks one node as a client does: a session with a fresh challenge, one signed answer (sealed where the session offers it), its health.
import { randomBytes } from 'node:crypto';
import { UsageError } from '../../verify/cli/input.ts';
import { SENTENCES } from '../../verify/cli/words.ts';
import { UnprovenAnswerError, verifyingFetch } from '../../verify/clients/fetch.ts';
import { SealedFetchError, sealedFetch } from '../../verify/clients/sealed.ts';
import { BodyTooLarge, mediaType, readLimited } from '../../verify/common/limited.ts';
import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import { appraiseSession } from '../../verify/cpu.ts';
import type { FailureCode, Level, VerificationReport, Verified, VerifyOptions } from '../../verify/index.ts';
import { VerificationError } from '../../verify/index.ts';
import { devicesOf, type Ends, endsOf } from './endorsements.ts';
import type { Node } from './nodes.ts';
import type { Received } from './proofs.ts';

/** `away`: no answer, or an error of the node. `unchecked`: nothing was found wrong, but a check lacked what it needs. */
export type Outcome = 'proven' | 'failed' | 'away' | 'unchecked';

/** What was seen of a node. Nothing in it is a text that the node wrote, except `received`. */
export interface Probed {
  readonly outcome: Outcome;
  /** null where it is proven. */
  readonly code: string | null;
  /** One sentence about the code. */
  readonly reason: string | null;
  readonly level: Level | null;
  readonly sealed: boolean;
  readonly devices: readonly string[] | null;
  /** Of the GPUs, by their reports. */
  readonly drivers: readonly string[];
  /** SHA-256 of the launch file, where the reference knows it. */
  readonly launch: string | null;
  /** The release that lists the guest, and the one that is current by its newest status. */
  readonly release: { readonly tag: string; readonly current: string | null } | null;
  /** The weights that the launch file names, and their verity root. */
  readonly weights: { readonly name: string; readonly verity_root: string | null } | null;
  readonly ends: Ends | null;
  /** Of the drivers that the nodes will have: those without reference values. null: not asked. */
  readonly drivers_unknown: readonly string[] | null;
  /** The node's own word. */
  readonly canary: string;
  /** From the request to the verified answer. */
  readonly latency_ms: number | null;
  readonly received: readonly Received[];
}

export interface ProbeOptions {
  readonly verify: VerifyOptions;
  readonly timeout_ms: number;
  /** null: the node names none. @throws {UsageError} for one that cannot be read. */
  readonly findRelease: (node: Node) => Promise<ReleaseOptions | null>;
  readonly findReferences: (verified: Verified) => Promise<readonly string[] | null>;
}

/** Of an answer to a short question, its attestation included, and of a session or a bundle. */
const MAX_BYTES: Readonly<Record<Received['kind'], number>> = {
  answers: 1024 * 1024,
  bundles: 2 * 1024 * 1024,
  sessions: 2 * 1024 * 1024,
};
const MAX_HEALTH_BYTES = 64 * 1024;
/** Of an answer or a session that does not verify: what is kept of a liar is little. */
const MAX_KEPT_BYTES = 256 * 1024;
const MAX_ATTEMPTS = 3;
const WAIT_MS = 2_000;
const CANARY = ['off', 'pending', 'good', 'wrong', 'unavailable'];
/** Ordinary questions: the watcher is nobody special. */
const QUESTIONS = [
  'What is a good name for a small grey cat?',
  'Which is longer, a mile or a kilometre?',
  'Give me a word that rhymes with bread.',
  'How do I say thank you in Spanish?',
  'What can I cook with rice and eggs?',
  'Name a river in South America.',
  'Why is the sky blue? One sentence.',
  'What is seventeen times three?',
];

/** Ends a probe. */
class Stopped extends Error {
  readonly outcome: Exclude<Outcome, 'proven'>;
  readonly code: string;
  constructor(outcome: Exclude<Outcome, 'proven'>, code: string, reason: string) {
    super(reason);
    this.outcome = outcome;
    this.code = code;
  }
}

/** Never throws for what a node does. @param signal ends it early */
export async function probe(node: Node, options: ProbeOptions, signal: AbortSignal): Promise<Probed> {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(options.timeout_ms)]);
  const seen: { -readonly [Name in keyof Probed]: Probed[Name] } = {
    ...{ outcome: 'proven', code: null, reason: null, level: null, sealed: false, devices: null, drivers: [] },
    ...{
      launch: null,
      release: null,
      weights: null,
      ends: null,
      drivers_unknown: null,
      canary: 'unknown',
      latency_ms: null,
      received: [],
    },
  };
  const received: Received[] = [];
  try {
    const verify = await verifyOptionsOf(node, options, deadline);
    const visit = { node, verify, send: bounded(deadline), received, signal: deadline };
    const session = await sessionOf(visit);
    const verified = await answerOf(visit, session, seen);
    seen.level = verified.level;
    seen.devices = await devicesOf(verified);
    seen.drivers = [...new Set(verified.claims.devices.map(({ driver }) => driver).filter((one) => one !== null))];
    const { software } = verified.claims.cpu ?? {};
    seen.launch = software?.launch ?? null;
    seen.weights = software?.model ?? null;
    const { release } = verified.claims;
    seen.release = release === undefined ? null : { tag: release.tag, current: release.status?.current ?? null };
    seen.ends = await endsOf(verified, verify);
    seen.drivers_unknown = await options.findReferences(verified);
    seen.canary = await canaryOf(visit);
  } catch (error) {
    const { outcome, code, message } = stoppedBy(error, deadline);
    Object.assign(seen, { outcome, code, reason: message });
  }
  const kept = received.filter(({ bytes }) => seen.outcome === 'proven' || bytes.length <= MAX_KEPT_BYTES);
  // A node that sends the key back would have the watch publish it.
  const { apiKey } = node;
  if (apiKey !== null && kept.some(({ bytes }) => Buffer.from(bytes).includes(apiKey)))
    return { ...seen, outcome: 'failed', code: 'key_echoed', reason: ECHOED };
  return { ...seen, received: kept };
}

const ECHOED = 'The node sent the API key back in what it signed, so nothing of it is kept: give the watch a new key.';

interface Visit {
  readonly node: Node;
  readonly verify: VerifyOptions;
  readonly send: typeof fetch;
  /** Grows with each document that came. */
  readonly received: Received[];
  readonly signal: AbortSignal;
}

/** @throws {Stopped} @throws what `deadline` was aborted with */
async function verifyOptionsOf(node: Node, { verify, findRelease }: ProbeOptions, deadline: AbortSignal) {
  const { reference, weights } = node;
  const own = { ...(reference === null ? {} : { reference }), ...(weights === null ? {} : { weights }) };
  const release = await Promise.race([findRelease(node), endOf(deadline)]).catch((error) => {
    throw error instanceof UsageError || error instanceof SyntaxError
      ? new Stopped('failed', 'release_malformed', sentenceOf('release_malformed'))
      : error;
  });
  return { ...verify, cpu: { ...verify.cpu, ...own }, ...(release === null ? {} : { release }) };
}

const endOf = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });

/** Follows nothing, so that the key goes nowhere else. */
function bounded(signal: AbortSignal): typeof fetch {
  return async (input, init) => {
    const signals = init?.signal == null ? [signal] : [signal, init.signal];
    const asked = fetch(input, { ...init, redirect: 'manual', signal: AbortSignal.any(signals) });
    const response = await asked.catch((cause) => {
      throw signal.aborted ? cause : new Stopped('away', 'unreachable', 'The node cannot be reached.');
    });
    if (response.status < 300 || response.status > 399) return response;
    await response.body?.cancel();
    throw new Stopped(
      'failed',
      'redirected',
      'The node sends its clients to another address, where the watch does not go.',
    );
  };
}

/** @throws {Stopped} */
async function bytesOf(response: Response, max_bytes: number): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return Uint8Array.from(await readLimited(response, max_bytes));
  } catch (error) {
    if (error instanceof BodyTooLarge)
      throw new Stopped('failed', 'response_too_large', 'The node sends more than any answer to this question has.');
    throw new Stopped('away', 'response_broken', 'The answer broke off before its end.');
  }
}

/** An error that the node answers with says nothing about its proofs. */
async function refusedBy(response: Response): Promise<Stopped> {
  await response.body?.cancel();
  const { status } = response;
  const refused = status === 401 || status === 403;
  const reason = refused
    ? `The node does not accept the watch's API key (status ${status}).`
    : `The node answers with an error (status ${status}).`;
  return new Stopped('away', refused ? 'key_refused' : `http_${status}`, reason);
}

const headersOf = ({ apiKey }: Node): Record<string, string> =>
  apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };

interface Session {
  readonly text: string;
  /** Whether it names a key to seal to. */
  readonly seals: boolean;
}

/** null: the node has no processor that signs. @throws {Stopped} */
async function sessionOf({ node, verify, send, received }: Visit): Promise<Session | null> {
  const challenge = randomBytes(32).toString('hex');
  const url = `${node.url}/v1/attestation/session?challenge=${challenge}`;
  let response = await send(url, { headers: headersOf(node) });
  for (let attempt = 1; response.status === 503 && attempt < MAX_ATTEMPTS; attempt++) {
    await response.body?.cancel();
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    response = await send(url, { headers: headersOf(node) });
  }
  if (response.status === 404) {
    await response.body?.cancel();
    return null;
  }
  if (response.status !== 200) throw await refusedBy(response);
  const bytes = await bytesOf(response, MAX_BYTES.sessions);
  received.push({ kind: 'sessions', bytes });
  const text = new TextDecoder().decode(bytes);
  const report = await appraiseSession(text, { ...verify, policy: {}, expected: { challenge } });
  if (report.session === null) throw refusalIn(report);
  return { text, seals: report.session.hpke !== null };
}

function refusalIn({ checks, incomplete }: Pick<VerificationReport, 'checks' | 'incomplete'>): Stopped {
  const code = checks.find(({ status }) => status === 'fail')?.code ?? 'form';
  return new Stopped(incomplete ? 'unchecked' : 'failed', code, sentenceOf(code));
}

/** Where the verifier's own words are to somebody who holds a file. */
const OWN: Readonly<Partial<Record<FailureCode, string>>> = {
  request_mismatch: 'another question was signed than was asked',
  response_mismatch: 'another answer was signed than the one that came',
  simulated_root_refused: 'the device is simulated, and the watch accepts no simulation',
  bundle_unavailable: 'the node did not serve what its proof names',
  software_mismatch: 'it runs software that is not on the list',
};

const sentenceOf = (code: string): string => {
  const known = OWN[code as FailureCode] ?? SENTENCES[code as FailureCode] ?? 'the proof does not verify';
  return `${known.charAt(0).toUpperCase()}${known.slice(1)}.`;
};

/** @throws {Error} for an answer that is not proven. */
async function answerOf(
  { node, verify, send, received, signal }: Visit,
  session: Session | null,
  seen: { sealed: boolean; latency_ms: number | null },
): Promise<Verified> {
  seen.sealed = session?.seals === true;
  const result: { refusal: Error | null; verified: Verified | null } = { refusal: null, verified: null };
  const onRefused = (error: Error) => {
    result.refusal = error;
  };
  const policy = { minLevel: 'none' } as const;
  const carrier =
    session?.seals === true
      ? // The session has had its challenge.
        sealedFetch({
          ...verify,
          url: node.url,
          policy,
          fetch: serving(session.text, send),
          challenge: false,
          onRefused,
        })
      : send;
  const proving = verifyingFetch({
    ...verify,
    policy,
    compact: true,
    max_stream_bytes: MAX_BYTES.answers,
    fetch: keeping(carrier, received),
    onVerified: (one) => {
      result.verified = one;
    },
    onUnproven: onRefused,
  });
  const began_ms = performance.now();
  const response = await proving(`${node.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...headersOf(node), 'content-type': 'application/json' },
    body: bodyFor(node),
    signal,
  });
  seen.latency_ms = Math.round(performance.now() - began_ms);
  if (result.refusal !== null) throw result.refusal;
  if (result.verified === null) throw await refusedBy(response);
  await response.body?.cancel();
  return result.verified;
}

function bodyFor({ model }: Node): string {
  const content = QUESTIONS[randomBytes(1).readUInt8() % QUESTIONS.length];
  return JSON.stringify({ model, messages: [{ role: 'user', content }], max_tokens: 32 });
}

/** The session that was verified is the one to seal to. */
const serving =
  (session: string, send: typeof fetch): typeof fetch =>
  async (input, init) =>
    new URL(String(input)).pathname.endsWith('/v1/attestation/session') ? new Response(session) : send(input, init);

/** Keeps each answer and bundle as it came. */
const keeping =
  (send: typeof fetch, received: Received[]): typeof fetch =>
  async (input, init) => {
    const response = await send(input, init);
    if (response.status !== 200 || mediaType(response) !== 'application/json') return response;
    const kind = new URL(String(input)).pathname.includes('/attestation/bundles/') ? 'bundles' : 'answers';
    const bytes = await bytesOf(response, MAX_BYTES[kind]);
    received.push({ kind, bytes });
    return new Response(bytes, { headers: { 'content-type': 'application/json' } });
  };

/** The canary's state, by the node's own word: a node may say what it likes. */
async function canaryOf({ node: { url }, send }: Visit): Promise<string> {
  try {
    const bytes = await bytesOf(await send(`${url}/health`), MAX_HEALTH_BYTES);
    const { backend } = JSON.parse(new TextDecoder().decode(bytes)) as { backend?: { canary?: { state?: unknown } } };
    return CANARY.find((state) => state === backend?.canary?.state) ?? 'unknown';
  } catch {
    return 'unknown';
  }
}

/** No message is taken over but those of errors whose words are ours: others may quote what a node wrote. */
function stoppedBy(error: unknown, deadline: AbortSignal): Stopped {
  const { cause } = error as Error;
  const own = [error, cause].find((one) => one instanceof Stopped);
  if (own?.outcome === 'failed') return own;
  if (cause instanceof VerificationError) return refusalIn(cause);
  if (deadline.aborted) return new Stopped('away', 'timeout', 'The node did not answer in time.');
  if (own !== undefined) return own;
  if (error instanceof SealedFetchError && error.status !== null)
    return new Stopped('away', error.code, `The node answers with an error (status ${error.status}).`);
  if (error instanceof UnprovenAnswerError || error instanceof SealedFetchError)
    return new Stopped(error.code === 'response_broken' ? 'away' : 'failed', error.code, error.message);
  return new Stopped('failed', 'watch_failed', 'The watch itself could not read this answer: please report it.');
}
