// The session of an attestation, which binds a processor's evidence to the devices that signed beside it, and both to one response.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { type Launch, MAX_LAUNCH_CHARACTERS, readLaunch } from '../../proto/attestation/launch.ts';
import {
  answerMessage,
  evidenceMessage,
  readStatement,
  type Statement,
  sessionMessage,
} from '../../proto/attestation/statement.ts';
import { isObject, JsonTextError } from '../../proto/json.ts';
import { digest, EncodingError, fromBase64, fromHex, isDigest, sha256Once, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure, type CheckList, type Passed, passed, seen, skipped } from '../common/checks.ts';
import { once } from '../common/lru.ts';
import { inputOf, parseChain, parseEvidence } from '../gpu/device-evidence.ts';
import type { Certificate } from '../x509/certificate.ts';
import { ecdsaVerifyRaw } from '../x509/public-key.ts';
import { parseCpu } from './cpu-member.ts';
import type { CpuClaims, CpuContext, ReleasedCpuOptions, VerifiedSession } from './cpu-options.ts';
import { type CpuWords, NO_WORDS, wordsOf } from './cpu-words.ts';
import { type CpuEvidence, checkCpuEvidence, readCpuEvidence, readCpuOptions, skipCpuEvidence } from './verify-cpu.ts';
import { checkWeights } from './weights.ts';

/** A session that the caller has verified. */
type HeldSession = Omit<VerifiedSession, 'hpke'>;

/** The response whose session is checked; for a session by itself, two members are null. */
interface Answer {
  /** SHA-256 of raw in hex, also where a batch has another nonce; null for a session by itself. */
  readonly rawHash: string | null;
  /** Unix seconds, in raw. */
  readonly timestamp: number | null;
  /** The session that raw names, in hex. */
  readonly session?: string | undefined;
  readonly evidence: readonly Evidence[];
}

/** The signed statement and what it is bound to. Not yet trusted. */
interface Session {
  readonly statement: Statement;
  /** SHA-256 of the statement's text. */
  readonly digest: Uint8Array;
  /** Digest of the GPU evidence over the statement; null in the short form. */
  readonly gpu: Uint8Array | null;
  /** The signature over one response; null in a session by itself. */
  readonly signature: Uint8Array | null;
  /** The launch file that the statement names; null where it is not included. */
  readonly launch: Launch | null;
}

/** The member `cpu`, read. */
export interface CpuForm {
  readonly session: Session;
  /** null in the short form: the caller has verified it before. */
  readonly evidence: CpuEvidence | null;
}

interface SessionExpected {
  /** The session that the caller holds. */
  readonly session: HeldSession | null;
  /** The challenge that the statement must hold; undefined: any. */
  readonly challenge: string | undefined;
  /** The caller's clock, for a session by itself; null: only the time in raw counts. */
  readonly at: Date | null;
}

const sha256 = (bytes: Uint8Array) => digest('SHA-256', bytes);

const SIGNATURE_BYTES = 64;

const bad = (message: string, cause?: unknown) => new CheckFailure('cpu_malformed', message, { cause });

/** What the checks of the member `cpu` found. */
export interface CpuFindings {
  /** null where they cannot be read. */
  readonly claims: CpuClaims | null;
  readonly words: CpuWords;
}

/**
 * Runs every check of an attestation's member `cpu`; none where there is no such member and the caller expects none.
 * @throws {TypeError} for options that cannot be used.
 */
export async function checkAnswerCpu(
  list: CheckList,
  member: object | undefined,
  answer: Answer,
  expected: Pick<SessionExpected, 'session' | 'challenge'>,
  options: ReleasedCpuOptions,
): Promise<CpuFindings> {
  const { context } = readCpuOptions(options);
  const { session, challenge } = expected;
  if (member === undefined && session === null && challenge === undefined) {
    if (context.weights !== null)
      await list.run('cpu_weights', ['form', 'bundle'], () => checkWeights(context.weights, null));
    return { claims: null, words: NO_WORDS };
  }
  const form = await list.run('cpu_form', ['form', 'bundle'], () => readAnswerCpu(member, session));
  return checkCpu(list, form, answer, { session, challenge, at: null }, context);
}

/**
 * Runs every check of the member `cpu` but that of its form.
 * @param form null: cpu_form failed.
 */
export async function checkCpu(
  list: CheckList,
  form: CpuForm | null,
  answer: Answer,
  expected: SessionExpected,
  context: CpuContext,
): Promise<CpuFindings> {
  const claims = attributed(await checkBound(list, form, answer.timestamp, expected, context), context, list);
  // Both checks run only where the form was read: `form` is not null in them.
  const session = form?.session as Session;
  await list.run('cpu_devices', ['cpu_binding', 'report_form'], () => checkDevices(session, answer.evidence));
  const answered = answer.rawHash !== null;
  if (answered)
    await list.run('cpu_answer', ['cpu_binding', 'report_form', 'raw_hash', 'raw_members'], async () => {
      const signed = await checkSignature(session, answer);
      return isNamed(session, answer) ? signed : skipped('raw names no session, so no GPU signed for this one');
    });
  const bound = isBound(list, answered) ? claims : null;
  await list.run('cpu_weights', ['cpu_software', 'cpu_devices', ...(answered ? (['cpu_answer'] as const) : [])], () =>
    checkWeights(context.weights, bound?.software ?? null),
  );
  const { ownRoots, release } = context;
  const challenged = expected.challenge !== undefined;
  return {
    claims,
    words: bound === null ? NO_WORDS : wordsOf(list, bound, { answered, ownRoots, challenged, release }),
  };
}

/** Where the guest was compared with a release's list just now, its software names the release. */
function attributed(claims: CpuClaims | null, { release }: CpuContext, list: CheckList): CpuClaims | null {
  if (release === null || claims?.software == null || !list.passed('cpu_measurement')) return claims;
  return { ...claims, software: { ...claims.software, release: release.statement_sha256 } };
}

/** Whether a processor's evidence is bound to the devices, and to the response where there is one. */
const isBound = (list: CheckList, answered: boolean) =>
  list.passed('cpu_binding') && list.passed('cpu_devices') && (!answered || list.passed('cpu_answer'));

/** Whether raw, which the GPU signed, names this session. @throws {CheckFailure} session_mismatch: it names another. */
function isNamed({ digest: ofStatement }: Session, { session }: Answer): boolean {
  if (session !== undefined && session !== toHex(ofStatement))
    throw new CheckFailure('session_mismatch', 'raw, which the GPU signed, names another session than cpu shows');
  return session !== undefined;
}

async function checkBound(
  list: CheckList,
  form: CpuForm | null,
  timestamp: number | null,
  expected: SessionExpected,
  context: CpuContext,
): Promise<CpuClaims | null> {
  if (form === null) return checkCpuEvidence(list, null, context, null);
  const { session, evidence } = form;
  const also = () => checkExpected(session.statement, timestamp, expected);
  if (evidence !== null && session.gpu !== null) {
    const reportData = await sha256(sessionMessage(session.digest, session.gpu));
    const source = "the digest of this session's statement and GPU evidence";
    const launch = { sha256: session.statement.launch, file: session.launch };
    return checkCpuEvidence(list, evidence, context, { reportData, source, also, launch });
  }
  await skipCpuEvidence(list, 'the caller verified this session before');
  await list.run('cpu_binding', ['cpu_form'], () => seen(`the session that the caller verified before; ${also()}`));
  return expected.session?.cpu ?? null;
}

/** @param gpu the evidence over the statement. @throws {CheckFailure} cpu_malformed, cpu_unsupported, evidence_malformed */
export async function readSession(member: unknown, gpu: readonly Evidence[]): Promise<Passed<CpuForm>> {
  const value = recordOf(member);
  if (value.signature !== undefined) throw bad('a session by itself is about no answer, and has no signature');
  const { detail, value: evidence } = readCpuEvidence(value);
  const gpuDigest = await digestOf(gpu);
  const { gpu_sha256: stated = toHex(gpuDigest) } = value;
  if (stated !== toHex(gpuDigest)) throw bad('gpu_sha256 is not the digest of the evidence beside it');
  return passed(`a session with ${detail}`, { session: await sessionOf(value, gpuDigest, null), evidence });
}

/**
 * Reads the member `cpu` of a response, whole or in its short form.
 * @param held the session that the caller expects.
 * @throws {CheckFailure} cpu_missing, cpu_malformed, cpu_unsupported
 */
export async function readAnswerCpu(member: unknown, held: HeldSession | null): Promise<Passed<CpuForm>> {
  if (member === undefined)
    throw new CheckFailure('cpu_missing', "the caller expects a session, and there is no processor's evidence");
  const value = recordOf(member);
  if (value.statement_sha256 !== undefined) return readShort(value, held);
  const { gpu_sha256 } = value;
  if (!isDigest(gpu_sha256)) throw bad('gpu_sha256 is not 64 lowercase hex digits');
  if (value.gpu !== undefined) throw bad('the evidence over the statement travels with a session by itself');
  const { detail, value: evidence } = readCpuEvidence(value);
  const session = await sessionOf(value, fromHex(gpu_sha256), signatureOf(value.signature));
  return passed(detail, { session, evidence });
}

async function readShort(
  { statement_sha256, signature, ...more }: Readonly<Record<string, unknown>>,
  held: HeldSession | null,
): Promise<Passed<CpuForm>> {
  if (Object.keys(more).length > 0) throw bad('the short form has two members: statement_sha256 and signature');
  if (held === null)
    throw new CheckFailure('cpu_missing', 'the short form names a session, and the caller holds no verified one');
  const session = { ...(await readHeld(held.statement)), signature: signatureOf(signature) };
  if (statement_sha256 !== toHex(session.digest))
    throw new CheckFailure('cpu_missing', 'the short form names another session than the one that the caller holds');
  return passed('the short form, of the session that the caller verified before', { session, evidence: null });
}

/** A statement that was verified before. @throws {CheckFailure} cpu_malformed */
export async function readHeld(text: string): Promise<Session> {
  return { statement: parsed(text), digest: await sha256(utf8(text)), gpu: null, signature: null, launch: null };
}

function recordOf(member: unknown): Readonly<Record<string, unknown>> {
  const value = typeof member === 'string' ? parseCpu(member) : member;
  if (!isObject(value)) throw bad('the evidence is not an object');
  return { ...value };
}

async function sessionOf(
  { statement: text, launch }: Readonly<Record<string, unknown>>,
  gpu: Uint8Array,
  signature: Uint8Array | null,
): Promise<Session> {
  if (typeof text !== 'string') throw bad('the statement is not a string');
  const statement = parsed(text);
  return {
    statement,
    digest: await sha256(utf8(text)),
    gpu,
    signature,
    launch: await launchOf(statement, launch),
  };
}

function parsed(text: string): Statement {
  try {
    return readStatement(text);
  } catch (cause) {
    return malformed(cause);
  }
}

/** @throws {CheckFailure} cpu_malformed, for a {@link JsonTextError} */
function malformed(cause: unknown): never {
  throw cause instanceof JsonTextError ? bad(cause.message, cause) : cause;
}

/** The launch file itself must be the one that the statement names, in the form that `npm run launch` writes. */
async function launchOf({ launch: named }: Statement, launch: unknown): Promise<Launch | null> {
  if (launch === undefined) return null;
  if (typeof launch !== 'string' || launch.length > MAX_LAUNCH_CHARACTERS || !launch.isWellFormed())
    throw bad(`launch is not a text of at most ${MAX_LAUNCH_CHARACTERS} characters`);
  if (toHex(await sha256(utf8(launch))) !== named) throw bad('launch is not the file that the statement names');
  return readLaunch(launch).catch(malformed);
}

/** @throws {CheckFailure} cpu_malformed */
export function signatureOf(value: unknown): Uint8Array {
  try {
    const signature = fromBase64(typeof value === 'string' ? value.slice(0, 2 * SIGNATURE_BYTES) : '');
    if (signature.length === SIGNATURE_BYTES) return signature;
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
  }
  throw bad(`signature is not base64 of ${SIGNATURE_BYTES} bytes`);
}

/** A bundle's evidence is the same object for each attestation that names the bundle. */
const digestOf = once((evidence: readonly Evidence[]): Promise<Uint8Array> => {
  const devices = evidence.map(({ report, certificate_chain: chain }) => ({
    report: decoded(report),
    chain: decoded(chain),
  }));
  return sha256(evidenceMessage(devices));
});

function decoded(text: string): Uint8Array {
  try {
    return fromBase64(text);
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('evidence_malformed', 'evidence is not base64', { cause });
  }
}

/** @returns words for the check's detail. @throws {CheckFailure} session_mismatch, cpu_binding_mismatch, session_expired */
function checkExpected(statement: Statement, timestamp: number | null, expected: SessionExpected): string {
  const { challenge, at, session: held } = expected;
  // A session with a challenge has the same key as the one in which responses are signed.
  if (held !== null && readStatement(held.statement).key !== statement.key)
    throw new CheckFailure('session_mismatch', 'another session signed than the one that the caller expects');
  if (challenge !== undefined && statement.challenge !== challenge.toLowerCase())
    throw new CheckFailure('cpu_binding_mismatch', 'the statement does not hold the challenge that is expected');
  for (const seconds of [timestamp, at === null ? null : Math.floor(at.getTime() / 1000)])
    if (seconds !== null) checkWindow(statement, seconds);
  return `within the session's ${Math.round((statement.not_after - statement.not_before) / 60)} minutes`;
}

/** @throws {CheckFailure} session_expired */
function checkWindow({ not_before, not_after }: Statement, seconds: number): void {
  if (seconds < not_before)
    throw new CheckFailure('session_expired', `the session began ${not_before - seconds} seconds later`);
  if (seconds > not_after)
    throw new CheckFailure('session_expired', `the session had ended ${seconds - not_after} seconds before`);
}

/** @throws {CheckFailure} cpu_devices_mismatch */
export async function checkDevices({ statement }: Session, evidence: readonly Evidence[]) {
  if (evidence.length === 0)
    throw new CheckFailure('cpu_devices_mismatch', "there is no evidence whose devices could be the session's");
  for (const [index, one] of evidence.entries()) {
    const key = await keyOf(parseEvidence(inputOf(one)).chain);
    if (key === null || !statement.devices.includes(key))
      throw new CheckFailure('cpu_devices_mismatch', `device ${index} is not one of the session's`);
  }
  return seen(`${evidence.length === 1 ? 'the device is' : `all ${evidence.length} devices are`} of the session`);
}

async function keyOf(chain: readonly Certificate[]): Promise<string | null> {
  const brom = chain[1];
  return brom === undefined ? null : sha256Once(brom.spki);
}

/**
 * SHA-256 in hex of the key in a device's second certificate, its boot ROM's; null for a chain without one.
 * @param chain `certificate_chain`: base64 of PEM. @throws {CheckFailure} evidence_malformed
 */
export const bootRomKey = (chain: string): Promise<string | null> => keyOf(parseChain(chain));

/** @throws {CheckFailure} answer_signature_invalid */
export async function checkSignature(
  { statement, digest: ofStatement, signature }: Session,
  { rawHash, evidence }: Answer,
) {
  const message = answerMessage(ofStatement, fromHex(rawHash ?? ''), await digestOf(evidence));
  const spki = keyBytes(statement.key);
  const key = { spki: spki ?? new Uint8Array(), curve: 'P-256' } as const;
  if (spki === null || signature === null || !(await ecdsaVerifyRaw(key, 'SHA-256', signature, message)))
    throw new CheckFailure('answer_signature_invalid', "the session's key did not sign this raw with this evidence");
  return seen("the session's key signed this raw with this evidence");
}

/** null: the statement's key is not valid base64. */
function keyBytes(key: string): Uint8Array | null {
  try {
    return fromBase64(key);
  } catch (error) {
    if (!(error instanceof EncodingError)) throw error;
    return null;
  }
}
