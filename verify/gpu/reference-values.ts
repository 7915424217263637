// A device's endorsements and reference values: finds and verifies its RIMs, checks revocation, compares measurements.

import { equal } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { verifyOcsp } from '../x509/revocation.ts';
import type { Collateral, OcspQuery, RimQuery } from './collateral.ts';
import { type DeviceIdentity, rimIds, rimRoots } from './nvidia.ts';
import { type Manifest, type Measurement, type Rim, verifyRim } from './rim/rim.ts';
import type { Report } from './spdm/report.ts';

/** Where endorsements and reference values come from, and what they must be valid under. */
export interface EndorsementContext {
  readonly clocks: { readonly ocsp: Date; readonly rim: Date; readonly rimOcsp: Date };
  readonly rimRoots: readonly Certificate[];
  readonly collateral: Collateral;
}

interface ReferenceValues {
  readonly driver: Rim | null;
  readonly vbios: Rim;
  /** The queries that found them. */
  readonly queries: readonly RimQuery[];
}

/** @throws {CheckFailure} rim_unavailable, and what verifyRim throws. */
export async function findReferenceValues(
  identity: DeviceIdentity,
  report: Report,
  context: EndorsementContext,
): Promise<ReferenceValues> {
  const ids = rimIds(identity, report.opaque);
  const { driverVersion, vbiosVersion } = report.opaque;
  if (ids === null || vbiosVersion === null)
    throw new CheckFailure('rim_unavailable', 'the report does not say which reference values are its');
  const { chip } = identity;
  const ofDriver =
    ids.driver === null || driverVersion === null ? null : { id: ids.driver, version: driverVersion, chip };
  const ofVbios = { id: ids.vbios, version: vbiosVersion, chip };
  const [driver, vbios] = await inOrder([
    ofDriver === null ? null : findRim(ofDriver, 'driver', context),
    findRim(ofVbios, identity.kind === 'switch' ? 'switch-bios' : 'vbios', context),
  ]);
  return { driver, vbios, queries: ofDriver === null ? [ofVbios] : [ofDriver, ofVbios] };
}

/** Like `Promise.all`, but where several fail it always throws the error of the first in the list. */
async function inOrder<A, B>(all: readonly [A | Promise<A>, B | Promise<B>]): Promise<[A, B]> {
  await Promise.allSettled(all);
  return [await all[0], await all[1]];
}

async function findRim(query: RimQuery, kind: Rim['kind'], context: EndorsementContext): Promise<Rim> {
  const { id } = query;
  const document = await available('rim_unavailable', id, () => context.collateral.rim(query));
  return orRefused([query], context, async () => {
    const rim = await verifyRim(document, { roots: context.rimRoots, at: context.clocks.rim });
    // How NVIDIA marks a switch's RIM is unknown: version, signer and measurements distinguish its BIOS from a GPU's.
    const isDriver = rim.kind === 'driver';
    if (isDriver !== (kind === 'driver'))
      throw new CheckFailure('rim_mismatch', `what came for ${id} is a RIM of another kind`);
    return rim;
  });
}

/**
 * Verifies a RIM document by itself, for a cache of documents.
 * @param roots as in VerifyOptions. @param at the instant at which its signer's certificates must be valid.
 * @returns the earliest end of the signer's certificates. @throws {CheckFailure} rim_malformed, rim_signature_invalid,
 * rim_chain_invalid, rim_signer_expired.
 */
export async function checkRim(
  document: string | Uint8Array,
  { roots, at }: { readonly roots?: { readonly rim?: string | undefined } | undefined; readonly at: Date },
): Promise<Date> {
  const trusted = roots?.rim === undefined ? rimRoots() : parsePem(roots.rim);
  return firstEnd((await verifyRim(document, { roots: trusted, at })).signer);
}

/** The earliest end of a chain's certificates. */
export const firstEnd = (chain: readonly Certificate[]): Date =>
  new Date(Math.min(...chain.map(({ notAfter }) => notAfter.getTime())));

/** Tells the collateral when a check refuses a document of it, so that the document is not cached. */
async function orRefused<T>(
  queries: readonly (RimQuery | OcspQuery)[],
  { collateral }: EndorsementContext,
  check: () => T | Promise<T>,
): Promise<T> {
  try {
    return await check();
  } catch (error) {
    await Promise.all(queries.map((query) => collateral.refused?.(query)));
    throw error;
  }
}

/** @throws {CheckFailure} measurement_mismatch, rim_mismatch. */
export function compare(
  { driver, vbios, queries }: ReferenceValues,
  identity: DeviceIdentity,
  { blocks, opaque }: Report,
  context: EndorsementContext,
): Promise<MatchedMeasurements> {
  return orRefused(queries, context, () =>
    matchMeasurements(driver === null ? { vbios } : { driver, vbios }, blocks, {
      ...(opaque.driverVersion === null ? {} : { driverVersion: opaque.driverVersion }),
      vbiosVersion: opaque.vbiosVersion ?? '',
      // The product name is known for Hopper's RIMs alone.
      ...(identity.arch === 'HOPPER' ? { product: identity.chip } : {}),
      nvdec0Disabled: opaque.nvdec0Disabled === true,
      svns: opaque.svns,
    }),
  );
}

/**
 * Checks the OCSP status of a device's certificates and of those that signed its reference values. Left out are its leaf, which the
 * boot ROM issues at each start and no responder knows, and the roots.
 * @returns how many certificates were good. @throws {CheckFailure}
 */
export async function checkRevocation(
  path: readonly Certificate[],
  rims: ReferenceValues | null,
  context: EndorsementContext,
): Promise<number> {
  const { collateral, clocks } = context;
  const queries = [
    ...pairs(path.slice(1), clocks.ocsp),
    ...pairs(rims?.driver?.signer ?? [], clocks.rimOcsp),
    ...pairs(rims?.vbios.signer ?? [], clocks.rimOcsp),
  ];
  const distinct = queries.filter(
    ({ certificate }, i) => queries.findIndex((other) => equal(other.certificate.der, certificate.der)) === i,
  );
  const answers = distinct.map(async (query) => {
    const { certificate, issuer, at } = query;
    const label = `the status of '${certificate.subjectCommonName}'`;
    const { response, nonce } = await available('revocation_unavailable', label, () => collateral.ocsp(query));
    await orRefused([query], context, () => verifyOcsp(response, certificate, issuer, { at, nonce }));
  });
  // Waits for all, so that the failure that is reported does not depend on which response is fast.
  for (const result of await Promise.allSettled(answers)) if (result.status === 'rejected') throw result.reason;
  return answers.length;
}

function pairs(path: readonly Certificate[], at: Date) {
  return path.flatMap((certificate, i) => {
    const issuer = path[i + 1];
    return issuer === undefined ? [] : [{ certificate, issuer, at }];
  });
}

/** An error of the network or of the caller's collateral counts as absence, with its reason. */
async function available<T>(
  code: 'rim_unavailable' | 'revocation_unavailable',
  label: string,
  get: () => Promise<T | null>,
): Promise<T> {
  let got: T | null;
  try {
    got = await get();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.replace(/[^ -~]/g, '?').slice(0, 200) : 'no reason given';
    throw new CheckFailure(code, `${label} could not be had: ${reason}`, { cause });
  }
  if (got === null) throw new CheckFailure(code, `${label} is not at hand`);
  return got;
}

// Compares reference values with a device's measurements: each active RIM index i with measurement block i + 1.

/** Facts from the signed report, and from nowhere else. */
interface ReportFacts {
  /** The driver's version; required where a driver RIM is given. */
  readonly driverVersion?: string;
  /** The VBIOS version, or the switch's BIOS version: five pairs of hexadecimal digits. */
  readonly vbiosVersion: string;
  /** The chip, `GH100`, where the report names it. */
  readonly product?: string;
  /** The opaque field NVDEC0_STATUS is 0x55: the decoder is fused off and its measurement stays empty. */
  readonly nvdec0Disabled?: boolean;
  /** Security version numbers by type of opaque data, where the report has such fields. */
  readonly svns?: ReadonlyMap<number, number>;
}

interface MatchedMeasurements {
  /** Measurements compared and found right; a skipped one is not among them. */
  readonly matched: number;
  readonly driver: number;
  readonly vbios: number;
  /** RIM indices left out because NVDEC0 is disabled. */
  readonly skipped: readonly number[];
}

/** The measurement of NVDEC0. */
const NVDEC0_INDEX = 35;

/**
 * @param rims a GPU has two; a switch has its BIOS RIM alone, as `vbios`.
 * @param blocks the report's measurement values in hexadecimal, by SPDM block index, counted from 1.
 * @throws {CheckFailure} rim_mismatch: a RIM is for another version, or the two claim the same index;
 * measurement_mismatch: naming the RIM indices, counted from 0.
 */
export function matchMeasurements(
  rims: { readonly driver?: Manifest; readonly vbios: Manifest },
  blocks: ReadonlyMap<number, string>,
  facts: ReportFacts,
): MatchedMeasurements {
  const { driver, vbios } = rims;
  if (driver !== undefined) sameVersion('driver', driver, facts.driverVersion, facts.product);
  sameVersion('VBIOS', vbios, facts.vbiosVersion, facts.product);
  if (driver !== undefined) noConflict(driver, vbios);
  const ofDriver = driver === undefined ? NOTHING : compared('driver', driver, blocks, facts);
  const ofVbios = compared('VBIOS', vbios, blocks, facts);
  const wrong = [...ofDriver.wrong, ...ofVbios.wrong];
  if (wrong.length > 0) throw new CheckFailure('measurement_mismatch', `the device does not match ${wrong.join('; ')}`);
  return {
    matched: ofDriver.matched + ofVbios.matched,
    driver: ofDriver.matched,
    vbios: ofVbios.matched,
    skipped: [...ofDriver.skipped, ...ofVbios.skipped],
  };
}

interface Compared {
  readonly matched: number;
  readonly skipped: readonly number[];
  /** The mismatches, in words. */
  readonly wrong: readonly string[];
}
const NOTHING: Compared = { matched: 0, skipped: [], wrong: [] };

function compared(label: string, rim: Manifest, blocks: ReadonlyMap<number, string>, facts: ReportFacts): Compared {
  const matches = ([index, measurement]: [number, Measurement]) => isOneOf(measurement, blocks.get(index + 1));
  // A disabled NVDEC0 need not match; where it does, it counts like any other.
  const exempt = ([index]: [number, Measurement]) => index === NVDEC0_INDEX && facts.nvdec0Disabled === true;
  const skipped = active(rim).flatMap((one) => (exempt(one) && !matches(one) ? [one[0]] : []));
  const required = active(rim).filter(([index]) => !skipped.includes(index));
  const mismatched = required.filter((one) => !matches(one));
  const wrong = tooOld(rim, facts.svns);
  const indices = mismatched.map(([index]) => index).sort((a, b) => a - b);
  if (indices.length > 0) wrong.unshift(`${label} RIM indices ${indices.join(', ')}`);
  if (required.length === 0) wrong.unshift(`nothing in the ${label} RIM`);
  return { matched: required.length - mismatched.length, skipped, wrong };
}

const active = (rim: Manifest) => [...rim.measurements].filter(([, measurement]) => measurement.active);

function isOneOf(measurement: Measurement, block: string | undefined): boolean {
  return block !== undefined && block !== '' && measurement.values.includes(block.toLowerCase());
}

/** NVIDIA's verifier compares versions without regard to case: reports and RIMs write their digits differently. */
function sameVersion(label: string, rim: Manifest, version: string | undefined, product: string | undefined): void {
  if (version === undefined) throw new CheckFailure('rim_mismatch', `the report names no ${label} version`);
  if (rim.version.toLowerCase() !== version.toLowerCase())
    throw new CheckFailure(
      'rim_mismatch',
      `the ${label} RIM is for ${printable(rim.version)}, the report has ${printable(version)}`,
    );
  if (product !== undefined && rim.product.toLowerCase() !== product.toLowerCase())
    throw new CheckFailure(
      'rim_mismatch',
      `the ${label} RIM is for ${printable(rim.product)}, the report is of ${printable(product)}`,
    );
}

function noConflict(driver: Manifest, vbios: Manifest): void {
  const both = active(driver).flatMap(([index]) => (vbios.measurements.get(index)?.active === true ? [index] : []));
  const bounds = [...driver.minimumSvns.keys()].filter((type) => vbios.minimumSvns.has(type));
  if (both.length > 0 || bounds.length > 0)
    throw new CheckFailure(
      'rim_mismatch',
      `driver and VBIOS RIM both claim ${[...both, ...bounds.map((type) => `opaque type ${type}`)].join(', ')}`,
    );
}

function tooOld({ minimumSvns }: Manifest, svns: ReadonlyMap<number, number> | undefined): string[] {
  const below = [...minimumSvns].filter(([type, { minimum }]) => (svns?.get(type) ?? -1) < minimum);
  return below.map(([type, { minimum }]) => `security version ${minimum} of opaque type ${type}`);
}

const printable = (text: string) => `'${text.replace(/[^ -~]/g, '?').slice(0, 40)}'`;
