// What the sidecar checks before it answers, whatever the attester says: one report for each device, GPU or switch, over our
// nonce, signed by the leaf of such a device's chain under NVIDIA's root (or the twin's). NVIDIA's verifier has said `true` for less.
import type { Evidence } from '../proto/attestation.ts';
import type { Nonce } from '../proto/raw.ts';
import { EncodingError, fromBase64 } from '../verify/bytes.ts';
import { CheckFailure } from '../verify/checks.ts';
import { identify } from '../verify/nvidia/device.ts';
import { DEVICE_ROOT_PEM } from '../verify/nvidia/roots.ts';
import { parseReport, type Report, verifyReportSignature } from '../verify/spdm/report.ts';
import { parseToken, type TokenDevice } from '../verify/token/index.ts';
import type { Certificate } from '../verify/x509/certificate.ts';
import { ChainError } from '../verify/x509/chain.ts';
import { DerError } from '../verify/x509/der.ts';
import { type Attester, AttesterError, type Collected } from './attester.ts';
import { verifiedPath } from './chains.ts';

const refuse = (message: string, cause?: unknown) => new AttesterError('appraisal_failed', message, false, { cause });

/** @throws {AttesterError} appraisal_failed */
export async function checkCollected(collected: Collected, nonce: Nonce, attester: Attester): Promise<void> {
  const { evidence, token } = collected;
  checkToken(token, nonce);
  if (evidence.length !== attester.devices.length)
    throw refuse(`evidence of ${evidence.length} devices where there are ${attester.devices.length}`);
  for (const [i, { arch }] of attester.devices.entries())
    if (evidence[i]?.arch !== arch)
      throw refuse(`device ${i}: evidence of a ${evidence[i]?.arch} in place of a ${arch}`);
  const root = attester.simulated?.root ?? DEVICE_ROOT_PEM;
  const checked = await Promise.all(evidence.map((one, i) => checkDevice(one, nonce, root, i)));
  const behind = checked.some(({ opaque }) => opaque.protectedPcie === true || opaque.passThrough === 'ppcie');
  if (behind && !evidence.some(({ arch }) => arch === 'LS10'))
    throw refuse('a GPU says that it is behind protected PCIe, and this attester collects nothing from its switches');
  if (new Set(checked.map(({ serial }) => serial)).size !== checked.length)
    throw refuse('two devices gave the same evidence');
}

/** A verifier that kept its last result would answer with a token about another nonce, or with one that says no. */
function checkToken(token: string, nonce: Nonce): void {
  const parsed = attempt('the token', () => parseToken(token));
  if (parsed.nonces.length === 0 || parsed.nonces.some((one) => one !== nonce))
    throw refuse('the token is about another nonce');
  if (parsed.overallResult === false) throw refuse('the verifier says that the device does not pass');
  const failed = parsed.devices.find(saysNo);
  if (failed !== undefined) throw refuse(`the verifier says that ${failed.name} does not pass`);
}

/** Of one device, whatever is said of the whole: verify/ would refuse it for that. null: it does not say. */
const saysNo = ({ measres, debug, secureBoot }: TokenDevice) =>
  (measres ?? 'success') !== 'success' || (debug ?? 'disabled') !== 'disabled' || secureBoot === false;

async function checkDevice(
  evidence: Evidence,
  nonce: Nonce,
  root: string,
  device: number,
): Promise<{ readonly serial: Certificate['serial']; readonly opaque: Report['opaque'] }> {
  const report = attempt(`device ${device}`, () => parseReport(fromBase64(evidence.report)));
  if (report.nonce !== nonce) throw refuse(`device ${device}: the report is over another nonce`);
  const path = await verifiedPath(evidence.certificate_chain, root, new Date()).catch((cause: unknown) => {
    throw isMalformed(cause) || cause instanceof ChainError
      ? refuse(`device ${device}: ${cause.message}`, cause)
      : cause;
  });
  const leaf = path[0] as Certificate;
  if (!(await verifyReportSignature(report, leaf)))
    throw refuse(`device ${device}: the report's signature does not verify under its leaf`);
  if (identify(path)?.arch !== evidence.arch)
    throw refuse(`device ${device}: the certificates are not of a ${evidence.arch}`);
  return { serial: leaf.serial, opaque: report.opaque };
}

function attempt<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (isMalformed(error)) throw refuse(`${what}: ${error.message}`, error);
    throw error;
  }
}

function isMalformed(error: unknown): error is Error {
  return error instanceof CheckFailure || error instanceof DerError || error instanceof EncodingError;
}
