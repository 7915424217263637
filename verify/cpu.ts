// Verifies a processor's evidence and sessions by themselves. verifyAttestation checks those of an attestation.

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
  type Product,
  TCB_STATUSES,
  type TcbStatus,
  type TdxCollateral,
  type VerifiedSession,
  type Weights,
} from './cpu/cpu-options.ts';
export { PRODUCTS } from './cpu/evidence/snp-report.ts';
export { readReference } from './cpu/reference.ts';
export { appraiseCpu, verifyCpu } from './cpu/verify-cpu.ts';
export { readWeights } from './cpu/weights.ts';
export { appraiseSession, type SessionReport, verifySession } from './session.ts';
