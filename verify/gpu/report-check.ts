// The check that the sidecar, and again the gateway, makes before it forwards an attestation: each device, GPU or switch, has one
// report over our nonce, signed by its own key under the trust anchor. NVIDIA's verifier has returned `true` for less. The relying
// party checks revocation, reference values and the device's mode (attestation.ts).
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { toHex } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { LruMap } from '../common/lru.ts';
import { parseToken, type TokenDevice } from '../token/token.ts';
import type { Certificate } from '../x509/certificate.ts';
import { ChainError, chainFailure, verifyChain } from '../x509/chain.ts';
import { parseChain, readPem, readReport } from './device-evidence.ts';
import { deviceOf, deviceRoots } from './nvidia.ts';
import { type Report, verifyReportSignature } from './spdm/report.ts';

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
 * @throws {CheckFailure} for the first fault. Its message names the device, counted from 0.
 */
export async function checkReports(
  { token, evidence }: Carried,
  nonce: string,
  simulatedRoot: string | null,
  at = new Date(),
): Promise<readonly string[]> {
  checkToken(token, nonce);
  if (evidence.length === 0) throw new CheckFailure('evidence_missing', 'there is no evidence');
  const devices = await Promise.all(
    evidence.map((one, i) =>
      checkDevice(one, nonce, simulatedRoot, at).catch((error: unknown) => {
        if (!(error instanceof CheckFailure)) throw error;
        throw new CheckFailure(error.code, `device ${i}: ${error.message}`, { cause: error });
      }),
    ),
  );
  const isProtected = devices.some(({ opaque }) => opaque.protectedPcie === true || opaque.passThrough === 'ppcie');
  if (isProtected && !evidence.some(({ arch }) => arch === 'LS10'))
    throw new CheckFailure(
      'evidence_missing',
      'a GPU is behind protected PCIe, and there is no evidence of its switches',
    );
  // A boot ROM certifies another signing key for other firmware, so its own key, in the second certificate, is compared too.
  const keys = devices.flatMap(({ path }) => path.slice(0, 2).map(({ spki }) => toHex(spki)));
  if (new Set(keys).size !== keys.length)
    throw new CheckFailure('evidence_malformed', 'two devices gave the same evidence');
  return devices.map(({ path }) => String(path[0]?.serial));
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

interface CheckedDevice {
  readonly path: readonly Certificate[];
  readonly opaque: Report['opaque'];
}

async function checkDevice(
  { arch, report: text, certificate_chain }: Evidence,
  nonce: string,
  simulatedRoot: string | null,
  at: Date,
): Promise<CheckedDevice> {
  const report = readReport(text);
  if (report.nonce !== nonce) throw new CheckFailure('report_nonce_mismatch', 'the report is over another nonce');
  const path = await verifiedPath(certificate_chain, simulatedRoot, at);
  deviceOf(path, arch);
  if (!(await verifyReportSignature(report, path[0] as Certificate)))
    throw new CheckFailure('report_signature_invalid', "the report's signature does not verify under its leaf");
  return { path, opaque: report.opaque };
}

/** A device sends the same chain with every report. A verified chain is not verified again until a certificate in it expires. */
const paths = new LruMap<string, readonly Certificate[]>(64);

/** Leaf first. @throws {CheckFailure} */
async function verifiedPath(chain: string, simulatedRoot: string | null, at: Date): Promise<readonly Certificate[]> {
  if (chain.length > MAX_CHAIN_CHARACTERS)
    throw new CheckFailure('evidence_malformed', 'the certificate chain is too long');
  const key = `${simulatedRoot ?? ''}\n${chain}`;
  const known = paths.get(key);
  if (known?.every(({ notBefore, notAfter }) => at >= notBefore && at <= notAfter)) return known;
  const certificates = parseChain(chain);
  const roots = simulatedRoot === null ? deviceRoots() : readPem(simulatedRoot, 'the simulated root');
  try {
    const path = await verifyChain(certificates, roots, at);
    paths.set(key, path);
    return path;
  } catch (error) {
    throw error instanceof ChainError ? chainFailure(error) : error;
  }
}
