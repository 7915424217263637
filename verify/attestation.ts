// Verifies an attestation: the ordered list of checks, top to bottom.
import type { Attestation } from '../proto/attestation/attestation.ts';
import { CHAT_ENDPOINT, type RawParts, splitRaw } from '../proto/attestation/raw.ts';
import { duplicateMember, JsonTextError } from '../proto/json.ts';
import { checkBatch } from './binding/batch.ts';
import { checkBundle } from './binding/bundle.ts';
import { attestationOf, compareExchange } from './binding/exchange.ts';
import { type Input, readInput } from './binding/input.ts';
import { digest, toHex, utf8 } from './common/bytes.ts';
import {
  CheckFailure,
  CheckList,
  type CheckName,
  type Outcome,
  passed,
  seen,
  skipped,
  VerificationError,
} from './common/checks.ts';
import { LruMap, once } from './common/lru.ts';
import { requireWebCrypto } from './common/webcrypto.ts';
import type { CpuFindings } from './cpu/binding.ts';
import { inputOf } from './gpu/device-evidence.ts';
import { OF_DEVICES, verifyDevices } from './gpu/devices.ts';
import type { DeviceClaims, VerifiedDevice } from './gpu/topology.ts';
import {
  type Context,
  cpuOptionsOf,
  type Expected,
  readOptions,
  refuseUnknownOptions,
  type TokenClaims,
  type VerificationReport,
  type Verified,
  type VerifyOptions,
} from './policy/options.ts';
import { checkPolicy, concluded, type Findings } from './policy/verdict.ts';
import type { VerifiedRelease } from './release/check.ts';
import { checkTokenDigests } from './token/digests.ts';
import { verifyTokenSignature } from './token/signature.ts';
import { type ParsedToken, parseToken, type TokenDevice } from './token/token.ts';

/**
 * Verifies that a GPU signed exactly this request and this response.
 *
 * ```ts
 * const collateral = createCollateral({ fetch: globalThis.fetch });
 * const { claims, exchange } = await verifyAttestation(responseText, { collateral, expected: { request: body } });
 * ```
 * @param input an attestation, or a response that carries one: as JSON text (a JSON string of it, too) or parsed. Text is
 * better: the bytes of a response can be compared only where they are given. Or the bytes of an event stream that carries one,
 * which are then compared as `expected.transcript` is.
 * @returns the verified report. `exchange` holds the signed texts, which nothing else returns.
 * @throws {VerificationError} with the code of the first check that failed and the whole list.
 * @throws {TypeError} for options that cannot be used. @throws {UnsupportedSystemError} where WebCrypto lacks what is needed.
 */
export async function verifyAttestation(input: unknown, options: VerifyOptions = {}): Promise<Verified> {
  const { report, raw, attestation } = await runChecks(input, readOptions(options));
  if (!report.valid || raw === null || attestation === null) throw new VerificationError(report.checks);
  const exchange = {
    endpoint: raw.endpoint ?? CHAT_ENDPOINT,
    request: raw.request,
    response: raw.response,
    stream: raw.stream ?? null,
    timestamp: raw.timestamp,
  };
  return { ...report, valid: true, exchange, attestation };
}

/** As {@link verifyAttestation}, but returns failed checks in the report, and never the signed texts. */
export async function appraiseAttestation(input: unknown, options: VerifyOptions = {}): Promise<VerificationReport> {
  return (await runChecks(input, readOptions(options))).report;
}

/** One of many inputs, by its place among them. */
export interface Appraised {
  readonly index: number;
  readonly report: VerificationReport;
}

/**
 * Appraises one input after the other, in their order, and takes the next when the caller asks for it: memory does not grow with their
 * number. Collateral, bundles and what was computed of them are shared.
 *
 * ```ts
 * const options = { collateral: createCollateral({ fetch }), bundles: createBundles({ load }) };
 * for await (const { index, report } of verifyMany(attestations, options)) if (!report.valid) console.log(index, report.checks);
 * ```
 * @throws {TypeError} as `verifyAttestation`
 */
export async function* verifyMany(
  inputs: Iterable<unknown> | AsyncIterable<unknown>,
  options: VerifyOptions = {},
): AsyncGenerator<Appraised, void, undefined> {
  let index = 0;
  for await (const input of inputs) yield { index: index++, report: await appraiseAttestation(input, options) };
}

interface Run {
  readonly report: VerificationReport;
  readonly raw: RawParts | null;
  readonly attestation: Attestation | null;
}

async function runChecks(input: unknown, context: Context): Promise<Run> {
  refuseUnknownOptions(context.options);
  await requireWebCrypto();
  const { limits, stopAtFailure } = context.options;
  const expected: Expected = {
    ...context.options.expected,
    ...(input instanceof Uint8Array ? { transcript: input } : {}),
  };
  const list = new CheckList(stopAtFailure);
  const given = await list.run('form', [], () => checkForm(input, expected.event, limits));
  const compact = given?.bundle == null ? null : { attestation: given.attestation, sha256: given.bundle };
  const expanded =
    compact === null
      ? null
      : await list.run('bundle', ['form'], () => checkBundle(compact, context.options.bundles, limits));
  const attestation = expanded ?? given?.attestation ?? EMPTY;

  const hashed = await list.run('raw_hash', ['form'], () => checkHash(attestation, expected.nonce));
  const raw = await list.run('raw_members', ['form'], () => checkMembers(attestation));
  // It runs only where raw_members passed: `raw` is not null in it.
  await list.run('expected_exchange', ['raw_members'], () =>
    compareExchange(attestation, raw as RawParts, expected, given?.carrier ?? null),
  );

  const token = await list.run('token_shape', FORM, () => checkShape(attestation));
  // They run only where token_shape passed: `token` is not null in them.
  const ofToken = <T>(name: CheckName, check: (token: ParsedToken) => Outcome<T> | Promise<Outcome<T>>) =>
    list.run(name, ['token_shape'], () => check(token as ParsedToken));
  await ofToken('token_nonce', (parsed) => checkTokenNonce(parsed, attestation.nonce));
  await ofToken('token_result', checkTokenResult);
  await ofToken('token_digests', async (parsed) => seen((await checkTokenDigests(parsed)).detail));
  const signer = await ofToken('token_signature', (parsed) => checkTokenSignature(parsed, context));
  const claims: TokenClaims | null =
    token === null ? null : { kind: token.kind, issuer: token.issuer, signature: signer ?? selfAsserted(list) };

  const devices = await checkEvidence(list, attestation, token, claims, context);
  await list.run('token_report_match', ['token_shape', 'report_form', 'report_signature', 'report_chain'], () =>
    token === null || attestation.evidence === undefined
      ? skipped('there is no report beside the token')
      : compareTokenWithReports(
          token,
          devices.map((device) => device.claims),
        ),
  );
  const timestamp = raw?.timestamp ?? null;
  const release = await checkRelease(list, timestamp, context);
  const findings: Findings = {
    list,
    devices,
    token: claims,
    appraised: appraisedKinds(list, token, claims),
    nonce: given === null ? null : attestation.nonce,
    batch: hashed?.batch ?? null,
    timestamp,
    cpu: await checkProcessor(list, attestation, hashed?.rawHash ?? '', raw, context, release),
    release: release?.claims ?? null,
    about: 'exchange',
    nvidia: context.nvidia,
    namesSession: raw?.session !== undefined,
  };
  await list.run('policy', [...FORM, 'raw_members'], () => checkPolicy(findings, context));
  return { report: concluded(findings), raw, attestation: given === null ? null : attestation };
}

/**
 * Runs the checks of the member `cpu`; none where there is no such member and the caller expects none. They are a third of the verifier's
 * code, so they are loaded when an attestation or the caller's options need them.
 */
async function checkProcessor(
  list: CheckList,
  { cpu, evidence = [] }: Attestation,
  rawHash: string,
  raw: RawParts | null,
  context: Context,
  release: VerifiedRelease | null,
): Promise<CpuFindings | null> {
  const { cpu: ofCpu, session, expected } = context.options;
  if ([cpu, ofCpu, session, expected?.challenge].every((one) => one === undefined)) return null;
  const { checkAnswerCpu } = await import('./cpu/binding.ts');
  const answer = { rawHash, timestamp: raw?.timestamp ?? null, session: raw?.session, evidence };
  return checkAnswerCpu(
    list,
    cpu,
    answer,
    { session: session ?? null, challenge: expected?.challenge },
    cpuOptionsOf(context, release),
  );
}

/** Loaded where the caller names a release. @returns null: none is named, or its check failed. */
async function checkRelease(list: CheckList, timestamp: number | null, { options, at }: Context) {
  if (options.release === undefined) return null;
  const { checkRelease: check } = await import('./release/check.ts');
  return check(list, options.release, { at, answered: timestamp === null ? at : new Date(timestamp * 1000) });
}

/** A compact attestation is read with its bundle. */
const FORM: readonly CheckName[] = ['form', 'bundle'];

/** Stands in for an attestation that could not be read, so that the checks after it can be named in the list. */
const EMPTY: Attestation = { raw: '', nonce: '', token: '' };

function checkForm(input: unknown, event: boolean | undefined, limits: VerifyOptions['limits']) {
  if (input instanceof Uint8Array)
    return passed('an event stream that carries an attestation', readInput(attestationOf(input, limits), limits));
  const given: Input = readInput(input, limits, event);
  return passed(given.carrier === null ? 'an attestation' : 'a response that carries an attestation', given);
}

async function checkHash({ raw, nonce, batch: member }: Attestation, expected: string | undefined) {
  // UTF-8 has no lone surrogates: an encoder puts U+FFFD in their place, and the hash would be that of another text.
  if (!raw.isWellFormed())
    throw new CheckFailure(
      'raw_hash_mismatch',
      'raw has a lone surrogate, so it is no text that could have been hashed',
    );
  const rawHash = toHex(await digest('SHA-256', utf8(raw)));
  const batch = member === undefined ? null : await checkBatch(member, rawHash, nonce);
  if (batch === null && rawHash !== nonce)
    throw new CheckFailure('raw_hash_mismatch', 'nonce is not the SHA-256 of raw');
  if (expected !== undefined && expected.toLowerCase() !== nonce)
    throw new CheckFailure('raw_hash_mismatch', 'nonce is not the one that is expected');
  const detail =
    batch === null
      ? 'nonce is the SHA-256 of raw'
      : `nonce commits to raw as leaf ${batch.leaf_index} of ${batch.tree_size}`;
  return passed(detail, { rawHash, batch });
}

function checkMembers({ raw }: Attestation) {
  try {
    const parts = splitRaw(raw);
    // Parsers differ in which of the two they take, so nobody could say what was signed. A request is the caller's own.
    if (duplicateMember(parts.response) !== null) throw new JsonTextError('the response in raw names a member twice');
    return passed(`request, response${parts.stream ? ', stream' : ''} and timestamp`, parts);
  } catch (cause) {
    if (!(cause instanceof JsonTextError)) throw cause;
    throw new CheckFailure('raw_malformed', cause.message, { cause });
  }
}

/** A bundle's evidence is the same object for each attestation that names the bundle, and stands for the token beside it. */
const parsedTokens = once((_evidence: object) => new LruMap<string, ParsedToken>(1));

function checkShape({ token, evidence }: Attestation) {
  const known = parsedTokens(evidence ?? {});
  const parsed = known.get(token) ?? parseToken(token);
  known.set(token, parsed);
  const count = parsed.devices.length;
  return passed(`${parsed.kind}, about ${count} ${count === 1 ? 'device' : 'devices'}`, parsed);
}

function checkTokenNonce({ nonces }: ParsedToken, nonce: string) {
  if (nonces.length === 0 || nonces.some((one) => one.toLowerCase() !== nonce))
    throw new CheckFailure('token_nonce_mismatch', 'a part of the token is about another nonce');
  return seen(`eat_nonce in ${nonces.length} ${nonces.length === 1 ? 'part' : 'parts'}`);
}

function checkTokenResult({ overallResult, devices }: ParsedToken) {
  if (overallResult === false) throw new CheckFailure('token_result_false', 'the verifier beside the device said no');
  const failed = devices.find(({ measres }) => measres !== null && measres !== 'success');
  if (failed !== undefined)
    throw new CheckFailure(
      'token_result_false',
      `the verifier beside the device said that ${failed.name} does not match`,
    );
  if (overallResult === null) return skipped('the token gives no overall result');
  return seen('the overall result is true');
}

/** The signature of a self-asserted token proves nothing: the check is a skip, with the reason. */
async function checkTokenSignature(parsed: ParsedToken, { options, clocks }: Context) {
  const { nrasKeys: keys, countersignKeys, fetchNrasKeys: fetchKeys } = options;
  const { signature, detail } = await verifyTokenSignature(parsed, {
    keys,
    countersignKeys,
    fetchKeys,
    at: clocks.token,
  });
  return signature === 'self-asserted' ? skipped(`self-asserted: ${detail}`) : passed(detail, signature);
}

const selfAsserted = (list: CheckList) => (list.unmet('token_signature') ? null : 'self-asserted');

/** The kinds of devices that NVIDIA's service passed; none where its token gives no result or names no device. */
function appraisedKinds(list: CheckList, token: ParsedToken | null, claims: TokenClaims | null) {
  if (token === null || claims?.signature !== 'nvidia-signed' || !list.passed('token_result')) return [];
  return token.devices.map(deviceKind);
}

async function checkEvidence(
  list: CheckList,
  { evidence, nonce }: Attestation,
  token: ParsedToken | null,
  claims: TokenClaims | null,
  context: Context,
): Promise<VerifiedDevice[]> {
  if (evidence !== undefined) {
    return verifyDevices(list, evidence.map(inputOf), nonce, token?.devices ?? [], context);
  }
  // Evidence may be absent only where NVIDIA signed the token, which must then state a result.
  const appraised = claims?.signature === 'nvidia-signed' && token?.overallResult === true;
  for (const name of OF_DEVICES)
    await list.run(name, name === 'report_form' ? FORM : ['report_form', 'token_shape'], () => {
      if (name === 'device_mode' && token !== null) return checkSignedMode(token);
      if (appraised) return skipped("no evidence came; NVIDIA's service appraised it, by the token that it signed");
      throw new CheckFailure('evidence_missing', 'there is no evidence, and no result that NVIDIA signed');
    });
  return [];
}

/** The mode by NVIDIA's signed token, where no report came with it. */
function checkSignedMode({ devices }: ParsedToken) {
  if (devices.length === 0) throw new CheckFailure('device_not_confidential', 'the token is about no device');
  for (const { name, debug, secureBoot } of devices) {
    if (debug !== 'disabled')
      throw new CheckFailure('debug_enabled', `the token does not say of ${name} that debugging is off`);
    if (secureBoot !== true)
      throw new CheckFailure('device_not_confidential', `the token does not say of ${name} that it booted securely`);
  }
  return seen("secure boot and debugging off, by NVIDIA's signed word");
}

// Compares a token's claims about its devices with their signed reports.

/** @throws {CheckFailure} token_report_mismatch */
export function compareTokenWithReports({ devices }: ParsedToken, reports: readonly DeviceClaims[]): Outcome<true> {
  if (devices.length === 0) return skipped('the token says nothing of its devices');
  const compared = new Set<DeviceClaims>();
  // NVIDIA's SDK has one verifier for GPUs and one for switches; two may also appraise the same devices.
  for (const verifier of new Set(devices.map((device) => device.verifier))) {
    const own = devices.filter((device) => device.verifier === verifier);
    const kinds = new Set(own.map(deviceKind));
    const ofKinds = reports.filter(({ kind }) => kinds.has(kind));
    // A bare JWT does not name its device.
    const about = ofKinds.length === 0 ? reports : ofKinds;
    compareDevices(own, about);
    for (const report of about) compared.add(report);
  }
  if (compared.size !== reports.length)
    throw mismatch(`the token is about ${compared.size} devices, the evidence of ${reports.length}`);
  return seen(
    `driver, VBIOS and ueid of ${reports.length === 1 ? 'the device' : `${reports.length} devices`} are the report's`,
  );
}

/** NVIDIA's verifiers name submodules by kind: `GPU-0`, `SWITCH-0`. */
const deviceKind = ({ name }: TokenDevice): DeviceClaims['kind'] => (/SWITCH/i.test(name) ? 'switch' : 'gpu');

function compareDevices(devices: readonly TokenDevice[], reports: readonly DeviceClaims[]): void {
  if (devices.length !== reports.length)
    throw mismatch(`the token is about ${devices.length} devices, the evidence of ${reports.length}`);
  const left = new Set(reports);
  for (const [i, device] of devices.entries()) {
    const report = device.ueid === null ? reports[i] : reports.find(({ ueid }) => ueid === device.ueid);
    if (report === undefined || !left.delete(report))
      throw mismatch(`what the token says of ${device.name} is about a device that is not in the evidence`);
    compareOne(device, report);
  }
}

function compareOne({ name, driver, vbios, hwmodel }: TokenDevice, report: DeviceClaims): void {
  const pairs = [
    ['driver', driver, report.driver],
    ['VBIOS', vbios, report.vbios],
    ['model', hwmodel, report.model],
  ] as const;
  // NVIDIA's Python verifier writes '' for what it does not know.
  for (const [what, claimed, signed] of pairs)
    if (claimed !== null && claimed !== '' && claimed.toUpperCase() !== signed?.toUpperCase())
      throw mismatch(`the token names another ${what} for ${name} than its report`);
}

const mismatch = (message: string) => new CheckFailure('token_report_mismatch', message);
