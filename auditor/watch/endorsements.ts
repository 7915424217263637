// When the endorsements of a proof end, and whether NVIDIA has reference values for the drivers that its GPUs have and will have.
import { bootRomKey } from '../../verify/cpu/binding.ts';
import { readCpuMember } from '../../verify/cpu/cpu-member.ts';
import { parseTdxQuote } from '../../verify/cpu/evidence/tdx-quote.ts';
import { collateralEnd } from '../../verify/cpu/tdx-collateral.ts';
import { endorsementExpiry } from '../../verify/evidence.ts';
import { inputOf, parseEvidence } from '../../verify/gpu/device-evidence.ts';
import { rimIds } from '../../verify/gpu/nvidia.ts';
import { checkRim, firstEnd } from '../../verify/gpu/reference-values.ts';
import type { Claims, Collateral, Verified, VerifyOptions } from '../../verify/index.ts';
import { parseCrl } from '../../verify/x509/crl.ts';

type Certificates = Parameters<typeof firstEnd>[0];

/** RFC 3339, of the first that ends; null: none was seen. */
export interface Ends {
  /** Of the certificates of GPUs, of their reference values' signers and of the processor. */
  readonly certificates: string | null;
  /** Of the processor's collateral, which its operator renews. */
  readonly collateral: string | null;
}

/** The devices of a verified proof: GPUs and switches as a session lists them, then the chip. */
export async function devicesOf({ attestation, claims }: Verified): Promise<string[]> {
  const keys = await Promise.all((attestation.evidence ?? []).map((one) => bootRomKey(one.certificate_chain)));
  return [...keys, claims.cpu?.chip_id, claims.cpu?.ppid].filter((one) => one != null);
}

export async function endsOf({ attestation, claims }: Verified, options: VerifyOptions): Promise<Ends> {
  const certificates: Date[] = [];
  const collateral: Date[] = [];
  for (const [i, one] of (attestation.evidence ?? []).entries()) {
    certificates.push(firstEnd(parseEvidence(inputOf(one)).chain));
    const device = claims.devices[i];
    // Nobody publishes reference values for a simulated GPU.
    if (claims.simulated || device === undefined || options.collateral === undefined) continue;
    const source = { collateral: options.collateral, roots: options.roots, at: new Date() };
    const rims = await endorsementExpiry(one, device, source).catch(() => null);
    if (rims !== null) certificates.push(rims.vbios, ...(rims.driver === null ? [] : [rims.driver]));
  }
  if (attestation.cpu !== undefined) {
    const member = readCpuMember(attestation.cpu);
    const quote = member.quote ?? (member.type === 'TDX' ? member.report : null);
    const chain: Certificates = quote === null ? member.certificates : parseTdxQuote(quote).chain;
    if (chain.length > 0) certificates.push(firstEnd(chain));
    if (member.crl !== null) collateral.push(parseCrl(member.crl).nextUpdate);
    if (member.collateral !== null) collateral.push(collateralEnd(member.collateral));
  }
  return { certificates: first(certificates), collateral: first(collateral) };
}

const first = (ends: readonly Date[]): string | null =>
  ends.length === 0 ? null : new Date(Math.min(...ends.map((end) => end.getTime()))).toISOString();

const KNOWN_MS = 3_600_000;

/** Whether there are signed reference values for drivers, asked at most once an hour for each. */
export function createReferenceSearch(
  { collateral, roots }: { readonly collateral: Collateral; readonly roots?: VerifyOptions['roots'] },
  drivers: readonly string[],
) {
  const known = new Map<string, { readonly found: Promise<boolean>; readonly until_ms: number }>();

  async function find(id: string, version: string, chip: string): Promise<boolean> {
    const document = await collateral.rim({ id, version, chip }).catch(() => null);
    if (document === null) return false;
    return checkRim(document, { roots, at: new Date() }).then(
      () => true,
      () => false,
    );
  }

  function found(id: string, version: string, chip: string): Promise<boolean> {
    const before = known.get(id);
    if (before !== undefined && Date.now() < before.until_ms) return before.found;
    const now = { found: find(id, version, chip), until_ms: Date.now() + KNOWN_MS };
    known.set(id, now);
    return now.found;
  }

  /** The drivers of the list that have none for a GPU of the proof; null of a simulated GPU, for which nobody has any. */
  return async ({ attestation, claims }: Verified): Promise<readonly string[] | null> => {
    if (claims.simulated) return null;
    const missing = new Set<string>();
    for (const [i, one] of (attestation.evidence ?? []).entries())
      for (const driver of drivers) {
        const id = idOf(one, claims.devices[i], driver);
        if (id !== null && !(await found(id.id, driver, id.chip))) missing.add(driver);
      }
    return [...missing];
  };
}

function idOf(
  evidence: Parameters<typeof inputOf>[0],
  device: Claims['devices'][number] | undefined,
  driverVersion: string,
): { readonly id: string; readonly chip: string } | null {
  if (device?.kind !== 'gpu') return null;
  const { opaque } = parseEvidence(inputOf(evidence)).report;
  const id = rimIds(device, { ...opaque, driverVersion })?.driver ?? null;
  return id === null ? null : { id, chip: opaque.chip ?? device.chip };
}
