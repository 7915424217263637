// Countersign's verifier: one import for Node and browsers, WebCrypto alone.
export type { Attestation, Evidence } from '../proto/attestation.ts';
export { appraiseAttestation, verifyAttestation } from './attestation.ts';
export {
  CHECKS,
  type Check,
  CheckFailure,
  type CheckName,
  CPU_CHECKS,
  type CpuCheckName,
  type FailureCode,
  VerificationError,
} from './checks.ts';
export {
  type Collateral,
  type CollateralOptions,
  createCollateral,
  fetchNrasKeys,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  type OcspAnswer,
  type OcspQuery,
  type RimQuery,
} from './collateral.ts';
export type {
  CpuClaims,
  CpuExpected,
  CpuPolicy,
  CpuReport,
  CpuType,
  CpuVerifyOptions,
  TcbStatus,
  TdxCollateral,
} from './cpu/cpu-options.ts';
export { appraiseCpu, verifyCpu } from './cpu/verify-cpu.ts';
export { appraiseEvidence, verifyEvidence } from './evidence.ts';
export { UnprovenAnswerError, type UnprovenCode, type VerifyingFetchOptions, verifyingFetch } from './fetch.ts';
export type {
  Claims,
  Clocks,
  DeviceClaims,
  Exchange,
  Expected,
  Level,
  Limits,
  Policy,
  TokenClaims,
  VerificationReport,
  Verified,
  VerifiedEvidence,
  VerifyOptions,
} from './options.ts';
export { type Carried, checkReports } from './report-check.ts';
export { type Jwk, type Jwks, NRAS_KEYS_URL } from './token/signature.ts';
export { ageInWords } from './verdict.ts';
