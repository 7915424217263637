// Verifies the evidence of one or many devices: every one must pass.
import { equal } from './bytes.ts';
import { CheckFailure, VerificationError } from './checks.ts';
import { type VerifiedDevice, verifyDevice } from './device.ts';
import { type DeviceInput, readDevices } from './input.ts';
import type { VerificationReport, VerifiedEvidence, VerifyOptions } from './options.ts';
import { type ParsedEvidence, parseEvidence } from './parsed-evidence.ts';
import { CheckList, type Context, passed, readOptions, seen } from './run-checks.ts';
import type { TokenDevice } from './token/token.ts';
import { checkTopology } from './topology.ts';
import { concluded } from './verdict.ts';

/**
 * Verifies bare evidence: that each device signed the nonce stated beside it, and that each is what its certificates and
 * reference values say.
 *
 * ```ts
 * const { claims } = await verifyEvidence(await readFile('evidence.json', 'utf8'), { collateral });
 * ```
 * @param input a list in NVIDIA's form, `[{arch, certificate, evidence, nonce}]` (base64, base64, hex), as JSON text or parsed;
 * `arch` is HOPPER, BLACKWELL or LS10. `expected.nonce` stands in where none is stated, and must be the one that is.
 * @throws {VerificationError} with the list of checks. @throws {TypeError} for options that cannot be used.
 */
export async function verifyEvidence(input: unknown, options: VerifyOptions = {}): Promise<VerifiedEvidence> {
  const report = await appraiseEvidence(input, options);
  if (!report.valid) throw new VerificationError(report.checks);
  return { ...report, valid: true };
}

/** As {@link verifyEvidence}, but a failed check is in what is returned. */
export async function appraiseEvidence(input: unknown, options: VerifyOptions = {}): Promise<VerificationReport> {
  const context = readOptions(options);
  const list = new CheckList(options.stopAtFailure);
  const nonce = options.expected?.nonce?.toLowerCase() ?? null;
  const inputs = await list.run('form', [], () => {
    const devices = readDevices(input, options.limits);
    const stated = new Set(devices.map((device) => device.nonce ?? nonce));
    if (nonce !== null && (stated.size > 1 || !stated.has(nonce)))
      throw new CheckFailure(
        'report_nonce_mismatch',
        'the evidence states another nonce than the one that is expected',
      );
    return passed(`evidence of ${devices.length} ${devices.length === 1 ? 'device' : 'devices'}`, devices);
  });
  const devices = await verifyDevices(list, inputs ?? [], nonce, [], context);
  await list.run('policy', ['form'], () => checkPolicy(list, null, context));
  const stated = new Set(inputs?.map((one) => one.nonce ?? nonce));
  const [only = null] = stated;
  return concluded({
    list,
    devices,
    token: null,
    appraised: [],
    nonce: stated.size === 1 ? only : null,
    timestamp: null,
    about: 'nonce',
    nvidia: context.nvidia,
  });
}

/**
 * @param nonce what a device must have signed where nothing is stated beside its evidence.
 * @param accusers what a token says of the devices.
 * @returns the devices whose report and chain passed.
 */
export async function verifyDevices(
  list: CheckList,
  inputs: readonly DeviceInput[],
  nonce: string | null,
  accusers: readonly TokenDevice[],
  context: Context,
): Promise<VerifiedDevice[]> {
  const several = inputs.length > 1;
  const parsed: ParsedEvidence[] = [];
  for (const [index, input] of inputs.entries()) {
    const evidence = await list.run('report_form', ['form'], () => parseOnce(input, parsed), index);
    if (evidence !== null) parsed[index] = evidence;
  }
  const verified = await Promise.all(
    inputs.map(({ arch, nonce: stated }, index) => {
      const evidence = parsed[index];
      if (evidence === undefined) return unread(list, index);
      const own = accusers.filter(({ ueid, name }) =>
        ueid === null ? !several || name.endsWith(`-${index}`) : ueid === String(evidence.chain[0].serial),
      );
      return verifyDevice(list, { index, arch, evidence, nonce: stated ?? nonce, accusers: own }, context);
    }),
  );
  const devices = verified.filter((device) => device !== null);
  await list.run('topology', ['form', 'report_form', 'report_signature', 'report_chain'], () => checkTopology(devices));
  return devices;
}

/**
 * One device counted twice would be two. Its boot ROM certifies another signing key for other firmware, so the boot ROM's own
 * key, in the second certificate, counts too.
 */
function parseOnce(input: DeviceInput, before: readonly (ParsedEvidence | undefined)[]) {
  const evidence = parseEvidence(input);
  const keys = keysOf(evidence);
  const same = before.findIndex(
    (other) => other !== undefined && keysOf(other).some((key) => keys.some((own) => equal(own, key))),
  );
  if (same >= 0) throw new CheckFailure('evidence_malformed', `the same device as device ${same}`);
  const { blocks, opaque } = evidence.report;
  return passed(`SPDM 1.1, ${blocks.size} measurement blocks, ${opaque.format} opaque data`, evidence);
}

const keysOf = ({ chain }: ParsedEvidence) => chain.slice(0, 2).map(({ spki }) => spki);

/** The names of what cannot be checked on evidence that cannot be read. */
async function unread(list: CheckList, index: number): Promise<null> {
  for (const name of [
    'report_nonce',
    'report_signature',
    'report_chain',
    'report_fwid',
    'revocation',
    'reference_values',
    'device_mode',
  ] as const)
    await list.run(name, ['report_form'], () => seen(''), index);
  return null;
}

// The relying party's own policy: freshness, and checks that may not be skipped.

/** Between the gateway's clock and ours, where the caller does not say. */
const SKEW_SECONDS = 300;

/** @param timestamp Unix seconds; null where nothing says when. @throws {CheckFailure} too_old, policy_refused */
export function checkPolicy(list: CheckList, timestamp: number | null, { at, options }: Context) {
  const { maxAgeSeconds = null, maxAheadSeconds = null, requiredChecks = [] } = options.policy ?? {};
  const said: string[] = [];
  if (maxAgeSeconds !== null || maxAheadSeconds !== null) {
    if (timestamp === null) throw new CheckFailure('policy_refused', 'bare evidence does not say when it was made');
    const age = Math.floor(at.getTime() / 1000) - timestamp;
    if (age < -(maxAheadSeconds ?? SKEW_SECONDS))
      throw new CheckFailure('policy_refused', `the time in raw is ${-age} seconds ahead`);
    if (maxAgeSeconds !== null && age > maxAgeSeconds)
      throw new CheckFailure('too_old', `${age} seconds old; at most ${maxAgeSeconds} are accepted`);
    said.push(`${Math.max(0, age)} seconds old`);
  }
  for (const name of requiredChecks)
    if (name !== 'policy' && !list.passed(name))
      throw new CheckFailure('policy_refused', `the caller requires the check ${name}, which did not pass`);
  if (requiredChecks.length > 0) said.push(`${requiredChecks.length} required checks passed`);
  return seen(said.length > 0 ? said.join('; ') : 'the caller asked for no more');
}
