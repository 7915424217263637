// Verifies what a release publishes to be expected: `options.release` of verifyAttestation does so for an answer, and this by itself.

export type { ReleaseClaims, ReleaseOptions, ReleaseStatus, ReleaseWeights } from './common/release-options.ts';
export type { CpuReference } from './cpu/cpu-options.ts';
export { type ReleaseTimes, type VerifiedRelease, verifyRelease } from './release/check.ts';
export { PROJECT, type Project } from './release/project.ts';
