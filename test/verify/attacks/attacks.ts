// What the attack tests share: one world, everything an auditor hands in, and how a refusal is expected.
import { expect } from 'vitest';
import { forge } from '../../../scripts/vectors/forge.ts';
import { makeWorld } from '../../../scripts/vectors/world.ts';
import {
  type FailureCode,
  VerificationError,
  type VerifyOptions,
  verifyAttestation,
  verifyEvidence,
} from '../../../verify/index.ts';
import { fullOptions } from '../fuzz/fuzz-targets-whole.ts';

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

const ATTEMPTS = 3;

/**
 * Milliseconds of processor time and MiB that `run` takes, at most: bounds that a slow core keeps. A collector that comes late is
 * told apart by running it again.
 */
export async function within(ms: number, mib: number, run: () => Promise<unknown>): Promise<void> {
  let took = Number.POSITIVE_INFINITY;
  let grown = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < ATTEMPTS && (took > 4 * ms || grown > mib); attempt++) {
    const before = process.memoryUsage();
    const start = process.cpuUsage();
    await run();
    const { user, system } = process.cpuUsage(start);
    took = Math.min(took, (user + system) / 1000);
    const after = process.memoryUsage();
    grown = Math.min(grown, (after.heapUsed + after.external - before.heapUsed - before.external) / 2 ** 20);
  }
  // Collecting on other threads counts too, so there is room.
  expect(took, 'milliseconds of processor time').toBeLessThan(4 * ms);
  expect(grown, 'MiB').toBeLessThan(mib);
}
