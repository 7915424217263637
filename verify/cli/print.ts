// The report for people: a line a check, what was found, what it proves and what it does not.
import type { Check } from '../checks.ts';
import type { VerificationReport } from '../index.ts';

const MARK = { pass: 'pass', fail: 'FAIL', skip: 'skip' } as const;

export function printReport(report: VerificationReport): string {
  const lines = report.checks.map(line);
  const width = Math.max(...lines.map(([name]) => name.length));
  const out = lines.map(([name, mark, detail]) => `  ${mark}  ${name.padEnd(width)}  ${detail}`);
  const claims = Object.entries(report.claims).filter(([, value]) => value !== null && value !== undefined);
  if (claims.length > 0) {
    out.push('', 'claims');
    for (const [name, value] of claims)
      out.push(`  ${name}: ${typeof value === 'object' ? JSON.stringify(value) : String(value)}`);
  }
  if (report.proven.length > 0) out.push('', 'proven', ...report.proven.map((text) => `  + ${text}`));
  if (report.not_proven.length > 0) out.push('', 'not proven', ...report.not_proven.map((text) => `  - ${text}`));
  const failed = report.checks.find((check) => check.status === 'fail');
  out.push('', report.valid ? `VALID (level: ${report.level})` : `INVALID: ${failed?.code ?? 'no check could run'}`);
  return out.join('\n');
}

function line(check: Check): [string, string, string] {
  const name = check.device === undefined ? check.name : `${check.name}[${check.device}]`;
  return [name, MARK[check.status], check.code === undefined ? check.detail : `${check.code}: ${check.detail}`];
}
