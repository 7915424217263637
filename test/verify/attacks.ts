// What the attack tests share: one world, everything an auditor hands in, and how a refusal is expected.
import { expect } from 'vitest';
import { forge } from '../../scripts/vectors/forge.ts';
import { makeWorld } from '../../scripts/vectors/world.ts';
import {
  type FailureCode,
  VerificationError,
  type VerifyOptions,
  verifyAttestation,
  verifyEvidence,
} from '../../verify/index.ts';
import { fullOptions } from './fuzz-targets-whole.ts';

export const world = makeWorld();
/** Under these the attestation below passes every check. */
export const options: VerifyOptions = fullOptions(world);
export const good = await forge(world);

const verdict = async (run: () => Promise<unknown>): Promise<FailureCode | 'valid'> => {
  try {
    await run();
    return 'valid';
  } catch (error) {
    if (error instanceof VerificationError) return error.code;
    throw error;
  }
};

export const codeOf = (input: unknown, change: VerifyOptions = {}) =>
  verdict(() => verifyAttestation(input, { ...options, ...change }));
export const codeOfEvidence = (input: unknown, change: VerifyOptions = {}) =>
  verdict(() => verifyEvidence(input, { ...options, ...change }));

export async function refused(code: FailureCode, input: unknown, change: VerifyOptions = {}): Promise<void> {
  expect(await codeOf(input, change)).toBe(code);
}

export async function refusedEvidence(code: FailureCode, input: unknown, change: VerifyOptions = {}): Promise<void> {
  expect(await codeOfEvidence(input, change)).toBe(code);
}

/** Milliseconds and bytes that `run` takes, at most: bounds that a slow core keeps. */
export async function within(ms: number, mib: number, run: () => Promise<unknown>): Promise<void> {
  globalThis.gc?.();
  const before = process.memoryUsage();
  const start = performance.now();
  await run();
  const took = performance.now() - start;
  const after = process.memoryUsage();
  const grown = after.heapUsed + after.external - before.heapUsed - before.external;
  expect(took).toBeLessThan(ms);
  expect(grown / 2 ** 20).toBeLessThan(mib);
}
