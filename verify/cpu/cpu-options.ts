// The options and the report of a verification of a processor's evidence.
import type { CpuType } from '../../proto/attestation/attestation.ts';
import type { Weights } from '../../proto/attestation/launch.ts';
import type { Check } from '../common/checks.ts';
import { type Names, type Part, refuseUnknown } from '../common/known-options.ts';
import type { ReleaseClaims } from '../common/release-options.ts';
import type { Certificate } from '../x509/certificate.ts';
import type { Product, SnpTcb, SnpTcbPart } from './evidence/snp-report.ts';

export type { CpuType, Product, SnpTcb, SnpTcbPart, Weights };

/** Intel's words for a platform's state; `NotSupported`: no level of the TCB info is met. */
export const TCB_STATUSES = [
  'UpToDate',
  'SWHardeningNeeded',
  'ConfigurationNeeded',
  'ConfigurationAndSWHardeningNeeded',
  'OutOfDate',
  'OutOfDateConfigurationNeeded',
  'TDRelaunchAdvised',
  'TDRelaunchAdvisedConfigurationNeeded',
  'Revoked',
  'NotSupported',
] as const;
export type TcbStatus = (typeof TCB_STATUSES)[number];

/** Intel's endorsements, in the form of dcap-qvl: signed texts exactly as they were signed; signatures and DER as hex, chains as PEM. */
export interface TdxCollateral {
  readonly tcb_info: string;
  readonly tcb_info_signature: string;
  readonly tcb_info_issuer_chain: string;
  readonly qe_identity: string;
  readonly qe_identity_signature: string;
  readonly qe_identity_issuer_chain: string;
  readonly pck_crl: string;
  /** Not read: the list must be signed by the authority in the quote's own chain. */
  readonly pck_crl_issuer_chain: string;
  readonly root_ca_crl: string;
  /** Not read: the quote has its own chain. */
  readonly pck_certificate_chain?: string | null | undefined;
}

export interface CpuPolicy {
  /** AMD products whose reports are accepted. Genoa and Turin by default: Milan's reports can be forged (arXiv 2605.12990). */
  readonly products?: readonly Product[] | undefined;
  /**
   * The chips that are accepted, as the claims show them: AMD's `chip_id` (128 lowercase hex digits), Intel's `ppid` (32); any by default.
   * A report that masks its chip id, as those signed by a VLEK may, is then refused.
   */
  readonly chips?: readonly string[] | undefined;
  /**
   * The least TCB that AMD's reported, current, committed and launch TCB must all have. For a product that is not named here it is SNP
   * firmware 27 of Genoa and 4 of Turin (snp-checks.ts names the sources); `{ Genoa: {} }` asks for none of Genoa.
   */
  readonly minTcb?: Readonly<Partial<Record<Product, SnpTcb>>> | undefined;
  /**
   * Demand that AMD's firmware completed its alias check (PLATFORM_INFO, bit 5): at boot no two addresses led to the same memory, by a
   * false SPD for instance. It says nothing about later: an interposer that aliases memory while the machine runs passes it. A TDX
   * quote cannot meet this demand, nor the next two.
   */
  readonly requireAliasCheck?: boolean | undefined;
  /**
   * Demand that SMT is off (PLATFORM_INFO, bit 0) and that the guest would not start with it (POLICY, bit 16): no sibling thread of
   * somebody else shares its cores. Other guests still share caches with it.
   */
  readonly requireSmtOff?: boolean | undefined;
  /**
   * Demand that ciphertext hiding is on (PLATFORM_INFO, bit 4) and that the guest would not start without it (POLICY, bit 24; AMD 56860,
   * revision 1.58): the host's software reads no ciphertext of the guest's memory. Anybody who taps the memory bus still does.
   */
  readonly requireCiphertextHiding?: boolean | undefined;
  /** CSP ids of the providers whose VLEKs are accepted; any by default. */
  readonly cspIds?: readonly string[] | undefined;
  /** Intel's statuses that are accepted; UpToDate alone by default. Revoked and NotSupported never are. */
  readonly tcb?: readonly TcbStatus[] | undefined;
  /** The least `tcbEvaluationDataNumber` of Intel's texts. */
  readonly minTcbEvaluation?: number | undefined;
}

export interface CpuVerifyOptions {
  /** The instant of the verification. Now by default. */
  readonly at?: Date | undefined;
  /** PEM certificates to trust in place of the pinned ones. */
  readonly roots?: { readonly amd?: string | undefined; readonly intel?: string | undefined } | undefined;
  /** PEM certificates of simulated processors' test roots. Evidence under one passes, and proves nothing about hardware. */
  readonly simulatedRoots?: string | undefined;
  /** The caller's own collateral; AMD's revocation list in DER. Where it is valid at `at`, it replaces that of the evidence. */
  readonly collateral?:
    | { readonly tdx?: TdxCollateral | undefined; readonly amdCrl?: Uint8Array | undefined }
    | undefined;
  /** Checks that the caller leaves out; each is shown as a skip with that reason. */
  readonly without?: { readonly revocation?: boolean | undefined } | undefined;
  /** Values that the evidence must hold. */
  readonly expected?: CpuExpected | undefined;
  readonly policy?: CpuPolicy | undefined;
  /** The guests and launch files that the caller knows; without it, which software runs is not compared. Text, or parsed. */
  readonly reference?: CpuReference | string | undefined;
  /**
   * The weights that the launch file must have its backend load, at level `measured`: their verity root, or `weights.json` as text or
   * parsed. A processor's bare evidence shows no launch file.
   */
  readonly weights?: string | Pick<Weights, 'verity_root'> | undefined;
  /** No check runs after one that failed. */
  readonly stopAtFailure?: boolean | undefined;
}

/** As verifications of answers and sessions set them. */
export interface ReleasedCpuOptions extends CpuVerifyOptions {
  /** The release whose list `reference` is. */
  readonly release?: ReleaseClaims | undefined;
}

/** Those of them that a verification of a whole attestation or session takes; it has all others itself. */
export type CpuPartOptions = Pick<CpuVerifyOptions, 'roots' | 'collateral' | 'policy' | 'reference' | 'weights'>;

export interface CpuExpected {
  /** REPORTDATA in hex: at most 64 bytes, the rest is zero. For Azure's types: exactly what the vTPM's quote signed. */
  readonly reportData?: string | undefined;
}

/** A list of reference values, as `--reference FILE` has it. docs/attestation.md §7.13 says what each member is. */
export interface CpuReference {
  readonly version: 1;
  readonly cpu: readonly GuestReference[];
  /** SHA-256 of launch files, in hex. */
  readonly launch: readonly string[];
}

/** One guest. Lists have at least one value, in hex; any of them will do. */
export type GuestReference = SnpReference | TdxReference | AzureReference;

interface SnpReference {
  readonly type: 'SEV_SNP';
  readonly measurement: readonly string[];
  /** The privilege levels that may request the report: `[0]` by default, the highest. */
  readonly vmpl?: readonly number[] | undefined;
  /** Digests of the key that signed the guest's identity block; not compared by default. */
  readonly id_key_digest?: readonly string[] | undefined;
  readonly launch_in: 'host_data' | 'measurement';
}

interface TdxReference {
  readonly type: 'TDX';
  readonly mrtd: readonly string[];
  /** null: not compared. It depends on the machine's shape: memory, devices, ACPI tables. */
  readonly rtmr0: readonly string[] | null;
  readonly rtmr1: readonly string[];
  readonly rtmr2: readonly string[];
  /** Without it the register must be zero, or there must be an event log; one that has no event of RTMR3 leaves it open. */
  readonly rtmr3?: readonly string[] | undefined;
  readonly launch_in: 'mrconfigid' | 'rtmr3' | 'measurement';
}

interface AzureReference {
  readonly type: 'AZURE_SEV_SNP' | 'AZURE_TDX';
  /** MEASUREMENT or MRTD: of Azure's paravisor. */
  readonly measurement: readonly string[];
  readonly vmpl?: readonly number[] | undefined;
  /** SHA-256 registers by number, which measure the software that the paravisor started. At least one. */
  readonly pcrs: Readonly<Record<string, readonly string[]>>;
  readonly launch_in: 'measurement';
}

/** The options, read once. */
export interface CpuContext {
  readonly at: Date;
  readonly amdRoots: readonly Certificate[];
  readonly intelRoots: readonly Certificate[];
  readonly simulatedRoots: readonly Certificate[];
  readonly policy: CpuPolicy;
  readonly collateral: NonNullable<CpuVerifyOptions['collateral']>;
  readonly withoutRevocation: boolean;
  /** null: which software runs is not compared. */
  readonly reference: CpuReference | null;
  /** The release whose list it is; null: it is the caller's own. */
  readonly release: ReleaseClaims | null;
  /** The expected verity root; null: any weights. */
  readonly weights: string | null;
  /** Whether the caller's roots stand in place of AMD's and Intel's. */
  readonly ownRoots: boolean;
}

/** The claims of the evidence, in hex; null where it has none. Nothing here is proven unless the report is valid. */
export interface CpuClaims {
  readonly type: CpuType;
  readonly simulated: boolean;
  readonly product: Product | null;
  readonly chip_id: string | null;
  /** Intel's id of the platform, in its PCK certificate. */
  readonly ppid: string | null;
  readonly vmpl: number | null;
  readonly report_data: string;
  /** MEASUREMENT of SEV-SNP, MRTD of TDX. */
  readonly measurement: string;
  readonly rtmrs: readonly string[] | null;
  /** HOST_DATA of SEV-SNP, MRCONFIGID of TDX: set by the host, and signed. */
  readonly host_data: string;
  readonly id_key_digest: string | null;
  readonly tcb: SnpTcb | null;
  readonly fmspc: string | null;
  readonly tcb_status: TcbStatus | null;
  readonly advisories: readonly string[];
  /** SHA-256 registers of Azure's vTPM. */
  readonly pcrs: readonly string[] | null;
  /** The guest's software, where the caller knows it; null where it was not compared or is unknown. */
  readonly software: CpuSoftware | null;
}

/** The software that the caller knows. */
export interface CpuSoftware {
  /** SHA-256 of the launch file. */
  readonly launch: string;
  /** Its images by service; null where the launch file itself was not at hand. */
  readonly images: Readonly<Record<string, string>> | null;
  /** The weights that it mounts into the backend's container; null where the file is of version 1, or was not at hand. */
  readonly weights: readonly Weights[] | null;
  /** Those of them that the backend's command loads. */
  readonly model: Weights | null;
  /** What the caller's reference value leaves out, in words. */
  readonly uncompared: string | null;
  /** SHA-256 of the release's statement, where the list is that of a release. */
  readonly release?: string;
}

/** A verified session, for the attestations that name it instead of carrying it. `verifySession` returns it. */
export interface VerifiedSession {
  /** The exact text that GPUs and processor signed. */
  readonly statement: string;
  readonly cpu: CpuClaims;
  /** The key configurations that the statement names for sealed prompts: `application/ohttp-keys` in base64. null: it names none. */
  readonly hpke: string | null;
}

export interface CpuReport {
  readonly valid: boolean;
  /** Not valid, but nothing was found wrong: what a check needs was not at hand. */
  readonly incomplete: boolean;
  readonly checks: readonly Check[];
  /** null where the evidence cannot be read. */
  readonly claims: CpuClaims | null;
}

// The names of the options.

export const CPU_PART_OPTIONS: Names<CpuPartOptions> = {
  roots: true,
  collateral: true,
  policy: true,
  reference: true,
  weights: true,
};
const CPU_OPTIONS: Names<CpuVerifyOptions> = {
  ...CPU_PART_OPTIONS,
  at: true,
  simulatedRoots: true,
  without: true,
  expected: true,
  stopAtFailure: true,
};
const CPU_ROOTS: Part<CpuVerifyOptions, 'roots'> = { amd: true, intel: true };
const CPU_COLLATERAL: Part<CpuVerifyOptions, 'collateral'> = { tdx: true, amdCrl: true };
const CPU_WITHOUT: Part<CpuVerifyOptions, 'without'> = { revocation: true };
const CPU_EXPECTED: Part<CpuVerifyOptions, 'expected'> = { reportData: true };
const CPU_POLICY: Part<CpuVerifyOptions, 'policy'> = {
  products: true,
  chips: true,
  minTcb: true,
  requireAliasCheck: true,
  requireSmtOff: true,
  requireCiphertextHiding: true,
  cspIds: true,
  tcb: true,
  minTcbEvaluation: true,
};
const MIN_TCB: Part<CpuPolicy, 'minTcb'> = { Milan: true, Genoa: true, Turin: true };

/** @throws {TypeError} naming an option that there is not. */
export function refuseUnknownCpuOptions(options: CpuVerifyOptions, names: object = CPU_OPTIONS, where = ''): void {
  refuseUnknown(options, names, where);
  refuseUnknown(options.roots, CPU_ROOTS, `${where}roots.`);
  refuseUnknown(options.collateral, CPU_COLLATERAL, `${where}collateral.`);
  refuseUnknown(options.without, CPU_WITHOUT, `${where}without.`);
  refuseUnknown(options.expected, CPU_EXPECTED, `${where}expected.`);
  refuseUnknown(options.policy, CPU_POLICY, `${where}policy.`);
  refuseUnknown(options.policy?.minTcb, MIN_TCB, `${where}policy.minTcb.`);
}
