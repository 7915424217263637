// Of every suite: prints the table of the faults when all that ran have run.
import type { Reporter, TestCase } from 'vitest/node';
import { type Row, table } from '../faults/table.ts';

export default class FaultTable implements Reporter {
  readonly #rows: Row[] = [];

  onTestCaseResult(test: TestCase): void {
    this.#rows.push(...(test.meta().faults ?? []));
  }

  onTestRunEnd(): void {
    if (this.#rows.length > 0) console.log(`\n${table(this.#rows)}\n`);
  }
}
