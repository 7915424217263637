// For gateway, sidecar and doctor: single steps of a verification, and NVIDIA's services one document at a time. No part of the npm package.

export { compareTokenWithReports } from './attestation.ts';
// For whoever hands a batched proof on.
export { checkBatch } from './binding/batch.ts';
// For whoever collects behind Azure's paravisor.
export { parseHclReport } from './cpu/azure-vtpm.ts';
export { bootRomKey } from './cpu/binding.ts';
// For whoever fetches endorsements: whose they must be, and when they end. What these return is not yet verified.
export { parseSnpReport, type SnpReport, tcbOf } from './cpu/snp-report.ts';
export { collateralEnd } from './cpu/tdx-collateral.ts';
export { parseTdxQuote } from './cpu/tdx-quote.ts';
export { type EndorsementExpiry, endorsementExpiry } from './evidence.ts';
// A report as EAR.
export { APPRAISAL_CLAIMS, EAR_MEDIA_TYPE, EAR_PROFILE, earOf } from './forms/ear.ts';
export { fetchOcsp, fetchRim, ocspId, readLimited, type ServiceOptions } from './gpu/collateral.ts';
export { checkRim } from './gpu/reference-values.ts';
// What is checked before an attestation is handed on.
export { type Carried, checkReports } from './gpu/report-check.ts';
// For whoever counts failed checks by code.
export { FAILURE_CODES } from './policy/checks.ts';
export { checkAnswer, checkSession } from './session.ts';
// Tokens, one step at a time. What parseToken returns is not yet verified.
export { checkTokenDigests } from './token/digests.ts';
export { NRAS_KEYS_URL, verifyTokenSignature } from './token/signature.ts';
export { type ParsedToken, parseToken } from './token/token.ts';
// A revocation list's window. What parseCrl returns is not yet verified.
export { parseCrl } from './x509/crl.ts';
// For whoever keeps them: what each is worth by itself.
export { appraiseOcsp, type OcspVerdict } from './x509/revocation.ts';
