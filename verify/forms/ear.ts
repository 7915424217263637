// Writes our report as an attestation result in the common form: EAR (draft-ietf-rats-ear-04) with AR4SI's trustworthiness vector
// (draft-ietf-rats-ar4si), unsigned. A separate entry point, so that a browser's bundle does not grow by it. docs/verify.md.

import { fromHex, toBase64Url } from '../common/bytes.ts';
import type { Check, CheckName, FailureCode } from '../common/checks.ts';
import type { CpuClaims, CpuReport, CpuVerifyOptions } from '../cpu/cpu-options.ts';
import type { DeviceClaims } from '../gpu/topology.ts';
import type { Claims, Level, VerificationReport, VerifyOptions } from '../policy/options.ts';

export const EAR_PROFILE = 'tag:ietf.org,2026:rats/ear#04';
/** RFC 9782: an EAT claims set without a signature. */
export const EAR_MEDIA_TYPE = `application/eat-ucs+json; eat_profile="${EAR_PROFILE}"`;
/** The name of our own claims: a Collision-Resistant Name (RFC 7519 §2). Their content may change with the drafts. */
export const APPRAISAL_CLAIMS = 'urn:uuid:9770031d-0578-470c-9133-cdca6a13914d';

/** AR4SI's tiers, from the best to the worst when submodules are summed up. */
const TIERS = ['affirming', 'none', 'warning', 'contraindicated'] as const;
type Tier = (typeof TIERS)[number];

type Category = 'instance-identity' | 'configuration' | 'executables' | 'hardware' | 'runtime-opaque';
/** AR4SI §2.3.4: a value of -128 to 127 each. A category that is absent is not claimed. */
type TrustworthinessVector = Readonly<Partial<Record<Category, number>>>;

/** One attester's appraisal. */
export interface EarAppraisal {
  readonly ear_status: Tier;
  /** At least one category: `hardware: 0` where nothing is claimed. */
  readonly ear_trustworthiness_vector: TrustworthinessVector;
  /** The nonce that the attester signed, base64url: 32 bytes for a device, 64 for a processor. */
  readonly eat_nonce?: string;
  /** Claims of the verified evidence. */
  readonly ear_attester_claims?: Readonly<Record<string, unknown>>;
  /** Claims about the appraisal. */
  readonly ear_verifier_claims?: Readonly<Record<string, unknown>>;
}

/** EAR's claims set. */
export interface Ear {
  readonly eat_profile: typeof EAR_PROFILE;
  /** Unix seconds. */
  readonly iat: number;
  readonly ear_verifier_id: { readonly developer: string; readonly build: string };
  /** The worst status of the submodules, or a worse one where another check failed. */
  readonly ear_status: Tier;
  /** draft-kykdxy-rats-tdx-cgpu-ear-profile: whether the processor's evidence is bound to that of the devices. */
  readonly ear_all_submods_bound: 'true' | 'false' | 'unknown';
  /** `cpu`, `gpu/<ueid>`, `nvswitch/<ueid>`, `device/<index>` for a device that its evidence does not identify; `gpu` without evidence. */
  readonly submods: Readonly<Record<string, EarAppraisal>>;
  readonly [APPRAISAL_CLAIMS]: OwnClaims;
}

/** The report without its claims, which are in the submodules. */
interface OwnClaims {
  readonly valid: boolean;
  /** Absent for a processor's bare evidence. */
  readonly level?: Level;
  readonly simulated: boolean;
  /** The time as of which it was verified, ISO 8601. */
  readonly as_of: string;
  readonly checks: readonly Check[];
  readonly proven?: readonly string[];
  readonly not_proven?: readonly string[];
}

export interface EarOptions {
  /** The software that verified: `countersign 0.1.0`. */
  readonly build: string;
  /** When the result is made. */
  readonly issued: Date;
}

/**
 * A report of `appraiseAttestation`, `appraiseEvidence` or `appraiseSession` as EAR. A report that is not valid affirms nothing, nor does
 * simulated evidence.
 * @param verification the options of that verification: the result shows whether the caller set roots or clocks.
 */
export function earOf(report: VerificationReport, verification: VerifyOptions, options: EarOptions): Ear {
  const { valid, level, checks, claims, proven, not_proven } = report;
  const own = { valid, level, simulated: claims.simulated, checks, proven, not_proven };
  const { roots, clocks, cpu } = verification;
  const ownTerms = { device: roots !== undefined || clocks !== undefined, cpu: cpu?.roots !== undefined };
  return ear({ valid, checks, claims, ownTerms }, { ...own, ...asOf(verification.at, options) }, options);
}

/** The same for a processor's bare evidence, a report of `appraiseCpu`. */
export function earOfCpu(
  { valid, checks, claims }: CpuReport,
  verification: CpuVerifyOptions,
  options: EarOptions,
): Ear {
  const simulated = claims?.simulated === true;
  const appraised: Appraised = {
    valid,
    checks,
    claims: { simulated, nonce: null, devices: [], cpu: claims },
    ownTerms: { device: false, cpu: verification.roots !== undefined },
  };
  return ear(appraised, { valid, simulated, checks, ...asOf(verification.at, options) }, options);
}

const asOf = (at: Date | undefined, { issued }: EarOptions) => ({ as_of: (at ?? issued).toISOString() });

interface Appraised {
  readonly valid: boolean;
  readonly checks: readonly Check[];
  readonly claims: Pick<Claims, 'simulated' | 'nonce' | 'devices' | 'cpu'>;
  /** Whether the caller's roots replace the makers', or the caller set clocks for single kinds of checks. */
  readonly ownTerms: { readonly device: boolean; readonly cpu: boolean };
}

function ear(appraised: Appraised, own: OwnClaims, { build, issued }: EarOptions): Ear {
  const submods = { ...cpuSubmod(appraised), ...deviceSubmods(appraised) };
  if (Object.keys(submods).length === 0) submods.gpu = appraisal(NOTHING, 'none');
  const statuses = Object.values(submods).map(({ ear_status }) => ear_status);
  return {
    eat_profile: EAR_PROFILE,
    iat: Math.floor(issued.getTime() / 1000),
    ear_verifier_id: { developer: 'Countersign', build },
    ear_status: worst([...statuses, ...(appraised.valid ? [] : [tierOfFailures(appraised.checks)])]),
    ear_all_submods_bound: allBound(appraised),
    submods,
    [APPRAISAL_CLAIMS]: own,
  };
}

const worst = (tiers: readonly Tier[]): Tier => TIERS.findLast((tier) => tiers.includes(tier)) ?? 'none';

const isPassed = (checks: readonly Check[], name: CheckName): boolean => {
  const named = checks.filter((check) => check.name === name);
  return named.length > 0 && named.every(({ status }) => status === 'pass');
};

/** Anyone can make a simulated processor's half of a binding, so its binding is unknown. */
function allBound({ valid, checks, claims }: Appraised): Ear['ear_all_submods_bound'] {
  if (claims.simulated) return 'unknown';
  const binding = ['cpu_binding', 'cpu_devices', 'cpu_answer'];
  if (checks.some(({ name, status }) => status === 'fail' && binding.includes(name))) return 'false';
  return valid && isPassed(checks, 'cpu_binding') && isPassed(checks, 'cpu_devices') ? 'true' : 'unknown';
}

type Submods = Record<string, EarAppraisal>;

function appraisal(vector: TrustworthinessVector, status: Tier, claims: Partial<EarAppraisal> = {}): EarAppraisal {
  return { ear_status: status, ear_trustworthiness_vector: vector, ...claims };
}

/** AR4SI requires at least one category: 0 makes no claim. */
const NOTHING: TrustworthinessVector = { hardware: 0 };

const SIMULATED: Partial<EarAppraisal> = { ear_verifier_claims: { [APPRAISAL_CLAIMS]: { simulated: true } } };

/** @param claimed the vector for a valid report about real hardware. */
function judged(
  { valid, claims: { simulated } }: Appraised,
  checks: readonly Check[],
  claimed: () => TrustworthinessVector,
  claims: () => Partial<EarAppraisal>,
): EarAppraisal {
  if (!valid) {
    const failed = checks.filter(({ status }) => status === 'fail');
    return failed.length === 0 ? appraisal(NOTHING, 'none') : appraisal(failures(failed), tierOfFailures(failed));
  }
  if (simulated) return appraisal(NOTHING, 'none', SIMULATED);
  const vector = claimed();
  if (Object.keys(vector).length === 0) return appraisal(NOTHING, 'none', claims());
  // Without a claim about the hardware, its configuration affirms nothing.
  const status = vector.hardware === undefined ? 'none' : worst(Object.values(vector).map(tierOf));
  return appraisal(vector, status, claims());
}

/** AR4SI §2.3.2. */
function tierOf(value: number): Tier {
  if (value >= 96 || value < -96) return 'contraindicated';
  if (value >= 32 || value < -32) return 'warning';
  return value >= 2 || value <= -2 ? 'affirming' : 'none';
}

// What is affirmed.

const AFFIRMED = 2;
/** Only approved executables have been loaded during the boot process; nothing is said of what came later. */
const BOOT_AFFIRMED = 3;
const KNOWN_VULNERABILITIES = 32;
/**
 * Not a value of AR4SI's, but in its range for others: affirmed on terms that the caller set. These are roots in place of the makers',
 * clocks, no minimum for AMD's firmware, or a reference value that leaves something out.
 */
const ON_THE_CALLERS_TERMS = -2;

function deviceSubmods(all: Appraised): Submods {
  const submods: Submods = {};
  const { checks, claims, ownTerms } = all;
  const indices = [...new Set(checks.flatMap(({ device }) => device ?? []))].sort((a, b) => a - b);
  // `claims.devices` has only the devices whose report and chain passed, in this order.
  const known = indices.filter((index) => {
    const own = checks.filter(({ device }) => device === index);
    return isPassed(own, 'report_signature') && isPassed(own, 'report_chain');
  });
  for (const index of indices) {
    const device = claims.devices[known.indexOf(index)];
    const own = checks.filter((check) => check.device === index || check.name === 'topology');
    const one = judged(
      all,
      own,
      () => deviceVector((name) => isPassed(own, name), ownTerms.device),
      () => (device === undefined ? {} : deviceClaims(device, claims.nonce)),
    );
    const label = device && `${device.kind === 'switch' ? 'nvswitch' : 'gpu'}/${device.ueid}`;
    // Two certificate authorities could issue the same serial number.
    submods[label === undefined || Object.hasOwn(submods, label) ? `device/${index}` : label] = one;
  }
  return submods;
}

type Passed = (name: CheckName) => boolean;

const GENUINE_DEVICE = ['report_nonce', 'report_signature', 'report_chain', 'revocation', 'reference_values'] as const;

/** Without reference values the firmware is unknown, and so nothing is claimed about the hardware. */
function deviceVector(passed: Passed, ownTerms: boolean): TrustworthinessVector {
  const affirmed = ownTerms ? ON_THE_CALLERS_TERMS : AFFIRMED;
  return {
    ...(GENUINE_DEVICE.every(passed) ? { hardware: affirmed } : {}),
    ...(passed('device_mode') ? { configuration: affirmed } : {}),
  };
}

function deviceClaims(device: DeviceClaims, nonce: string | null): Partial<EarAppraisal> {
  const { measurements_matched, ...evidence } = device;
  return {
    ...(nonce === null ? {} : { eat_nonce: toBase64Url(fromHex(nonce)) }),
    ear_attester_claims: { [APPRAISAL_CLAIMS]: present(evidence) },
    ...(measurements_matched === null
      ? {}
      : { ear_verifier_claims: { [APPRAISAL_CLAIMS]: present({ measurements_matched }) } }),
  };
}

function cpuSubmod(all: Appraised): Submods {
  const { claims, ownTerms } = all;
  const own = all.checks.filter(({ name }) => name.startsWith('cpu_'));
  if (own.length === 0) return {};
  const passed: Passed = (name) => isPassed(own, name);
  const { cpu } = claims;
  // For a session that was verified before, these checks are skips, and nothing is claimed again.
  const signed = cpu !== null && passed('cpu_signature') && passed('cpu_chain');
  return {
    cpu: judged(
      all,
      own,
      () => (signed ? cpuVector(passed, cpu, ownTerms.cpu) : {}),
      () => (signed ? cpuClaims(cpu) : {}),
    ),
  };
}

function cpuVector(passed: Passed, cpu: CpuClaims, ownTerms: boolean): TrustworthinessVector {
  const affirmed = ownTerms ? ON_THE_CALLERS_TERMS : AFFIRMED;
  const genuine =
    passed('cpu_identity') && passed('cpu_revocation') && (!cpu.type.startsWith('AZURE_') || passed('cpu_vtpm'));
  const accepted = passed('cpu_tcb');
  const upToDate = cpu.tcb_status === null || cpu.tcb_status === 'UpToDate';
  const hardware = upToDate ? (accepted ? affirmed : ON_THE_CALLERS_TERMS) : KNOWN_VULNERABILITIES;
  const isMeasured = passed('cpu_measurement');
  const isApproved = isMeasured && passed('cpu_software') && cpu.software !== null;
  const isWhole = cpu.software?.uncompared === null && !ownTerms;
  return {
    ...(genuine ? { hardware } : {}),
    // At another privilege level than 0, other software controls the guest; the measurement tells whether the caller knows it.
    ...(passed('cpu_mode') && (!cpu.vmpl || isMeasured) ? { configuration: affirmed } : {}),
    // Firmware with known vulnerabilities may not protect the guest's memory.
    ...(genuine && accepted && upToDate && passed('cpu_mode') ? { 'runtime-opaque': affirmed } : {}),
    ...(isApproved ? { executables: isWhole ? BOOT_AFFIRMED : ON_THE_CALLERS_TERMS } : {}),
  };
}

function cpuClaims(cpu: CpuClaims): Partial<EarAppraisal> {
  const { simulated: _, tcb_status, advisories, software, ...evidence } = cpu;
  const { type, measurement, rtmrs, host_data, report_data } = evidence;
  // Intel's names, as draft-kykdxy-rats-tdx-cgpu-ear-profile uses them.
  const tdx = type.endsWith('TDX')
    ? {
        tdx_mrtd: measurement,
        tdx_mrconfigid: host_data,
        ...Object.fromEntries((rtmrs ?? []).map((value, i) => [`tdx_rtmr${i}`, value])),
      }
    : {};
  return {
    // Behind Azure's paravisor, the report data is the hash of the runtime data and no nonce.
    ...(type.startsWith('AZURE_') ? {} : { eat_nonce: toBase64Url(fromHex(report_data)) }),
    ear_attester_claims: { ...tdx, [APPRAISAL_CLAIMS]: present(evidence) },
    ear_verifier_claims: {
      [APPRAISAL_CLAIMS]: present({ tcb_status, advisories, software: software && present(software) }),
    },
  };
}

/** EAT has no null: an unknown claim is absent. */
const present = (claims: object) => Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== null));

// The values of failed checks.

/** The AR4SI category of each check of an attester; `hardware` for checks that are not listed. */
const CATEGORIES: Readonly<Partial<Record<CheckName, Category>>> = {
  device_mode: 'configuration',
  topology: 'configuration',
  cpu_mode: 'configuration',
  cpu_binding: 'instance-identity',
  cpu_devices: 'instance-identity',
  cpu_answer: 'instance-identity',
  cpu_measurement: 'executables',
  cpu_software: 'executables',
};

const INSUFFICIENT = 0;
const NOT_UNDERSTOOD = 1;
const UNRECOGNIZED_EXECUTABLES = 33;
const CONTRAINDICATED = 96;
const UNRECOGNIZED = 97;
const CRYPTOGRAPHY_FAILED = 99;

/** Codes that leave the attester undecided: something was unavailable or not understood. Every other code counts against it. */
const UNDECIDED: Readonly<Partial<Record<FailureCode, number>>> = {
  revocation_unavailable: INSUFFICIENT,
  rim_unavailable: INSUFFICIENT,
  collateral_unavailable: INSUFFICIENT,
  collateral_expired: INSUFFICIENT,
  token_key_unavailable: INSUFFICIENT,
  evidence_missing: INSUFFICIENT,
  cpu_missing: INSUFFICIENT,
  not_json: NOT_UNDERSTOOD,
  not_an_attestation: NOT_UNDERSTOOD,
  too_large: NOT_UNDERSTOOD,
  raw_malformed: NOT_UNDERSTOOD,
  stream_malformed: NOT_UNDERSTOOD,
  stream_not_foldable: NOT_UNDERSTOOD,
  token_malformed: NOT_UNDERSTOOD,
  evidence_malformed: NOT_UNDERSTOOD,
  report_malformed: NOT_UNDERSTOOD,
  rim_malformed: NOT_UNDERSTOOD,
  cpu_malformed: NOT_UNDERSTOOD,
  cpu_unsupported: NOT_UNDERSTOOD,
};

/** Values of the other codes; codes that are not listed are failures of cryptography. */
const AGAINST: Readonly<Partial<Record<FailureCode, number>>> = {
  certificate_revoked: CONTRAINDICATED,
  tcb_not_accepted: CONTRAINDICATED,
  debug_enabled: CONTRAINDICATED,
  device_not_confidential: CONTRAINDICATED,
  topology_mismatch: CONTRAINDICATED,
  cpu_policy_refused: CONTRAINDICATED,
  session_expired: CONTRAINDICATED,
  untrusted_root: UNRECOGNIZED,
  simulated_root_refused: UNRECOGNIZED,
  measurement_mismatch: UNRECOGNIZED,
  rim_mismatch: UNRECOGNIZED,
  cpu_devices_mismatch: UNRECOGNIZED,
};

function reasonOf({ name, code }: Check): number {
  if (code === undefined) return INSUFFICIENT;
  if (name === 'cpu_measurement' || code === 'software_mismatch') return UNRECOGNIZED_EXECUTABLES;
  return UNDECIDED[code] ?? AGAINST[code] ?? CRYPTOGRAPHY_FAILED;
}

function failures(failed: readonly Check[]): TrustworthinessVector {
  const vector: Partial<Record<Category, number>> = {};
  for (const check of failed) {
    const category = CATEGORIES[check.name] ?? 'hardware';
    vector[category] = Math.max(vector[category] ?? 0, reasonOf(check));
    if (check.name === 'cpu_mode' && check.code === 'debug_enabled') vector['runtime-opaque'] = CONTRAINDICATED;
  }
  return vector;
}

/** Contraindicated where a code counts against the attester; none where nothing could be decided. */
const tierOfFailures = (checks: readonly Check[]): Tier =>
  checks.some(({ code }) => code !== undefined && UNDECIDED[code] === undefined) ? 'contraindicated' : 'none';
