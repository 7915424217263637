// Countersign's verifier: one import for Node and browsers, WebCrypto alone. Whatever stands outside of verify/ imports this file.

// Verifies an attestation, or bare evidence, and reports every check.
export type { Attestation, Evidence } from '../proto/attestation.ts';
export { appraiseAttestation, compareTokenWithReports, verifyAttestation } from './attestation.ts';
// For whoever hands a batched proof on.
export { checkBatch } from './batch.ts';
export {
  CHECKS,
  type Check,
  CheckFailure,
  type CheckName,
  CPU_CHECKS,
  type FailureCode,
  type Limits,
  VerificationError,
} from './checks.ts';
// Reference values, revocation and keys from NVIDIA's services.
export {
  type CollateralOptions,
  createCollateral,
  fetchNrasKeys,
  fetchOcsp,
  fetchRim,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  ocspId,
  readLimited,
  type ServiceOptions,
} from './collateral.ts';
// For whoever collects behind Azure's paravisor.
export { parseHclReport } from './cpu/azure-vtpm.ts';
export { bootRomKey } from './cpu/binding.ts';
// Evidence of the processor.
export {
  type CpuClaims,
  type CpuExpected,
  type CpuPolicy,
  type CpuReference,
  type CpuReport,
  type CpuSoftware,
  type CpuType,
  type CpuVerifyOptions,
  type GuestReference,
  PRODUCTS,
  type Product,
  TCB_STATUSES,
  type TcbStatus,
  type TdxCollateral,
  type VerifiedSession,
} from './cpu/cpu-options.ts';
export { readReference } from './cpu/reference.ts';
// For whoever fetches endorsements: whose they must be, and when they end. What these return is not yet verified.
export { parseSnpReport, type SnpReport, tcbOf } from './cpu/snp-report.ts';
export { collateralEnd } from './cpu/tdx-collateral.ts';
export { parseTdxQuote } from './cpu/tdx-quote.ts';
export { appraiseCpu, verifyCpu } from './cpu/verify-cpu.ts';
export { appraiseEvidence, type EndorsementExpiry, endorsementExpiry, verifyEvidence } from './evidence.ts';
// For whoever takes either a saved stream or JSON, and looks for an attestation in it.
export { isTranscript } from './exchange.ts';
// For clients of an OpenAI-compatible server.
export { UnprovenAnswerError, type UnprovenCode, type VerifyingFetchOptions, verifyingFetch } from './fetch.ts';
export { checkRim } from './gpu/reference-values.ts';
// For gateway and sidecar: what is checked before an attestation is handed on.
export { type Carried, checkReports } from './gpu/report-check.ts';
export { attestationIn } from './input.ts';
// For whoever keeps them: what each is worth by itself.
export { appraiseOcsp, type OcspVerdict } from './ocsp/revocation.ts';
export type {
  Claims,
  Clocks,
  Collateral,
  DeviceClaims,
  Exchange,
  Expected,
  Jwk,
  Jwks,
  Level,
  OcspAnswer,
  OcspQuery,
  Policy,
  RimQuery,
  TokenClaims,
  VerificationReport,
  Verified,
  VerifiedEvidence,
  VerifyOptions,
} from './options.ts';
export { LEVELS } from './options.ts';
// A session by itself.
export { appraiseSession, checkAnswer, checkSession, type SessionReport, verifySession } from './session.ts';
// Tokens, one step at a time. What parseToken returns is not yet verified.
export { checkTokenDigests } from './token/digests.ts';
export { NRAS_KEYS_URL, verifyTokenSignature } from './token/signature.ts';
export { type ParsedToken, parseToken } from './token/token.ts';
// A revocation list's window. What parseCrl returns is not yet verified.
export { parseCrl } from './x509/crl.ts';
