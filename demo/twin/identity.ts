// The identity of the simulated H100: every name, version and measurement is recognisably not a real device's.
import { createHash } from 'node:crypto';

export const TWIN = {
  arch: 'HOPPER',
  model: 'SIMULATED H100',
  organization: 'Countersign SIMULATED',
  /** ISO 3166-1 leaves ZZ to its users; RFC 2606 keeps .invalid out of the DNS. */
  country: 'ZZ',
  ocsp_url: 'http://ocsp.simulated.invalid',
  crl_url: 'http://crl.simulated.invalid',
  /** In the form of a driver version; no driver has ever had it. */
  driver_version: '000.00.00',
  /** In the form of a VBIOS version; 53 49 4D is "SIM" in ASCII. */
  vbios_version: '53.49.4D.00.01',
  chip: 'GH100',
  chip_sku: 'SIM',
  project: 'SIM0',
  project_sku: 'SIM0',
  /** IANA's private enterprise number 0 is reserved; NVIDIA's is 5703. */
  manufacturer_id: '0',
} as const;

/** SHA-384 of a label that a person can read and repeat. */
export const labelled = (label: string): Buffer => createHash('sha384').update(label).digest();

export const MEASUREMENT_COUNT = 64;
const SIZE_BYTES = 48;

/** The RIM indices (0 to 63) at which a genuine H100 has measured something; the others stay zero. */
const MEASURED: ReadonlySet<number> = new Set([...range(1, 7), 9, 11, 21, 22, ...range(25, 27), ...range(29, 40)]);

const MEASUREMENTS: readonly Buffer[] = Array.from({ length: MEASUREMENT_COUNT }, (_, index) =>
  MEASURED.has(index) ? labelled(`SIMULATED measurement ${index}`) : Buffer.alloc(SIZE_BYTES),
);

/** What the twin measures at RIM index `index`; SPDM numbers its blocks from 1, so this is block `index + 1`. */
export const measurementAt = (index: number): Buffer => MEASUREMENTS[index] ?? Buffer.alloc(SIZE_BYTES);

/** How often the measurement was extended: once, where anything was measured. */
export const extensionsAt = (index: number): number => (MEASURED.has(index) ? 1 : 0);

/** The firmware that the twin runs, the same in every twin's leaf certificate and report. */
export const FWID = labelled('SIMULATED GSP firmware');

export function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}
