// Countersign's verifier: for Node, Deno, Bun, Workers and browsers, with WebCrypto alone. Gateway and sidecar import this file, service.ts
// and cpu.ts.

// Verifies an attestation, or bare evidence, and reports every check.
export type { Attestation, Evidence } from '../proto/attestation/attestation.ts';
export { type Appraised, appraiseAttestation, verifyAttestation, verifyMany } from './attestation.ts';
// For code that accepts a saved stream or JSON, and looks for an attestation in it.
export { isTranscript } from './binding/exchange.ts';
export { attestationIn, type Kind, kindOf } from './binding/input.ts';
// Bundles, which compact attestations name.
export { type Bundles, type BundlesOptions, createBundles, fetchBundle } from './common/bundles.ts';
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
  type Collateral,
  type CollateralOptions,
  createCollateral,
  fetchNrasKeys,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  type OcspAnswer,
  type OcspQuery,
  type RimQuery,
} from './gpu/collateral.ts';
export type { DeviceClaims } from './gpu/topology.ts';
export type {
  Claims,
  Clocks,
  Exchange,
  Expected,
  Level,
  Policy,
  TokenClaims,
  VerificationReport,
  Verified,
  VerifiedEvidence,
  VerifyOptions,
} from './policy/options.ts';
export { LEVELS } from './policy/options.ts';
export type { Jwk, Jwks } from './token/signature.ts';
