// The report as text: one line for each finding, and under it what to do.
import type { Finding } from './finding.ts';

const NAME_WIDTH = 12;

export function printFindings(findings: readonly Finding[]): string {
  const lines = findings.flatMap(({ name, status, seen, todo }) => [
    `${status.padEnd(4)}  ${name.padEnd(NAME_WIDTH)} ${seen}`,
    ...(todo === undefined ? [] : [`${' '.repeat(NAME_WIDTH + 7)}→ ${todo}`]),
  ]);
  const count = (wanted: Finding['status']) => findings.filter(({ status }) => status === wanted).length;
  const total = `${count('ok')} ok, ${count('warn')} warn, ${count('fail')} fail, ${count('skip')} skip`;
  return [...lines, '', total].join('\n');
}
