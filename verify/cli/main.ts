#!/usr/bin/env node
// `countersign`: checks its input, prints the report, and reports the result by its exit status (EXIT_STATUS of table.ts).
import { unquoted } from '../common/bounded-json.ts';
import { VERSION } from '../common/version.ts';
import { appraiseCpu, appraiseSession, type CpuReference, type CpuReport, readReference } from '../cpu/index.ts';
import { type EarOptions, earOf, earOfCpu } from '../forms/ear.ts';
import { exportCmw, exportCvm1 } from '../forms/export.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  CheckFailure,
  fetchNrasKeys,
  type Kind,
  kindOf,
  UnsupportedSystemError,
  type VerificationReport,
  type VerifyOptions,
} from '../index.ts';
import { parsePem } from '../x509/certificate.ts';
import { type Arguments, helpOf, type Request, readArguments } from './args.ts';
import { collateralFor, fetched, fetchingInto, onFetch } from './collateral-folder.ts';
import { completion } from './help.ts';
import { INPUT_LIMITS, readInput, readText, UsageError } from './input.ts';
import { replay } from './replay.ts';
import { plain, printCpuReport, printReport } from './report.ts';

const { env, stdout } = process;
const coloured = stdout.isTTY === true && env.NO_COLOR === undefined && env.TERM !== 'dumb';

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError || error instanceof UnsupportedSystemError)) throw error;
  console.error(`countersign: ${plain(error.message)}\nsee --help`);
  process.exitCode = 2;
}

async function run(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if ('shell' in args || 'print' in args) return printRequested(args);
  if (args.command === 'export') return exportEvidence(args);
  if (args.command === 'collateral') return fetchCollateral(args);
  if (args.command === 'proxy') return serve(args);
  const options = { ...optionsOf(args), collateral: collateralFor(args) };
  if (args.command === 'replay')
    return replay(readInput(args.file), { ...args, baseUrl: args.baseUrl ?? '', apiKey: apiKeyOf(args), options });
  const input = readInput(args.file);
  const kind = args.command === 'verify' ? kindOf(input, INPUT_LIMITS) : kindNamed(args.command);
  if (kind === 'cpu') return verifyCpu(args, input);
  const report = await appraise(args, kind, input, { ...options, ...(await sessionOption(args, options)) });
  fetched();
  print(
    args,
    report,
    () => earOf(report, options, software()),
    () => printReport(report, args.at ?? new Date(), coloured),
  );
  return statusOf(report);
}

function printRequested(request: Request): number {
  if ('shell' in request) console.log(completion(request.shell));
  else console.log(request.print === 'version' ? VERSION : helpOf(request.command));
  return 0;
}

/** Only this command loads the code that seals. */
async function serve(args: Arguments): Promise<number> {
  const { proxy } = await import('./proxy.ts');
  const silent = () => {};
  return proxy(args, { ...optionsOf(args, silent), collateral: collateralFor(args, silent) });
}

function kindNamed(command: Arguments['command']): Kind {
  return command === 'evidence' || command === 'cpu' || command === 'session' ? command : 'attestation';
}

function statusOf({ valid, incomplete }: VerificationReport | CpuReport): number {
  return valid ? 0 : incomplete ? 3 : 1;
}

/** @throws {UsageError} */
function apiKeyOf({ apiKeyFile }: Arguments): string | null {
  return apiKeyFile === null ? (env.OPENAI_API_KEY ?? null) : readText(apiKeyFile).trim();
}

function software(): EarOptions {
  return { build: `countersign ${VERSION}`, issued: new Date() };
}

function print(args: Arguments, report: unknown, ear: () => unknown, words: () => string): void {
  if (args.quiet) return;
  if (!args.json && !args.ear) return console.log(words());
  console.log(JSON.stringify(args.ear ? ear() : report, null, 2));
}

/** Prints the file's evidence in another form. */
async function exportEvidence({ file, form }: Arguments): Promise<number> {
  const input = readInput(file);
  try {
    const exported = await (form === 'cmw' ? exportCmw(input, INPUT_LIMITS) : exportCvm1(input, INPUT_LIMITS));
    console.log(JSON.stringify(exported, null, 2));
    return 0;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    console.error(`countersign: ${error.code}: ${plain(error.message)}`);
    return 1;
  }
}

/** The session that the caller holds. The policy judges the attestation, which alone says how old it is. @throws {UsageError} */
async function sessionOption(args: Arguments, options: VerifyOptions): Promise<Pick<VerifyOptions, 'session'>> {
  if (args.session === null) return {};
  const { session, checks } = await appraiseSession(unquoted(readText(args.session), INPUT_LIMITS), {
    ...options,
    policy: {},
  });
  if (session !== null) return { session };
  const failed = checks.find(({ status }) => status === 'fail');
  throw new UsageError(`--session ${args.session}: it does not verify: ${failed?.code}: ${failed?.detail}`);
}

/** A processor's evidence alone: everything that it needs is in it, so nothing is fetched. */
async function verifyCpu(args: Arguments, input: string | Uint8Array): Promise<number> {
  refuseExpected(args);
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
  print(
    args,
    report,
    () => earOfCpu(report, options, software()),
    () => printCpuReport(report, coloured),
  );
  return statusOf(report);
}

/** Runs the check and saves everything that it fetches. Prints the report too. */
async function fetchCollateral(args: Arguments): Promise<number> {
  const kept: string[] = [];
  const collateral = fetchingInto(args.into ?? '.', args, (path) => void kept.push(path));
  const input = readInput(args.file);
  const report = await appraise(args, kindOf(input, INPUT_LIMITS), input, { ...optionsOf(args), collateral });
  fetched();
  if (args.json) console.log(JSON.stringify(report, null, 2));
  else {
    for (const path of kept) console.log(`kept ${plain(path)}`);
    console.log(`${printReport(report, args.at ?? new Date(), coloured)}\n\n${kept.length} files in ${args.into}`);
  }
  return statusOf(report);
}

async function appraise(
  args: Arguments,
  kind: Kind,
  input: string | Uint8Array,
  options: VerifyOptions,
): Promise<VerificationReport> {
  if (kind === 'cpu') throw new UsageError("what a processor's evidence needs is in it: there is nothing to fetch");
  if (kind === 'session')
    return appraiseSession(typeof input === 'string' ? unquoted(input, INPUT_LIMITS) : input, options);
  if (kind === 'evidence') {
    refuseExpected(args);
    return appraiseEvidence(input, options);
  }
  const expected = {
    ...options.expected,
    ...(args.request === null ? {} : { request: readText(args.request) }),
    ...(args.response === null ? {} : { response: readText(args.response) }),
    ...(args.endpoint === null ? {} : { endpoint: args.endpoint }),
    event: args.event,
  };
  return appraiseAttestation(input, { ...options, expected });
}

/** @throws {UsageError} */
function refuseExpected({ request, response, endpoint, event }: Arguments): void {
  if (request !== null || response !== null || endpoint !== null || event)
    throw new UsageError(
      'bare evidence holds no request and no response: --request, --response, --endpoint and --event have no use',
    );
}

function optionsOf(args: Arguments, notify = onFetch): VerifyOptions {
  return {
    ...(args.at === null ? {} : { at: args.at }),
    ...(args.allowSimulated === null ? {} : { simulatedRoot: readRoot(args.allowSimulated) }),
    policy: {
      ...(args.maxAgeSeconds === null ? {} : { maxAgeSeconds: args.maxAgeSeconds }),
      ...(args.maxBatch === null ? {} : { maxBatch: args.maxBatch }),
      ...(args.requireLevel === null ? {} : { minLevel: args.requireLevel }),
    },
    cpu: cpuOptions(args),
    ...(args.challenge === null ? {} : { expected: { challenge: args.challenge } }),
    limits: INPUT_LIMITS,
    without: { referenceValues: args.withoutReferenceValues, revocation: args.withoutRevocation },
    // NVIDIA's keys for its remote service's tokens come over the network too.
    ...(args.offline ? {} : { fetchNrasKeys: (url: string) => fetchNrasKeys(url, fetch, { onFetch: notify }) }),
  };
}

function cpuOptions(args: Arguments) {
  return {
    policy: {
      ...(args.products.length === 0 ? {} : { products: args.products }),
      ...(args.tcb.length === 0 ? {} : { tcb: args.tcb }),
    },
    ...(args.reference === null ? {} : { reference: readReferences(args.reference) }),
  };
}

/** @throws {UsageError} */
function readReferences(file: string): CpuReference {
  const text = readText(file);
  try {
    return readReference(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`--reference ${file}: ${error.message}`);
  }
}

/** @throws {UsageError} */
function readRoot(file: string): string {
  const text = readText(file);
  try {
    parsePem(text);
  } catch {
    throw new UsageError(`--allow-simulated ${file}: not a PEM certificate`);
  }
  return text;
}
