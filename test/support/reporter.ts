// Of every suite: prints the table of the faults, says what genuine evidence would add, and counts for .ci/run, when all that ran have run.
import { readFileSync, writeFileSync } from 'node:fs';
import type { Reporter, SerializedError, TestCase, TestModule } from 'vitest/node';
import { type Row, table } from '../faults/table.ts';
import { HOW_TO_BRING, vectorsPresent } from './vectors.ts';

export default class SuiteReporter implements Reporter {
  readonly #rows: Row[] = [];

  onTestCaseResult(test: TestCase): void {
    this.#rows.push(...(test.meta().faults ?? []));
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[] = []): void {
    if (this.#rows.length > 0) console.log(`\n${table(this.#rows)}\n`);
    if (!vectorsPresent) sayLeftOut(modules);
    if (process.env.COUNTS_FILE) writeFileSync(process.env.COUNTS_FILE, `${counts(modules, errors).join(' ')}\n`);
  }
}

/** Passed and failed. A file that cannot be read to its end counts as a failed test, and so does an error outside of all tests. */
export function counts(modules: readonly TestModule[], errors: readonly unknown[]): [passed: number, failed: number] {
  const tests = modules.flatMap(({ children }) => [...children.allTests()]);
  const of = (state: string) => tests.filter((test) => test.result().state === state).length;
  const broken = modules.filter((module) => module.errors().length > 0).length;
  return [of('passed'), of('failed') + broken + errors.length];
}

function sayLeftOut(modules: readonly TestModule[]): void {
  const readers = modules.filter(({ moduleId }) => readFileSync(moduleId, 'utf8').includes('vectorsPresent'));
  const left = readers.flatMap(({ children }) => [...children.allTests('skipped')]).length;
  if (readers.length > 0) console.log(`\n${left} cases over genuine evidence are left out: ${HOW_TO_BRING}\n`);
}
