// Compares a verdict with the one that a case expects.
import { expect } from 'vitest';
import type { CpuReport } from '../../../verify/cpu/cpu-options.ts';
import type { Case } from './cases.ts';

export function expectVerdict({ valid, checks, claims }: CpuReport, { expect: wanted }: Case): void {
  const failed = checks.filter(({ status }) => status === 'fail');
  const [first] = failed;
  expect([valid, first?.name, first?.code]).toEqual([wanted.valid, wanted.failed_check, wanted.code]);
  const others = failed.slice(1).map(({ name }) => name as string);
  expect(others.filter((name) => !wanted.also_wrong?.includes(name))).toEqual([]);
  const passed = Object.fromEntries(checks.map(({ name, status }) => [name, status]));
  expect(passed).toMatchObject(wanted.checks ?? {});
  if (wanted.tcb_status !== undefined) expect(claims?.tcb_status).toBe(wanted.tcb_status);
}

/** Which checks failed, and how. */
export const failures = ({ checks }: CpuReport) =>
  checks.filter(({ status }) => status === 'fail').map(({ name, code }) => [name, code]);
