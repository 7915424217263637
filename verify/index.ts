// Countersign's verifier: for Node, Deno, Bun, Workers and browsers, with WebCrypto alone. Gateway and sidecar import this file, service.ts
// and cpu/index.ts.

// Verifies an attestation, or bare evidence, and reports every check.
export type { Attestation, Evidence } from '../proto/attestation/attestation.ts';
export { appraiseAttestation, verifyAttestation } from './attestation.ts';
// For code that accepts a saved stream or JSON, and looks for an attestation in it.
export { isTranscript } from './binding/exchange.ts';
export { attestationIn, type Kind, kindOf } from './binding/input.ts';
export {
  CHECKS,
  type Check,
  CheckFailure,
  type CheckName,
  CPU_CHECKS,
  type FailureCode,
  isUnavailable,
  type Limits,
  VerificationError,
} from './common/checks.ts';
export { UnsupportedSystemError } from './common/webcrypto.ts';
export type { CpuClaims, CpuReference, VerifiedSession } from './cpu/cpu-options.ts';
export { appraiseEvidence, verifyEvidence } from './evidence.ts';
// Reference values, revocation and keys from NVIDIA's services.
export {
  type CollateralOptions,
  createCollateral,
  fetchNrasKeys,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
} from './gpu/collateral.ts';
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
} from './policy/options.ts';
export { LEVELS } from './policy/options.ts';
