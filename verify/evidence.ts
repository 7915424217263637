// Verifies the evidence of one or many devices: every one must pass.
import type { Evidence } from '../proto/attestation/attestation.ts';
import { readDevices } from './binding/input.ts';
import { CheckFailure, CheckList, passed, VerificationError } from './common/checks.ts';
import { requireWebCrypto } from './common/webcrypto.ts';
import type { Collateral } from './gpu/collateral.ts';
import { inputOf, parseEvidence } from './gpu/device-evidence.ts';
import { verifyDevices } from './gpu/devices.ts';
import { rimIds } from './gpu/nvidia.ts';
import { checkRim, firstEnd } from './gpu/reference-values.ts';
import type { DeviceClaims } from './gpu/topology.ts';
import {
  readOptions,
  refuseUnknownOptions,
  type VerificationReport,
  type VerifiedEvidence,
  type VerifyOptions,
} from './policy/options.ts';
import { checkPolicy, concluded, type Findings } from './policy/verdict.ts';

/**
 * Verifies bare evidence: that each device signed the nonce stated beside it, and that each is what its certificates and
 * reference values say.
 *
 * ```ts
 * const { claims } = await verifyEvidence(await readFile('evidence.json', 'utf8'), { collateral });
 * ```
 * @param input a list in NVIDIA's form, `[{arch, certificate, evidence, nonce}]` (base64, base64, hex), as JSON text or parsed;
 * `arch` is HOPPER, BLACKWELL or LS10. `expected.nonce` applies where none is stated, and must equal one that is.
 * @throws {VerificationError} with the list of checks. @throws {TypeError} for options that cannot be used.
 */
export async function verifyEvidence(input: unknown, options: VerifyOptions = {}): Promise<VerifiedEvidence> {
  const report = await appraiseEvidence(input, options);
  if (!report.valid) throw new VerificationError(report.checks);
  return { ...report, valid: true };
}

/** As {@link verifyEvidence}, but returns failed checks in the report. */
export async function appraiseEvidence(input: unknown, options: VerifyOptions = {}): Promise<VerificationReport> {
  refuseUnknownOptions(options);
  if (options.release !== undefined) throw new TypeError('release is for answers and sessions, which show a guest');
  await requireWebCrypto();
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
  const stated = new Set(inputs?.map((one) => one.nonce ?? nonce));
  const [only = null] = stated;
  const findings: Findings = {
    list,
    devices,
    token: null,
    appraised: [],
    nonce: stated.size === 1 ? only : null,
    batch: null,
    timestamp: null,
    cpu: null,
    release: null,
    about: 'nonce',
    nvidia: context.nvidia,
    namesSession: false,
  };
  await list.run('policy', ['form'], () => checkPolicy(findings, context));
  return concluded(findings);
}

/** The earliest certificate end of each chain that an appraisal rests on: the device's own, and those of its RIMs' signers. */
export interface EndorsementExpiry {
  readonly device: Date;
  /** null: a switch, which has no driver RIM. */
  readonly driver: Date | null;
  readonly vbios: Date;
}

/**
 * For an issuer of tokens about devices that passed: how long their endorsements are valid.
 * @param device this device's claims in the report of {@link appraiseEvidence}.
 * @returns null where the device's report does not identify its reference values.
 * @throws {CheckFailure} rim_unavailable: a document is no longer available.
 */
export async function endorsementExpiry(
  evidence: Evidence,
  device: DeviceClaims,
  { collateral, roots, at }: { collateral: Collateral; roots?: VerifyOptions['roots']; at: Date },
): Promise<EndorsementExpiry | null> {
  const { report, chain } = parseEvidence(inputOf(evidence));
  const ids = rimIds(device, report.opaque);
  if (ids === null || (ids.driver === null && device.kind === 'gpu')) return null;
  const endOf = async (id: string) => {
    const document = await collateral.rim({ id, version: '', chip: '' });
    if (document === null) throw new CheckFailure('rim_unavailable', `${id} is no longer at hand`);
    return checkRim(document, { roots, at });
  };
  const [driver, vbios] = await Promise.all([ids.driver === null ? null : endOf(ids.driver), endOf(ids.vbios)]);
  return { device: firstEnd(chain), driver, vbios };
}
