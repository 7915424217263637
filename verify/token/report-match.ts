// Holds what a token says of its devices against what the devices signed.

import { CheckFailure } from '../checks.ts';
import type { DeviceClaims } from '../options.ts';
import { seen, skipped } from '../run-checks.ts';
import type { ParsedToken, TokenDevice } from './token.ts';

/** @throws {CheckFailure} token_report_mismatch */
export function compareTokenWithReports({ devices }: ParsedToken, reports: readonly DeviceClaims[]) {
  if (devices.length === 0) return skipped('the token says nothing of its devices');
  const spoken_of = new Set<DeviceClaims>();
  // NVIDIA's SDK asks one verifier about the GPUs and one about the switches; it may also ask two about the same devices.
  for (const verifier of new Set(devices.map((device) => device.verifier))) {
    const its = devices.filter((device) => device.verifier === verifier);
    const kinds = new Set(its.map(kindOf));
    const theirs = reports.filter(({ kind }) => kinds.has(kind));
    // A bare JWT has no name for its device.
    const about = theirs.length === 0 ? reports : theirs;
    compareDevices(its, about);
    for (const report of about) spoken_of.add(report);
  }
  if (spoken_of.size !== reports.length)
    throw mismatch(`the token is about ${spoken_of.size} devices, the evidence of ${reports.length}`);
  return seen(
    `driver, VBIOS and ueid of ${reports.length === 1 ? 'the device' : `${reports.length} devices`} are the report's`,
  );
}

/** NVIDIA's verifiers name submodules by kind: `GPU-0`, `SWITCH-0`. */
export const kindOf = ({ name }: TokenDevice): DeviceClaims['kind'] => (/SWITCH/i.test(name) ? 'switch' : 'gpu');

function compareDevices(devices: readonly TokenDevice[], reports: readonly DeviceClaims[]): void {
  if (devices.length !== reports.length)
    throw mismatch(`the token is about ${devices.length} devices, the evidence of ${reports.length}`);
  const left = new Set(reports);
  for (const [i, device] of devices.entries()) {
    const report = device.ueid === null ? reports[i] : reports.find(({ ueid }) => ueid === device.ueid);
    if (report === undefined || !left.delete(report))
      throw mismatch(`what the token says of ${device.name} is about a device that is not in the evidence`);
    compareOne(device, report);
  }
}

function compareOne({ name, driver, vbios, hwmodel }: TokenDevice, report: DeviceClaims): void {
  const pairs = [
    ['driver', driver, report.driver],
    ['VBIOS', vbios, report.vbios],
    ['model', hwmodel, report.model],
  ] as const;
  // '' is how NVIDIA's Python verifier writes what it does not know.
  for (const [what, said, signed] of pairs)
    if (said !== null && said !== '' && said.toUpperCase() !== signed?.toUpperCase())
      throw mismatch(`the token names another ${what} for ${name} than its report`);
}

const mismatch = (message: string) => new CheckFailure('token_report_mismatch', message);
