// For gateway, sidecar and doctor: single steps of a verification, and single documents of NVIDIA's services. Not in the npm package.

export { compareTokenWithReports } from './attestation.ts';
// For code that forwards batched proofs.
export { checkBatch } from './binding/batch.ts';
// For anybody who counts failed checks by code.
export { FAILURE_CODES } from './common/checks.ts';
export { readLimited } from './common/limited.ts';
export { bootRomKey } from './cpu/binding.ts';
// For code that collects evidence behind Azure's paravisor, or the log of a measured boot.
export { parseHclReport } from './cpu/evidence/azure-vtpm.ts';
export { cutEventLog } from './cpu/evidence/event-log.ts';
// For code that fetches endorsements: their subject, and their end. What these return is not yet verified.
export { parseSnpReport, SNP_REPORT_BYTES, type SnpReport, tcbOf } from './cpu/evidence/snp-report.ts';
export { parseTdxQuote } from './cpu/evidence/tdx-quote.ts';
export { collateralEnd } from './cpu/tdx-collateral.ts';
export { type EndorsementExpiry, endorsementExpiry } from './evidence.ts';
export {
  fetchOcsp,
  fetchRim,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  ocspId,
  type ServiceOptions,
} from './gpu/collateral.ts';
export { checkRim } from './gpu/reference-values.ts';
// The check before an attestation is forwarded.
export { type Carried, checkReports } from './gpu/report-check.ts';
export { opaqueFormat } from './gpu/spdm/report.ts';
export { answerChecker, type CheckAnswer, checkSession } from './session.ts';
// Tokens, one step at a time. What parseToken returns is not yet verified.
export { checkTokenDigests } from './token/digests.ts';
export { NRAS_KEYS_URL, verifyTokenSignature } from './token/signature.ts';
export { type ParsedToken, parseToken } from './token/token.ts';
// For a cache of OCSP responses: the verdict on a single one.
export { OCSP_NONCE_BYTES, ocspRequestOf, parseOcspRequest, parseOcspResponse } from './x509/ocsp.ts';
export { appraiseOcsp, OCSP_SKEW_MS, validity } from './x509/revocation.ts';
