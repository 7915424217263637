// The report for people: a line for each check, the claims, the proven and unproven statements, and what to do next.
import { styleText } from 'node:util';
import type { Check, CheckName, FailureCode } from '../common/checks.ts';
import type { CpuClaims, CpuReport, CpuSoftware } from '../cpu/index.ts';
import type { Claims, VerificationReport } from '../index.ts';
import { ageInWords } from '../policy/verdict.ts';
import { type FileKind, passedWords } from './kinds.ts';

const MARK = { pass: 'pass', fail: 'FAIL', skip: 'skip' } as const;

/** @param kind of the file; `at`: the time of the check; `coloured`: on a terminal that wants colours */
export function printReport(report: VerificationReport, kind: FileKind, at: Date, coloured: boolean): string {
  const out = checkLines(report.checks);
  out.push('', ...claimLines(report.claims, at));
  if (report.proven.length > 0) out.push('', 'proven', ...report.proven.map((text) => `  + ${text}`));
  if (report.not_proven.length > 0) out.push('', 'not proven', ...report.not_proven.map((text) => `  - ${text}`));
  out.push('', ...conclusion(report, passedWords(kind, report.level)));
  return written(out, coloured);
}

/** The verdict, and what to do next where there is something. */
function conclusion({ valid, incomplete, checks }: VerificationReport | CpuReport, words: string): string[] {
  if (valid) return [words];
  const failed = checks.find((check) => check.status === 'fail');
  const step = failed?.code === undefined ? undefined : (OF_PROCESSOR[failed.name] ?? NEXT)[failed.code];
  return [
    `${incomplete ? 'INCOMPLETE' : 'INVALID'}: ${failed?.code ?? 'no check could run'}`,
    ...(step === undefined ? [] : [step]),
  ];
}

const FETCH =
  'Nothing was found wrong. With a network the check fetches what it needs; `countersign collateral FILE --into DIR` keeps it for --offline --collateral DIR';

/** What the user can do about a failure, by its code. */
const NEXT: Steps = {
  simulated_root_refused:
    'A simulated GPU made this. Where that is expected (npm start), name its root: --allow-simulated run/simulated-root/root.pem',
  not_json: 'FILE is no attestation, saved answer, saved stream, evidence or session',
  not_an_attestation: 'FILE must hold an attestation, or be an answer or a stream that carries one',
  request_mismatch:
    'The request must be the exact bytes that were sent, with their tee. A router or proxy that writes JSON anew on the way changes them',
  response_mismatch:
    'A saved answer must be the bytes as they came; of what a client library wrote again, give the member attestation alone',
  event_not_expected:
    'One event of a stream by itself shows only a part of the answer: give the whole stream, or say --event',
  unsigned_member: 'Give the answer as it came, with its attestation in it, or the attestation alone',
  stream_mismatch: 'A saved stream must be the bytes as they came (curl -sN … > FILE)',
  rim_unavailable: `${FETCH}, --without-reference-values leaves it out.`,
  revocation_unavailable: `${FETCH}, --without-revocation leaves it out.`,
  token_key_unavailable:
    "Nothing was found wrong. The key of NVIDIA's service comes over the network: without --offline",
  collateral_unavailable:
    "Nothing was found wrong. The evidence came without Intel's collateral, which its sender adds.",
  certificate_expired: "Is this computer's clock right? --at TIME checks as of another time",
  token_expired: "Is this computer's clock right? --at TIME checks as of another time",
  cpu_missing: 'Where the attestation names a session, give the one you hold with --session FILE',
  tcb_not_accepted: 'Where you accept this status, name it: --tcb STATUS',
};

type Steps = Readonly<Partial<Record<FailureCode, string>>>;

/** A processor's evidence brings its revocation list along, and nothing is fetched for it. */
const OF_PROCESSOR: Readonly<Partial<Record<CheckName, Steps>>> = {
  cpu_revocation: {
    revocation_unavailable:
      "Nothing was found wrong. AMD's revocation list is not in the evidence; --without-revocation leaves it out.",
  },
};

const STYLES = [
  [/^ {2}FAIL/, 'red'],
  [/^ {2}pass/, 'green'],
  [/^ {2}skip/, 'dim'],
  [/^VALID/, 'green'],
  [/^PASSED/, 'green'],
  [/^INVALID/, 'red'],
  [/^INCOMPLETE/, 'yellow'],
  [/^ {2}SIMULATED/, 'yellow'],
] as const;

/** Joins the lines to one text, in which the words for a result may be coloured. */
function written(lines: readonly string[], coloured: boolean): string {
  const text = lines.map(plain);
  if (!coloured) return text.join('\n');
  return text
    .map((one) =>
      STYLES.reduce(
        (so, [words, style]) => so.replace(words, (found) => styleText(style, found, { validateStream: false })),
        one,
      ),
    )
    .join('\n');
}

const softwareLine = ({ launch, images }: CpuSoftware) =>
  `of launch file ${launch}${images === null ? '' : `: ${Object.keys(images).join(', ')}`}`;

const processor = ({ type, product }: CpuClaims) => `${type}${product === null ? '' : `, ${product}`}`;

/** The same for a processor's evidence, which has no level of its own. */
export function printCpuReport(report: CpuReport, coloured: boolean): string {
  const { claims } = report;
  const out = [
    ...checkLines(report.checks),
    '',
    ...(claims === null ? ['claims: none'] : cpuClaimLines(claims)),
    '',
    ...(claims?.software == null
      ? ['not proven', '  - which software ran: the measurement was not compared with any, or is another', '']
      : []),
    ...conclusion(report, passedWords('cpu', null)),
  ];
  return written(out, coloured);
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
    );
  return out.length === 1 ? ['claims: none'] : out;
}

function line(check: Check): [string, string, string] {
  const name = check.device === undefined ? check.name : `${check.name}[${check.device}]`;
  return [name, MARK[check.status], check.code === undefined ? check.detail : `${check.code}: ${check.detail}`];
}
