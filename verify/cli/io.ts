// What the command line reads and prints.
import { readFileSync } from 'node:fs';
import type { Check } from '../checks.ts';
import type { CpuClaims, CpuReport, CpuSoftware } from '../cpu/index.ts';
import { type Claims, isTranscript, type VerificationReport } from '../index.ts';
import { ageInWords } from '../verdict.ts';
import { UsageError } from './args.ts';

/** Of this software, for the results that name it. */
export const packageVersion = (): string =>
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version;

// Reads what the CLI is given: an attestation, a response, or a transcript of server-sent events.

/** Larger files are refused before they are read into memory as text. */
export const MAX_INPUT_BYTES = 256 * 1024 * 1024;

/** The error for a path that the file system refuses. */
export function unusable(path: string, error: unknown): UsageError {
  const { code } = error as NodeJS.ErrnoException;
  return new UsageError(
    `${path}: ${code === 'ENOENT' ? 'no such file or folder' : `cannot be used (${code ?? 'unknown'})`}`,
  );
}

/** @throws {UsageError} when it cannot be read. */
export function readBytes(file: string): Uint8Array<ArrayBuffer> {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file === '-' ? 0 : file);
  } catch (error) {
    throw unusable(file, error);
  }
  if (bytes.length > MAX_INPUT_BYTES) throw new UsageError(`${file}: larger than ${MAX_INPUT_BYTES} bytes`);
  return new Uint8Array(bytes);
}

/** @throws {UsageError} when it cannot be read, or is not UTF-8. */
export function readText(file: string): string {
  return decode(readBytes(file), file);
}

/** For verifyAttestation: an attestation's JSON or a whole response's; of a stream its bytes. @throws {UsageError} when it cannot be read, or is not UTF-8. */
export function readInput(file: string): string | Uint8Array<ArrayBuffer> {
  const bytes = readBytes(file);
  const text = decode(bytes, file);
  return isTranscript(text) ? bytes : text;
}

/** Rejects invalid UTF-8: a lossy decoding could equal another file's text. */
function decode(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UsageError(`${file}: not a text in UTF-8`);
  }
}

// The report for people: a line a check, what was found, what it proves and what it does not.

const MARK = { pass: 'pass', fail: 'FAIL', skip: 'skip' } as const;

/** @param at the time of the check */
export function printReport(report: VerificationReport, at: Date): string {
  const out = checkLines(report.checks);
  out.push('', ...claimLines(report.claims, at));
  if (report.proven.length > 0) out.push('', 'proven', ...report.proven.map((text) => `  + ${text}`));
  if (report.not_proven.length > 0) out.push('', 'not proven', ...report.not_proven.map((text) => `  - ${text}`));
  const failed = report.checks.find((check) => check.status === 'fail');
  out.push('', report.valid ? `VALID (level: ${report.level})` : `INVALID: ${failed?.code ?? 'no check could run'}`);
  return out.map(plain).join('\n');
}

const softwareLine = ({ launch, images }: CpuSoftware) =>
  `of launch file ${launch}${images === null ? '' : `: ${Object.keys(images).join(', ')}`}`;

const processor = ({ type, product }: CpuClaims) => `${type}${product === null ? '' : `, ${product}`}`;

/** The same for a processor's evidence, which has no level of its own. */
export function printCpuReport({ valid, checks, claims }: CpuReport): string {
  const failed = checks.find((check) => check.status === 'fail');
  const out = [
    ...checkLines(checks),
    '',
    ...(claims === null ? ['claims: none'] : cpuClaimLines(claims)),
    '',
    ...(claims?.software == null
      ? ['not proven', '  - which software ran: the measurement was not compared with any, or is another', '']
      : []),
    valid ? 'VALID' : `INVALID: ${failed?.code ?? 'no check could run'}`,
  ];
  return out.map(plain).join('\n');
}

function cpuClaimLines(claims: CpuClaims): string[] {
  const out = ['claims', `  type         ${processor(claims)}`];
  if (claims.simulated) out.push('  SIMULATED: no processor made this');
  const facts: readonly (readonly [string, string | number | null])[] = [
    ['measurement', claims.measurement],
    ['report data', claims.report_data],
    ['host data', claims.host_data],
    ['VMPL', claims.vmpl],
    ['TCB status', claims.tcb_status],
    ['chip', claims.chip_id],
  ];
  for (const [name, value] of facts) if (value !== null) out.push(`  ${name.padEnd(11)}  ${value}`);
  if (claims.software !== null) out.push(`  software     ${softwareLine(claims.software)}`);
  if (claims.advisories.length > 0) out.push(`  advisories   ${claims.advisories.join(', ')}`);
  return out;
}

function checkLines(checks: readonly Check[]): string[] {
  const lines = checks.map(line);
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, mark, detail]) => `  ${mark}  ${name.padEnd(width)}  ${detail}`);
}

/** Replaces control characters in texts of others (an issuer, a file's name), which could clear the screen or write lines of this report. */
export function plain(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '?');
}

function claimLines(claims: Claims, at: Date): string[] {
  const out = ['claims'];
  if (claims.simulated) out.push('  SIMULATED: no GPU made this');
  if (claims.time !== null)
    out.push(`  time      ${claims.time}, ${ageInWords(claims.time, at)} (by the gateway's clock)`);
  if (claims.nonce !== null) out.push(`  nonce     ${claims.nonce}`);
  if (claims.batch !== null)
    out.push(`  batch     leaf ${claims.batch.leaf_index} of the ${claims.batch.tree_size} under this nonce`);
  if (claims.token !== null)
    out.push(
      `  token     ${claims.token.kind}, ${claims.token.signature ?? 'not checked'}, says it is from '${claims.token.issuer}'`,
    );
  for (const [i, device] of claims.devices.entries()) {
    const { model, driver, vbios, mode, measurements_matched, ueid } = device;
    const facts = [
      ...(driver === null ? [] : [`driver ${driver}`]),
      ...(vbios === null ? [] : [`VBIOS ${vbios}`]),
      ...(mode === null ? [] : [`mode ${mode}`]),
      ...(measurements_matched === null ? [] : [`${measurements_matched} measurements match`]),
    ];
    out.push(`  device ${i}  ${model}, ${facts.join(', ')}`, `            ueid ${ueid}`);
  }
  if (claims.cpu !== null)
    out.push(
      `  processor ${processor(claims.cpu)}${claims.cpu.simulated ? ', simulated' : ''}`,
      `            launch measurement ${claims.cpu.measurement}`,
      ...(claims.cpu.software === null ? [] : [`            software ${softwareLine(claims.cpu.software)}`]),
    );
  return out.length === 1 ? ['claims: none'] : out;
}

function line(check: Check): [string, string, string] {
  const name = check.device === undefined ? check.name : `${check.name}[${check.device}]`;
  return [name, MARK[check.status], check.code === undefined ? check.detail : `${check.code}: ${check.detail}`];
}
