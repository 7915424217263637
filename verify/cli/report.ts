// The report for people: what was found in about ten lines, or every check with all statements, and a verdict with what to do next.
import { styleText } from 'node:util';
import type { Check } from '../common/checks.ts';
import type { ReleaseClaims } from '../common/release-options.ts';
import { releaseSentence } from '../cpu/cpu-words.ts';
import type { CpuClaims, CpuReport, CpuSoftware } from '../cpu.ts';
import type { Claims, Level, VerificationReport } from '../index.ts';
import { ageInWords } from '../policy/verdict.ts';
import type { Stranger } from './kinds.ts';
import { type FileKind, isAnswer, passedWords } from './kinds.ts';
import { type Circumstances, nextStep, refusedWords } from './words.ts';

const MARK = { pass: 'pass', fail: 'FAIL', skip: 'skip' } as const;
/** More failures than these are counted in the short report. */
const MAX_FAILED = 4;
const WIDTH = 9;

const LEVEL_WORDS: Readonly<Record<Level, string>> = {
  none: 'none: nothing about hardware is proven',
  gpu: 'gpu: a genuine GPU signed, at the asking of software on its host',
  'gpu+cpu': "gpu+cpu: a genuine GPU and its machine's processor signed",
  measured: 'measured: GPU and processor signed, and the software is on your list',
};

export interface Printing {
  readonly verbose: boolean;
  /** On a terminal that wants colours. */
  readonly coloured: boolean;
  /** The time of the check. */
  readonly at: Date;
  readonly circumstances: Omit<Circumstances, 'claimed'>;
  /** What the file is, where it is none that can be checked. */
  readonly stranger: Stranger | null;
}

export function printReport(report: VerificationReport, kind: FileKind, printing: Printing): string {
  const { checks, claims, proven, not_proven } = report;
  const out = printing.verbose
    ? [...checkLines(checks), '', ...claimLines(claims, printing.at), ...listed('proven', '+', proven)]
    : shortLines(report, factsOf(report, kind, printing.at), printing);
  if (printing.verbose) out.push(...listed('not proven', '-', not_proven));
  out.push(...conclusion(report, passedWords(kind, report.level), claims.time, printing));
  return written(out, printing.coloured);
}

function listed(title: string, mark: string, statements: readonly string[]): string[] {
  return statements.length === 0 ? [] : ['', title, ...statements.map((text) => `  ${mark} ${text}`)];
}

type Facts = readonly (readonly [name: string, words: string])[];

/** Where the file is none that can be checked, the verdict says all. */
function shortLines({ valid, checks }: VerificationReport | CpuReport, facts: Facts, { stranger }: Printing): string[] {
  if (stranger !== null) return [];
  const lines = facts.map(([name, words]) => `  ${name.padEnd(WIDTH)}  ${words}`);
  if (valid) return [...lines, `  ${'checks'.padEnd(WIDTH)}  ${counted(checks)}; --verbose lists them`];
  const failed = checkLines(checks.filter(({ status }) => status === 'fail'));
  const more = failed.length > MAX_FAILED ? [`        ${failed.length - MAX_FAILED} more; --verbose lists them`] : [];
  const claimed = lines.length === 0 ? [] : ['claimed, not proven', ...lines, ''];
  return [...claimed, ...failed.slice(0, MAX_FAILED), ...more];
}

function counted(checks: readonly Check[]): string {
  const passed = checks.filter(({ status }) => status === 'pass').length;
  return `${passed} passed, ${checks.length - passed} skipped`;
}

/** Who signed what, with which software, when. */
function factsOf({ valid, level, checks, claims }: VerificationReport, kind: FileKind, at: Date): Facts {
  const { time, devices, cpu, token, release } = claims;
  const shown = releaseShown(claims);
  if (devices.length === 0 && cpu === null && token === null) return [];
  return [
    ['signed by', signersIn(claims)],
    ['signed', signedIn(claims, kind, checks)],
    ['software', shown ?? softwareIn(cpu)],
    ...weightsIn(cpu),
    ...(release === undefined ? [] : [['status', statusIn(release)] as const]),
    ...(time === null ? [] : [['time', `${time}, ${ageInWords(time, at)} (by the gateway's clock)`] as const]),
    ...(valid
      ? [['level', level === 'measured' && shown !== null ? `measured: ${shown}` : LEVEL_WORDS[level]] as const]
      : []),
  ];
}

/** The release whose list the guest is on, in words; null where there is none. */
function releaseShown({ cpu, release }: Claims): string | null {
  const { software } = cpu ?? {};
  if (software == null || release === undefined || software.release !== release.statement_sha256) return null;
  return releaseSentence(release, software.launch);
}

/** What is known of its standing. */
function statusIn({ tag, status }: ReleaseClaims): string {
  if (status === null) return 'not to be relied on';
  const { state, time, current, withdrawn_later: later } = status;
  if (state === 'absent') return 'absent: nobody shows whether the release was withdrawn';
  const now = current === tag ? 'the current release' : `not the current release, which is ${current}`;
  const withdrawn = later === null ? '' : `; WITHDRAWN later: ${later}`;
  return `${state}, of ${time}: ${now}${withdrawn}`;
}

function signersIn({ devices, cpu, token, simulated }: Claims): string {
  const models = [...new Set(devices.map(({ model }) => model))].join(', ');
  const signers = [
    ...(devices.length === 0 ? [] : [devices.length === 1 ? models : `${devices.length} devices (${models})`]),
    ...(devices.length === 0 && token !== null
      ? [`no device is shown; a token says it is from '${token.issuer}'`]
      : []),
    ...(cpu === null ? [] : [`processor ${processor(cpu)}`]),
  ];
  return `${signers.join('; ')}${simulated ? ' (SIMULATED: no GPU made this)' : ''}`;
}

function signedIn({ nonce, batch }: Claims, kind: FileKind, checks: readonly Check[]): string {
  if (!isAnswer(kind))
    return kind === 'session' ? 'a session, about no answer' : `the nonce ${nonce ?? 'of each device'}`;
  const compared = checks.find(({ name }) => name === 'expected_exchange');
  const of = batch === null || batch.tree_size === 1 ? '' : `, one of ${batch.tree_size} answers under one nonce`;
  return `a request and its answer${of}${compared?.status === 'fail' ? '' : `: ${compared?.detail}`}`;
}

function softwareIn(cpu: CpuClaims | null): string {
  if (cpu === null) return 'not shown: no processor signed';
  return cpu.software === null ? 'not known: the measurement was compared with no list' : softwareLine(cpu.software);
}

function weightsIn(cpu: CpuClaims | null): Facts {
  const { model = null } = cpu?.software ?? {};
  return model === null ? [] : [['weights', `${model.name}, root ${model.verity_root}`]];
}

/** The verdict, and what to do next where there is something. */
function conclusion(
  { valid, checks }: VerificationReport | CpuReport,
  words: string,
  claimed: string | null,
  { circumstances, stranger, verbose }: Printing,
): string[] {
  const gap = verbose || stranger === null ? [''] : [];
  if (valid) return [...gap, words];
  const failed = checks.find(({ status }) => status === 'fail');
  const step = failed === undefined ? null : nextStep(failed, { ...circumstances, claimed });
  const next = stranger === null ? step : stranger.next;
  const verdict = refusedWords(checks, stranger?.sentence ?? null);
  return [...gap, verdict, ...(next === null ? [] : [`next: ${next}`])];
}

/** The first that fits a line colours it: amber for what proves no hardware. */
const STYLES = [
  [/^ {2}FAIL/, 'red'],
  [/^ {2}pass/, 'green'],
  [/^ {2}skip/, 'dim'],
  [/^(VALID|PASSED).*\((level: none|simulated)\)$/, 'yellow'],
  [/^(VALID|PASSED).*/, 'green'],
  [/^INVALID/, 'red'],
  [/^INCOMPLETE/, 'yellow'],
  [/^ {2}SIMULATED|\(SIMULATED: [^()]*\)$/, 'yellow'],
] as const;

/** Joins the lines to one text, in which the words for a result may be coloured. */
function written(lines: readonly string[], coloured: boolean): string {
  const text = lines.map(plain);
  return (coloured ? text.map(styled) : text).join('\n');
}

/** @param line of a report */
export function styled(line: string): string {
  const [words, style] = STYLES.find(([pattern]) => pattern.test(line)) ?? [];
  if (words === undefined || style === undefined) return line;
  return line.replace(words, (found) => styleText(style, found, { validateStream: false }));
}

const softwareLine = ({ launch, images }: CpuSoftware) =>
  `of launch file ${launch}${images === null ? '' : `: ${Object.keys(images).join(', ')}`}`;

const processor = ({ type, product }: CpuClaims) => `${type}${product === null ? '' : `, ${product}`}`;

/** The same for a processor's evidence, which has no level of its own. */
export function printCpuReport(report: CpuReport, printing: Printing): string {
  const { claims } = report;
  const words = passedWords('cpu', null, claims?.simulated === true);
  const out = printing.verbose ? cpuLines(report) : shortLines(report, cpuFactsOf(claims), printing);
  return written([...out, ...conclusion(report, words, null, printing)], printing.coloured);
}

function cpuLines({ claims, checks }: CpuReport): string[] {
  const open = 'which software ran: the measurement was not compared with any, or is another';
  return [
    ...checkLines(checks),
    '',
    ...(claims === null ? ['claims: none'] : cpuClaimLines(claims)),
    ...(claims?.software == null ? listed('not proven', '-', [open]) : []),
  ];
}

function cpuFactsOf(claims: CpuClaims | null): Facts {
  if (claims === null) return [];
  return [
    ['signed by', `processor ${processor(claims)}${claims.simulated ? ' (SIMULATED: no processor made this)' : ''}`],
    ['signed', `the report data ${claims.report_data}`],
    ['software', softwareIn(claims)],
    ...(claims.tcb_status === null ? [] : [['TCB', claims.tcb_status] as const]),
  ];
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

/** Replaces control characters in foreign texts (an issuer, a file's name), which could clear the screen or fake lines of this report. */
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
      ...weightsIn(claims.cpu).map(([name, words]) => `            ${name} ${words}`),
      ...(claims.release === undefined
        ? []
        : [`  release   ${claims.release.tag} of ${claims.release.repository}, status ${statusIn(claims.release)}`]),
    );
  return out.length === 1 ? ['claims: none'] : out;
}

function line(check: Check): [string, string, string] {
  const name = check.device === undefined ? check.name : `${check.name}[${check.device}]`;
  return [name, MARK[check.status], check.code === undefined ? check.detail : `${check.code}: ${check.detail}`];
}
