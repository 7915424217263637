// The parts of the verifier that a page's program gives its evidence to.
export { appraiseCpu, type CpuReport, type CpuVerifyOptions } from '../../verify/cpu.ts';
export * from '../../verify/index.ts';
export { verifyRelease } from '../../verify/release.ts';
