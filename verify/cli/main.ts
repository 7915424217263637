// `countersign`: checks its input, prints the report, and reports the result by its exit status (EXIT_STATUS of table.ts).
// auditor/main.ts starts it, with the commands of that room.
import { exportCmw } from '../cmw.ts';
import { unquoted } from '../common/limited.ts';
import { VERSION } from '../common/version.ts';
import { appraiseCpu, type CpuReport } from '../cpu.ts';
import { CheckFailure, UnsupportedSystemError, type VerificationReport } from '../index.ts';
import { type Arguments, type OwnCommand, type Request, readArguments } from './args.ts';
import { collateralFor, fetched, fetchingInto, onFetch } from './collateral-folder.ts';
import { expand } from './expand.ts';
import { completion, usage, usageOf } from './help.ts';
import { INPUT_LIMITS, isMany, readInput, UsageError } from './input.ts';
import { type FileKind, fileKindOf, isAnswer, refuseMisfit, refuseOtherProcessor, strangerIn } from './kinds.ts';
import { verifyFiles } from './many.ts';
import { appraise, cpuOptions, optionsOf, readRoot, sessionOption, statusOf } from './options.ts';
import { type Printing, plain, printCpuReport, printReport } from './report.ts';
import { COMMANDS, type Command } from './table.ts';

const { env, stdout } = process;
const coloured = stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
/** No clock is right that is before this version. */
const MADE = '2026-11-23';

/** @param more the commands of other rooms. @returns the exit status */
export async function main(argv: readonly string[], more: readonly OwnCommand[] = []): Promise<number> {
  try {
    return await run(argv, more);
  } catch (error) {
    console.error(troubleIn(error).map(plain).join('\n'));
    return 2;
  }
}

/** The lines about an error: an unforeseen one is no verdict, and only its place is told. */
function troubleIn(error: unknown): string[] {
  const next = error instanceof UsageError && error.next !== null ? `next: ${error.next}` : 'see --help';
  if (error instanceof UsageError || error instanceof UnsupportedSystemError)
    return [`countersign: ${error.message}`, next];
  const { name, stack = '' } = error as Error;
  const [, place = 'an unknown place'] = /(?:^|[/\\\s(])([^/\\\s:()]+:\d+):\d+\)?$/m.exec(stack) ?? [];
  return [`countersign: an error of this program, and no verdict: ${name} at ${place}; please report it`];
}

async function run(argv: readonly string[], more: readonly OwnCommand[]): Promise<number> {
  const read = readArguments(argv, more);
  if ('shell' in read || 'print' in read) return printRequested(read, [...COMMANDS, ...more]);
  if (read.run !== null) return read.run(await withRelease(read), env);
  if (read.command !== 'proxy') refuseOldClock(read.at);
  const args = await withRelease(read);
  if (args.command === 'proxy') return serve(args);
  if (args.command === 'verify' && isMany(args.file)) return verifyFiles(args);
  const input = readInput(args.file);
  const kind = fileKindOf(input);
  refuseMisfit(args, kind);
  if (args.command === 'expand') return expand(input, args);
  if (args.command === 'export') return exportEvidence(input);
  if (args.command === 'collateral') return fetchCollateral(args, kind, input);
  if (args.command === 'cpu') return verifyCpu(args, input);
  const notify = args.quiet ? () => {} : onFetch;
  const options = { ...optionsOf(args, notify), collateral: collateralFor(args, notify) };
  const report = await appraise(args, kind, input, { ...options, ...(await sessionOption(args, options)) });
  if (!args.quiet) fetched();
  refuseOtherProcessor(args, report.claims.cpu?.type ?? null);
  print(args, report, () => printReport(report, kind, printingOf(args, input, report)));
  return statusOf(report);
}

/** @throws {UsageError} */
function refuseOldClock(at: Date | null): void {
  const today = new Date().toISOString().slice(0, 10);
  if (at === null && today < MADE)
    throw new UsageError(
      `this machine's clock says ${today}, which is before this version was made: set it, or give --at TIME`,
    );
}

function printRequested(request: Request, all: readonly Command[]): number {
  if ('shell' in request) console.log(completion(request.shell, all));
  else if (request.print === 'version') console.log(VERSION);
  else console.log(request.command === null ? usage(all) : usageOf(request.command));
  return 0;
}

/** Only where --release is given is its code loaded. */
async function withRelease(args: Arguments): Promise<Arguments> {
  if (args.release === null) return args;
  const { releaseOptions } = await import('./release-source.ts');
  return { ...args, released: await releaseOptions(args, args.quiet ? () => {} : onFetch) };
}

/** Only this command loads the code that seals. */
async function serve(args: Arguments): Promise<number> {
  const { proxy } = await import('./proxy.ts');
  const silent = () => {};
  // What is expected of each answer is what its client sends.
  const { expected: _, ...options } = optionsOf(args, silent);
  return proxy(args, { ...options, collateral: collateralFor(args, silent) });
}

function printingOf(args: Arguments, input: string | Uint8Array, { checks }: VerificationReport | CpuReport): Printing {
  const now = new Date();
  const circumstances = { offline: args.offline, now: args.at === null ? now : null };
  const stranger = strangerIn(input, checks.find(({ status }) => status === 'fail')?.code);
  return { verbose: args.verbose, coloured, at: args.at ?? now, circumstances, stranger };
}

function print(args: Arguments, report: unknown, words: () => string): void {
  if (!args.quiet) console.log(args.json ? JSON.stringify(report, null, 2) : words());
}

/** Prints the file's evidence as a CMW collection. */
async function exportEvidence(input: string | Uint8Array): Promise<number> {
  try {
    console.log(JSON.stringify(await exportCmw(input, INPUT_LIMITS), null, 2));
    return 0;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    console.error(`countersign: ${error.code}: ${plain(error.message)}`);
    return 1;
  }
}

/** A processor's evidence alone: everything that it needs is in it, so nothing is fetched. */
async function verifyCpu(args: Arguments, input: string | Uint8Array): Promise<number> {
  const options = {
    ...(args.at === null ? {} : { at: args.at }),
    ...(args.allowSimulated === null ? {} : { simulatedRoots: readRoot(args.allowSimulated) }),
    ...(args.reportData === null ? {} : { expected: { reportData: args.reportData } }),
    ...cpuOptions(args),
    without: { revocation: args.withoutRevocation },
  };
  const report: CpuReport = await appraiseCpu(
    typeof input === 'string' ? unquoted(input, INPUT_LIMITS) : input,
    options,
  );
  refuseOtherProcessor(args, report.claims?.type ?? null);
  print(args, report, () => printCpuReport(report, printingOf(args, input, report)));
  return statusOf(report);
}

/** Runs the check and saves everything that it fetches. Prints the report too. */
async function fetchCollateral(args: Arguments, kind: FileKind, input: string | Uint8Array): Promise<number> {
  const kept: string[] = [];
  const collateral = fetchingInto(args.into ?? '.', args, (path) => void kept.push(path));
  const report = await appraise(args, kind, input, {
    ...optionsOf(args),
    ...(isAnswer(kind) ? {} : { policy: {} }),
    collateral,
  });
  if (args.released !== null && args.released.bundle !== null) {
    const { keepRelease } = await import('./release-source.ts');
    kept.push(keepRelease(args.released, args.into ?? '.'));
  }
  fetched();
  print(args, report, () => printReport(report, kind, printingOf(args, input, report)));
  console.error(`${kept.length} files in ${plain(args.into ?? '.')}`);
  return statusOf(report);
}
