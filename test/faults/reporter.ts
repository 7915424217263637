// Prints the fault table when all faults have run, and puts it into a document where that is asked for.
import { readFileSync, writeFileSync } from 'node:fs';
import type { Reporter, TestCase } from 'vitest/node';
import { DOCUMENT } from './settings.ts';
import { type Row, table } from './table.ts';

const BEGIN = '<!-- begin of the table -->\n';
const END = '\n<!-- end of the table -->';

export default class FaultTable implements Reporter {
  readonly #rows: Row[] = [];

  onTestCaseResult(test: TestCase): void {
    this.#rows.push(...(test.meta().faults ?? []));
  }

  onTestRunEnd(): void {
    if (this.#rows.length === 0) return;
    const text = table(this.#rows);
    console.log(`\n${text}\n`);
    if (DOCUMENT === null) return;
    const document = readFileSync(DOCUMENT, 'utf8');
    const [begin, end] = [document.indexOf(BEGIN), document.indexOf(END)];
    if (begin < 0 || end < begin) throw new Error(`${DOCUMENT} has no place for the table`);
    writeFileSync(DOCUMENT, document.slice(0, begin + BEGIN.length) + text + document.slice(end));
  }
}
