// Compares reference values with what a device measured: each active RIM index i against measurement block i + 1.
import { CheckFailure } from '../checks.ts';
import type { Manifest, Measurement } from './manifest.ts';

/** What the signed report says of itself. None of it may come from anywhere else. */
export interface ReportFacts {
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

export interface MatchedMeasurements {
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
  /** What does not match, in words. */
  readonly wrong: readonly string[];
}
const NOTHING: Compared = { matched: 0, skipped: [], wrong: [] };

function compared(label: string, rim: Manifest, blocks: ReadonlyMap<number, string>, facts: ReportFacts): Compared {
  const matches = ([index, measurement]: [number, Measurement]) => isOneOf(measurement, blocks.get(index + 1));
  // Disabled, NVDEC0 need not match; where it does, it counts like any other.
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
