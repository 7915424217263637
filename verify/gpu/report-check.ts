// The check that the sidecar, and again the gateway, makes before it forwards an attestation: each device, GPU or switch, has one
// report over our nonce, signed by its own key under the trust anchor. NVIDIA's verifier has returned `true` for less. The relying
// party checks revocation, reference values and the device's mode (attestation.ts).
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { CheckFailure, CheckList, type CheckName } from '../common/checks.ts';
import { parseToken, type TokenDevice } from '../token/token.ts';
import { OFFLINE } from './collateral.ts';
import { inputOf, readPem } from './device-evidence.ts';
import { verifyDevices } from './devices.ts';
import { deviceRoots } from './nvidia.ts';
import { isProtected } from './topology.ts';

/** The checks that each device of an attestation, or of a session, must pass before it is forwarded. The first that failed is named. */
export const REQUIRED_OF_DEVICES: readonly CheckName[] = [
  'report_form',
  'report_nonce',
  'report_chain',
  'report_signature',
];

/** The members of an attestation that are checked here. */
export interface Carried {
  readonly token: string;
  readonly evidence: readonly Evidence[];
}

/** A genuine device's chain has some 7,000 characters. */
const MAX_CHAIN_CHARACTERS = 64 * 1024;

/**
 * @param nonce 64 lowercase hex digits.
 * @param simulatedRoot PEM of the one root that counts in place of NVIDIA's; null: NVIDIA's alone.
 * @returns the serial number of each device's leaf certificate, in decimal.
 * @throws {CheckFailure} for the first check that failed. Its message names the device, counted from 0.
 */
export async function checkReports(
  { token, evidence }: Carried,
  nonce: string,
  simulatedRoot: string | null,
  at = new Date(),
): Promise<readonly string[]> {
  checkToken(token, nonce);
  if (evidence.length === 0) throw new CheckFailure('evidence_missing', 'there is no evidence');
  const long = evidence.findIndex((one) => one.certificate_chain.length > MAX_CHAIN_CHARACTERS);
  if (long >= 0) throw new CheckFailure('evidence_malformed', `device ${long}: the certificate chain is too long`);
  const list = new CheckList();
  const roots = simulatedRoot === null ? deviceRoots() : readPem(simulatedRoot, 'the simulated root');
  const devices = await verifyDevices(list, evidence.map(inputOf), nonce, [], {
    clocks: { report: at, ocsp: at, rim: at, rimOcsp: at },
    deviceRoots: roots,
    // No other root counts, whatever a chain says of itself.
    simulatedRoots: roots,
    rimRoots: [],
    collateral: OFFLINE,
    nvidia: { device: simulatedRoot === null, rim: false },
    checksSimulated: false,
    options: { without: { referenceValues: true, revocation: true } },
  });
  const failures = list.checks.filter(({ status }) => status === 'fail');
  const [failed] = REQUIRED_OF_DEVICES.flatMap((required) => failures.filter(({ name }) => name === required));
  if (failed?.code !== undefined) throw new CheckFailure(failed.code, `device ${failed.device}: ${failed.detail}`);
  if (devices.some(isProtected) && !devices.some(({ claims }) => claims.kind === 'switch'))
    throw new CheckFailure(
      'evidence_missing',
      'a GPU is behind protected PCIe, and there is no evidence of its switches',
    );
  return devices.map(({ claims }) => claims.ueid);
}

/** Refuses a token about another nonce, such as the verifier's previous result, and a negative result. */
function checkToken(token: string, nonce: string): void {
  const { nonces, overallResult, devices } = parseToken(token);
  if (nonces.length === 0 || nonces.some((one) => one !== nonce))
    throw new CheckFailure('token_nonce_mismatch', 'the token is about another nonce');
  if (overallResult === false)
    throw new CheckFailure('token_result_false', 'the verifier says that the device does not pass');
  const failed = devices.find(isNegative);
  if (failed !== undefined)
    throw new CheckFailure('token_result_false', `the verifier says that ${failed.name} does not pass`);
}

/** Whether a claim about the device is negative, whatever the overall result: a relying party would refuse the token. */
const isNegative = ({ measres, debug, secureBoot }: TokenDevice) =>
  (measres ?? 'success') !== 'success' || (debug ?? 'disabled') !== 'disabled' || secureBoot === false;
