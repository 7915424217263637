// The checks on devices: for each its report, signature, certificates, revocation, measurements and mode; for all of them the topology.

import { equal, sha256Once } from '../common/bytes.ts';
import { CheckFailure, type CheckList, type Passed, passed, seen, settle, skipped } from '../common/checks.ts';
import type { TokenDevice } from '../token/token.ts';
import type { Certificate } from '../x509/certificate.ts';
import { trustedPath } from '../x509/chain.ts';
import { DerError } from '../x509/der.ts';
import { type DeviceInput, type ParsedEvidence, parseEvidence } from './device-evidence.ts';
import { type DeviceIdentity, deviceOf, fwidOf } from './nvidia.ts';
import { checkRevocation, compare, type EndorsementContext, findReferenceValues } from './reference-values.ts';
import { type Report, verifyReportSignature } from './spdm/report.ts';
import { checkTopology, type DeviceClaims, type VerifiedDevice } from './topology.ts';

/** What devices are checked against. */
export interface DeviceContext extends EndorsementContext {
  readonly clocks: EndorsementContext['clocks'] & { readonly report: Date };
  readonly deviceRoots: readonly Certificate[];
  readonly simulatedRoots: readonly Certificate[];
  /** Whether the verdict may name NVIDIA: false where the caller's root replaces NVIDIA's. */
  readonly nvidia: { readonly device: boolean; readonly rim: boolean };
  /** Whether the caller gave collateral and a root for RIMs, so that a simulated device's can be checked too. */
  readonly checksSimulated: boolean;
  readonly options: { readonly without?: Without | undefined; readonly stopAtFailure?: boolean | undefined };
}

/** Checks that the caller does not want. */
export interface Without {
  readonly referenceValues?: boolean | undefined;
  readonly revocation?: boolean | undefined;
}

/** The checks on a device whose evidence could be read. */
const OF_ONE_DEVICE = [
  'report_nonce',
  'report_signature',
  'report_chain',
  'report_fwid',
  'revocation',
  'reference_values',
  'device_mode',
] as const;
/** All checks that {@link verifyDevices} makes. */
export const OF_DEVICES = ['report_form', ...OF_ONE_DEVICE, 'topology'] as const;

interface DeviceToVerify {
  readonly index: number;
  readonly arch: string;
  readonly evidence: ParsedEvidence;
  /** The nonce that the device must have signed: 64 lowercase hex digits. null: none is stated, which fails. */
  readonly nonce: string | null;
  /** A token's claims about this device. They count only against it. */
  readonly tokenClaims: readonly TokenDevice[];
}

/**
 * @param nonce the nonce of devices whose evidence states none.
 * @param tokenClaims a token's claims about the devices.
 * @returns the devices whose report and chain passed.
 */
export async function verifyDevices(
  list: CheckList,
  inputs: readonly DeviceInput[],
  nonce: string | null,
  tokenClaims: readonly TokenDevice[],
  context: DeviceContext,
): Promise<VerifiedDevice[]> {
  const several = inputs.length > 1;
  const parsed: ParsedEvidence[] = [];
  for (const [index, input] of inputs.entries()) {
    const evidence = await list.run('report_form', ['form', 'bundle'], () => parseOnce(input, parsed), index);
    if (evidence !== null) parsed[index] = evidence;
  }
  const verifyOne = async ({ arch, nonce: stated }: DeviceInput, index: number) => {
    const evidence = parsed[index];
    if (evidence === undefined) return skipUnreadable(list, index);
    const own = tokenClaims.filter(({ ueid, name }) =>
      ueid === null ? !several || name.endsWith(`-${index}`) : ueid === String(evidence.chain[0].serial),
    );
    return verifyDevice(list, { index, arch, evidence, nonce: stated ?? nonce, tokenClaims: own }, context);
  };
  // Sequential where the first failure ends the verification, so that chance does not decide which failure that is.
  const verified: (VerifiedDevice | null)[] = [];
  if (context.options.stopAtFailure === true)
    for (const [index, input] of inputs.entries()) verified.push(await verifyOne(input, index));
  else verified.push(...(await Promise.all(inputs.map(verifyOne))));
  const devices = verified.filter((device) => device !== null);
  await list.run('topology', ['form', 'report_form', 'report_signature', 'report_chain'], () => checkTopology(devices));
  return devices;
}

/**
 * Refuses a device that is in the list twice. A boot ROM certifies another signing key for other firmware, so the boot ROM's own
 * key, in the second certificate, is compared too.
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

/** Lists the checks that cannot run on evidence that cannot be read. */
async function skipUnreadable(list: CheckList, index: number): Promise<null> {
  for (const name of OF_ONE_DEVICE) await list.run(name, ['report_form'], () => seen(''), index);
  return null;
}

/** Runs every check on one device, report_form already passed. @returns null unless report and chain passed. */
async function verifyDevice(
  list: CheckList,
  { index, arch, evidence, nonce, tokenClaims }: DeviceToVerify,
  context: DeviceContext,
): Promise<VerifiedDevice | null> {
  const { report, chain } = evidence;
  const [leaf] = chain;
  await list.run('report_nonce', ['report_form'], () => checkNonce(report, nonce), index);
  await list.run('report_signature', ['report_form'], () => checkSignature(report, leaf), index);
  const trusted = await list.run('report_chain', ['report_form'], () => checkChain(chain, arch, context), index);
  await list.run('report_fwid', ['report_signature', 'report_chain'], () => checkFwid(report, leaf), index);

  const grounds = ['report_signature', 'report_chain'] as const;
  const { without = {} } = context.options;
  const simulated = trusted?.simulated === true && !context.checksSimulated ? 'simulated: no such device exists' : null;
  const notWanted = 'the caller asked for no such check';
  const noReference = simulated ?? (without.referenceValues ? notWanted : null);
  // An unsigned report must not decide what is requested from services.
  const found =
    noReference !== null || trusted === null || list.unmet('report_signature', index)
      ? null
      : await settle(() => findReferenceValues(trusted.identity, report, context));
  await list.run(
    'revocation',
    grounds,
    async () => {
      const reason = simulated ?? (without.revocation ? notWanted : null);
      if (reason !== null || trusted === null) return skipped(reason ?? '');
      const count = await checkRevocation(trusted.path, found?.value ?? null, context);
      const signers = found?.value ? ', and of those who signed its reference values' : '';
      return seen(
        `${count} certificates are good, of the authorities above the device's own${signers}; about its own nobody can be asked`,
      );
    },
    index,
  );
  const matched = await list.run(
    'reference_values',
    grounds,
    async () => {
      if (noReference !== null || trusted === null || found === null) return skipped(noReference ?? '');
      const result = await compare(found.get(), trusted.identity, report, context);
      const sources = found.value?.driver ? ` (${result.driver} driver, ${result.vbios} VBIOS)` : '';
      const left = result.skipped.length > 0 ? `; index ${result.skipped.join(', ')} left out, NVDEC0 is disabled` : '';
      return passed(
        `all ${result.matched} active measurements${sources} have their reference values${left}`,
        result.matched,
      );
    },
    index,
  );
  await list.run(
    'device_mode',
    [...grounds, 'reference_values'],
    () => checkMode(report, trusted?.identity.kind, matched !== null, noReference, tokenClaims, context.nvidia),
    index,
  );
  if (trusted === null || list.unmet('report_signature', index)) return null;
  const { opaque } = report;
  const identity = chain[1] === undefined ? null : await sha256Once(chain[1].spki);
  return { identity, claims: claimsOf(trusted.identity, report, matched), opaque, simulated: trusted.simulated };
}

function checkNonce(report: Report, nonce: string | null) {
  if (nonce === null) throw new CheckFailure('report_nonce_mismatch', 'no nonce is stated that the report could have');
  if (report.nonce !== nonce) throw new CheckFailure('report_nonce_mismatch', 'the device signed another nonce');
  return seen('the device signed this nonce');
}

async function checkSignature(report: Report, leaf: Certificate) {
  if (leaf.keyUsage?.has('digitalSignature') === false)
    throw new CheckFailure('report_signature_invalid', 'the leaf certificate is not one that signs');
  if (!(await verifyReportSignature(report, leaf)))
    throw new CheckFailure(
      'report_signature_invalid',
      'the signature of the report does not verify under the leaf certificate',
    );
  return seen('ECDSA P-384 over the whole report, by the key of the leaf certificate');
}

function checkFwid(report: Report, leaf: Certificate) {
  const { fwid } = report.opaque;
  if (fwid === null) return skipped('this driver does not put the firmware id into its reports');
  let certified: string | null;
  try {
    certified = fwidOf(leaf);
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('fwid_mismatch', `the leaf certificate's firmware id: ${cause.message}`, { cause });
  }
  if (certified !== fwid)
    throw new CheckFailure(
      'fwid_mismatch',
      certified === null
        ? 'the report names a firmware id and the leaf certificate none'
        : 'the firmware id in the report is not the one that the leaf certificate was issued for',
    );
  return seen('the firmware in the report is the one that the leaf certificate was issued for');
}

const MODES = {
  spt: 'one GPU to a guest (spt)',
  mpt: 'several GPUs to a guest (mpt)',
  ppcie: 'several GPUs over a protected PCIe bus (ppcie)',
} as const;

/**
 * No field of the report states confidential mode or disabled debugging: like NVIDIA's verifiers, this concludes both from
 * measurements that match their reference values. A token counts only where it states the opposite.
 */
function checkMode(
  report: Report,
  kind: DeviceIdentity['kind'] | undefined,
  matched: boolean,
  noReference: string | null,
  tokenClaims: readonly TokenDevice[],
  nvidia: DeviceContext['nvidia'],
) {
  for (const { name, debug, secureBoot } of tokenClaims) {
    if (debug !== null && debug !== 'disabled')
      throw new CheckFailure('debug_enabled', `the token says of ${name} that debugging is ${debug.slice(0, 40)}`);
    if (secureBoot === false)
      throw new CheckFailure('device_not_confidential', `the token says of ${name} that it did not boot securely`);
  }
  const { passThrough, protectedPcie } = report.opaque;
  if (!matched) return skipped(`the report alone does not say it (${noReference ?? 'no reference values'})`);
  const mode = passThrough ?? (protectedPcie === true ? 'ppcie' : null);
  const how = mode === null ? 'how it is passed through is not in its report' : `passed through as ${MODES[mode]}`;
  const values = nvidia.rim
    ? "the values of NVIDIA's confidential mode"
    : 'the values that were signed under the root that the caller gave';
  const off = `secure boot and debugging off, as its measurements have ${values}`;
  return seen(kind === 'switch' ? off : `${off}; ${how}`);
}

function claimsOf(identity: DeviceIdentity, { opaque }: Report, matched: number | null): DeviceClaims {
  return {
    ...identity,
    driver: opaque.driverVersion,
    vbios: opaque.vbiosVersion,
    mode: opaque.passThrough ?? (opaque.protectedPcie === true ? 'ppcie' : null),
    measurements_matched: matched,
  };
}

// The trust anchor of a device's certificates: NVIDIA's root, a simulated one that the caller named, or none.

interface TrustedChain {
  readonly path: readonly Certificate[];
  readonly identity: DeviceIdentity;
  readonly simulated: boolean;
}

/**
 * @param arch as the evidence states it, unsigned.
 * @throws {CheckFailure} untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
 */
async function checkChain(
  chain: readonly Certificate[],
  arch: string,
  context: DeviceContext,
): Promise<Passed<TrustedChain>> {
  const { deviceRoots, simulatedRoots, clocks } = context;
  const anchors = { roots: deviceRoots, simulatedRoots, at: clocks.report };
  const { path, simulated } = await trustedPath(chain, anchors, 'a simulated device');
  const identity = deviceOf(path, arch);
  const root = path.at(-1)?.subjectCommonName ?? '';
  const detail = `${path.length} certificates up to ${simulated ? 'the simulated' : 'the pinned'} root '${root}'`;
  return passed(detail, { path, identity, simulated });
}
