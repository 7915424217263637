// The checks of a report of SEV-SNP: its signer, processor, firmware and guest policy.

import { equal, isZero, toHex } from '../common/bytes.ts';
import { CheckFailure, type Outcome, type Passed, passed, seen, skipped } from '../common/checks.ts';
import type { Certificate } from '../x509/certificate.ts';
import { isIssuedBy, trustedPath } from '../x509/chain.ts';
import { type Crl, isRevoked, parseCrl } from '../x509/crl.ts';
import { DerError, integer, readOne, TAG } from '../x509/der.ts';
import { ecdsaVerifyRaw } from '../x509/public-key.ts';
import type { CpuContext, CpuPolicy, Product, SnpTcb, SnpTcbPart } from './cpu-options.ts';
import { PRODUCTS, type SnpReport, TCBS, tcbOf } from './evidence/snp-report.ts';

/** A verified path: leaf, ASK or ASVK, ARK. */
export interface AmdPath {
  readonly leaf: Certificate;
  readonly authority: Certificate;
  readonly root: Certificate;
  /** By the root's name: each product has its own root. */
  readonly product: Product;
  readonly kind: SnpReport['signingKey'];
  readonly simulated: boolean;
}

const DEFAULT_PRODUCTS: readonly Product[] = ['Genoa', 'Turin'];

/** @throws {CheckFailure} cpu_signature_invalid */
export async function checkSnpSignature(report: SnpReport, leaf: Certificate): Promise<Passed<true>> {
  if (leaf.curve !== 'P-384' || !(await ecdsaVerifyRaw(leaf, 'SHA-384', report.signature, report.signed)))
    throw new CheckFailure('cpu_signature_invalid', 'the signature of the report does not verify under its leaf');
  return seen('ECDSA P-384 over the whole report, by the key of the leaf certificate');
}

/**
 * @param chain leaf, then ASK or ASVK. A VCEK must stand under an ASK, a VLEK under an ASVK.
 * @throws {CheckFailure} chain_invalid, certificate_expired, untrusted_root, simulated_root_refused
 */
export async function checkSnpChain(chain: readonly Certificate[], context: CpuContext): Promise<Passed<AmdPath>> {
  const anchors = { ...context, roots: context.amdRoots };
  const { path, simulated } = await trustedPath(chain, anchors, 'a simulated processor');
  const [leaf, authority, root, ...more] = path;
  const kind = leaf?.subjectCommonName.replace('SEV-', '');
  if (leaf === undefined || authority === undefined || root === undefined || more.length > 0 || leaf.isCa)
    throw invalid('the chain is not leaf, ASK or ASVK, ARK');
  if (kind !== 'VCEK' && kind !== 'VLEK') throw invalid('the leaf is neither a VCEK nor a VLEK');
  const product = PRODUCTS.find((name) => root.subjectCommonName === `ARK-${name}`);
  if (product === undefined) throw invalid('the root is not the one of a product that is known');
  if (authority.subjectCommonName !== (kind === 'VCEK' ? `SEV-${product}` : `SEV-VLEK-${product}`))
    throw invalid(`a ${kind} of ${product} has another authority above it`);
  const detail = `${kind} of ${product} up to ${simulated ? 'the simulated' : 'the pinned'} root`;
  return passed(detail, { leaf, authority, root, product, kind, simulated });
}

const invalid = (message: string) => new CheckFailure('chain_invalid', message);

// AMD's extensions of a leaf (57230, "VCEK Certificate and KDS Interface Specification", §3.1).

const AMD = '1.3.6.1.4.1.3704.1';
const PRODUCT_NAME = `${AMD}.2`;
const HWID = `${AMD}.4`;
const CSP_ID = `${AMD}.5`;
const SPL: Readonly<Record<SnpTcbPart, string>> = {
  bl: `${AMD}.3.1`,
  tee: `${AMD}.3.2`,
  snp: `${AMD}.3.3`,
  ucode: `${AMD}.3.8`,
  fmc: `${AMD}.3.9`,
};
const IA5 = TAG.ia5String;

/** @throws {CheckFailure} cpu_identity_mismatch: the leaf was issued for another processor, product or firmware. */
export function checkSnpIdentity(
  report: SnpReport,
  { leaf, product, kind }: AmdPath,
  { policy }: CpuContext,
): Passed<SnpTcb> {
  if (report.signingKey !== kind)
    throw mismatch(`the report says that a ${report.signingKey} signed it, not a ${kind}`);
  if (report.product !== null && report.product !== product)
    throw mismatch(`the report is of ${report.product}, its certificates are of ${product}`);
  try {
    // `Milan-B0` or, without its stepping, `Genoa`.
    const named = text(leaf, PRODUCT_NAME);
    if (named !== product && !named.startsWith(`${product}-`)) throw mismatch('the leaf names another product');
    const tcb = tcbOf(report.tcb.reported, product);
    if (tcb === null) throw mismatch(`the reported TCB has bytes that mean nothing on ${product}`);
    for (const [part, version] of Object.entries(tcb))
      if (integer(extension(leaf, SPL[part as SnpTcbPart])) !== BigInt(version))
        throw mismatch(`the reported TCB and the leaf differ in ${part}`);
    if (kind === 'VCEK') checkChip(report, leaf, product);
    else checkProvider(leaf, policy);
    const whose = kind === 'VCEK' ? 'of the chip that the report names' : "a cloud provider's";
    return passed(`the leaf is ${whose}, for the TCB that it reports: ${words(tcb)}`, tcb);
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('cpu_identity_mismatch', `the leaf's extensions: ${cause.message}`, { cause });
  }
}

const mismatch = (message: string) => new CheckFailure('cpu_identity_mismatch', message);

const words = (tcb: SnpTcb): string =>
  Object.entries(tcb)
    .map(([part, version]) => `${part} ${version}`)
    .join(', ');

function extension(leaf: Certificate, id: string) {
  const { value } = leaf.extensions.get(id) ?? {};
  if (value === undefined) throw new DerError(`${id} is absent`);
  return readOne(value);
}

function text(leaf: Certificate, id: string): string {
  const { tag, content } = extension(leaf, id);
  if (tag !== IA5 || content.length > 256) throw new DerError(`${id} is not a short IA5String`);
  return String.fromCharCode(...content);
}

/** AMD's leaves hold the chip's id bare; its specification puts it into an OCTET STRING. Turin's has 8 bytes. */
function checkChip({ chipId }: SnpReport, leaf: Certificate, product: Product): void {
  const length = product === 'Turin' ? 8 : 64;
  const value = leaf.extensions.get(HWID)?.value ?? new Uint8Array();
  const id = value.length === length ? value : readOne(value, TAG.octetString).content;
  if (id.length !== length || !equal(id, chipId.subarray(0, length)) || !isZero(chipId.subarray(length)))
    throw mismatch('the leaf was issued for another chip');
}

function checkProvider(leaf: Certificate, { cspIds }: CpuPolicy): void {
  if (cspIds !== undefined && !cspIds.includes(text(leaf, CSP_ID)))
    throw mismatch("the VLEK is a provider's that the caller does not accept");
}

/**
 * Looks for the ASK or the ASVK on the ARK's list. The list cannot name leaves, which have no serial number of their own.
 * @param carried DER of the list in the evidence.
 * @throws {CheckFailure} revocation_unavailable, revocation_invalid, certificate_revoked
 */
export async function checkSnpRevocation(
  { authority, root }: AmdPath,
  carried: Uint8Array | null,
  { at, collateral, withoutRevocation }: CpuContext,
): Promise<Outcome<true>> {
  if (withoutRevocation) return skipped('the caller asked for no such check');
  const lists = [collateral.amdCrl, carried].filter((list) => list != null).map(read);
  const isCurrent = ({ thisUpdate, nextUpdate }: Crl) => at >= thisUpdate && at <= nextUpdate;
  const current = lists.find(isCurrent);
  const crl = current ?? lists[0];
  if (crl === undefined) throw new CheckFailure('revocation_unavailable', "AMD's revocation list is not at hand");
  if (!(await isIssuedBy(crl, root)))
    throw new CheckFailure('revocation_invalid', 'the revocation list is not one that the root signed');
  // A certificate on an old list stays revoked.
  if (isRevoked(crl, authority))
    throw new CheckFailure('certificate_revoked', `AMD revoked '${authority.subjectCommonName}'`);
  if (current === undefined)
    throw new CheckFailure('revocation_unavailable', 'the revocation list does not hold at this time');
  return seen(`'${authority.subjectCommonName}' is not on the root's list; about the leaf nobody can be asked`);
}

function read(der: Uint8Array): Crl {
  try {
    return parseCrl(der);
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('revocation_invalid', `the revocation list: ${cause.message}`, { cause });
  }
}

const MIGRATE_MA = 1n << 18n;
const DEBUG = 1n << 19n;
/** Bits 26 to 63 of POLICY are reserved (56860, revision 1.58, §4.3); PAGE_SWAP_DISABLE is the last that is known. */
const KNOWN_POLICY_BITS = 26n;
const SMT_ALLOWED = 1n << 16n;
const CIPHERTEXT_HIDING_DRAM = 1n << 24n;
/** PLATFORM_INFO (56860, revision 1.58, §7.3). */
const SMT_EN = 1n << 0n;
const CIPHERTEXT_HIDING_DRAM_EN = 1n << 4n;
const ALIAS_CHECK_COMPLETE = 1n << 5n;
const MAX_GUEST_VMPL = 3;

/** @throws {CheckFailure} debug_enabled, cpu_policy_refused */
export function checkSnpMode(report: SnpReport, { product, kind }: AmdPath, { policy }: CpuContext): Passed<true> {
  const { products = DEFAULT_PRODUCTS, chips } = policy;
  if ((report.policy & DEBUG) !== 0n) throw new CheckFailure('debug_enabled', 'the host may debug this guest');
  if (report.policy >> KNOWN_POLICY_BITS !== 0n) throw refused('POLICY has bits that are not known');
  if ((report.policy & MIGRATE_MA) !== 0n) throw refused('a migration agent may move this guest');
  if (report.vmpl > MAX_GUEST_VMPL) throw refused('the host asked for the report, not the guest');
  if (report.maskChipKey) throw refused('the chip is told not to sign reports with its key');
  if (!products.includes(product)) throw refused(`reports of ${product} are not accepted`);
  // A VLEK is a provider's: it signs for whatever chip the report names.
  if (chips !== undefined && (kind === 'VLEK' || !chips.includes(toHex(report.chipId)) || isZero(report.chipId)))
    throw refused('the chip is not one that the caller accepts');
  checkDemands(report, policy);
  return seen(`${product}; no debugging, no migration; asked for by the guest at VMPL ${report.vmpl}`);
}

/** PLATFORM_INFO says how the machine is configured now, POLICY without what the guest would not have started. */
function checkDemands({ policy: guest, platformInfo }: SnpReport, policy: CpuPolicy): void {
  if (policy.requireAliasCheck && (platformInfo & ALIAS_CHECK_COMPLETE) === 0n)
    throw refused('the firmware does not say that it looked for aliased memory');
  if (policy.requireSmtOff && ((platformInfo & SMT_EN) !== 0n || (guest & SMT_ALLOWED) !== 0n))
    throw refused('SMT is on, or POLICY allows it');
  const isHidden = (platformInfo & CIPHERTEXT_HIDING_DRAM_EN) !== 0n && (guest & CIPHERTEXT_HIDING_DRAM) !== 0n;
  if (policy.requireCiphertextHiding && !isHidden)
    throw refused('ciphertext hiding is off, or POLICY does not demand it');
}

const refused = (message: string) => new CheckFailure('cpu_policy_refused', message);

/**
 * The least TCB of a product for which the caller names none. AMD-SB-3023 (CVE-2025-48514) and AMD-SB-3020 (CVE-2025-0033, RMPocalypse) ask
 * for these versions of the SNP firmware: so AMD's own driver in Linux (commit 4b28f0846ef6, 2026-04-16: Zen 4 from 0x1b, Zen 5 from
 * 0x04), and the review in ariofrio/pi-tee that quotes the bulletins (2026-10-08). AMD-SB-3034 withdrew its values on 2026-09-24.
 * Microcode is left out: its numbers differ between steppings of a product (AMD-SB-3027: Genoa 0x56, Genoa-X and Turin 0x51). Of the
 * other parts no source states a value.
 */
const LEAST_TCB: Readonly<Partial<Record<Product, SnpTcb>>> = { Genoa: { snp: 0x1b }, Turin: { snp: 0x04 } };

/**
 * All four versions count: a guest that was launched under bad firmware stays exposed after an update.
 * @throws {CheckFailure} tcb_not_accepted
 */
export function checkSnpTcb(report: SnpReport, { product }: AmdPath, { policy }: CpuContext): Outcome<true> {
  const least = policy.minTcb?.[product] ?? LEAST_TCB[product] ?? {};
  if (Object.keys(least).length === 0) return skipped(`the caller named no least TCB of ${product}`);
  for (const which of TCBS) {
    const tcb = tcbOf(report.tcb[which], product);
    for (const [part, version] of Object.entries(least))
      if (!((tcb?.[part as SnpTcbPart] ?? -1) >= version))
        throw new CheckFailure('tcb_not_accepted', `the ${which} TCB has not the ${part} that is asked, ${version}`);
  }
  return seen(`reported, current, committed and launch TCB have at least ${words(least)}`);
}
