// `countersign verify`: checks an attestation or bare evidence, prints the report, exits 0 (valid), 1 (invalid) or 2 (usage). And `export`.

import { appraiseCpu, appraiseSession, type CpuReference, type CpuReport, readReference } from '../cpu/index.ts';
import { type EarOptions, earOf, earOfCpu } from '../forms/ear.ts';
import { exportCmw, exportCvm1 } from '../forms/export.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  CheckFailure,
  fetchNrasKeys,
  type VerificationReport,
  type VerifyOptions,
} from '../index.ts';
import { parsePem } from '../x509/certificate.ts';
import { type Arguments, readArguments, USAGE, UsageError } from './args.ts';
import { collateralFor, fetchingInto } from './collateral-folder.ts';
import { MAX_INPUT_BYTES, packageVersion, plain, printCpuReport, printReport, readInput, readText } from './io.ts';

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(`countersign: ${plain(error.message)}\nsee --help`);
  process.exitCode = 2;
}

async function run(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === null) {
    console.log(USAGE);
    return 0;
  }
  if (args.command === 'fetch-collateral') return fetchCollateral(args);
  if (args.command === 'export') return exportEvidence(args);
  if (args.command === 'cpu') return verifyCpu(args);
  const options = { ...optionsOf(args), collateral: collateralFor(args) };
  const report = await appraise(args, { ...options, ...(await sessionOption(args, options)) });
  print(
    args,
    report,
    () => earOf(report, options, software()),
    () => printReport(report, args.at ?? new Date()),
  );
  return report.valid ? 0 : 1;
}

function software(): EarOptions {
  return { build: `countersign ${packageVersion()}`, issued: new Date() };
}

function print(args: Arguments, report: unknown, ear: () => unknown, words: () => string): void {
  if (!args.json && !args.ear) return console.log(words());
  console.log(JSON.stringify(args.ear ? ear() : report, null, 2));
}

/** The evidence in another form, as it is in the file. */
async function exportEvidence({ file, form }: Arguments): Promise<number> {
  const limits = { maxCharacters: MAX_INPUT_BYTES };
  const input = readInput(file);
  try {
    const exported = await (form === 'cmw' ? exportCmw(input, limits) : exportCvm1(input, limits));
    console.log(JSON.stringify(exported, null, 2));
    return 0;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    console.error(`countersign: ${error.code}: ${plain(error.message)}`);
    return 1;
  }
}

/** The session that the caller holds, verified as the attestation is. @throws {UsageError} */
async function sessionOption(args: Arguments, options: VerifyOptions): Promise<Pick<VerifyOptions, 'session'>> {
  if (args.session === null) return {};
  const { session, checks } = await appraiseSession(readText(args.session), options);
  if (session !== null) return { session };
  const failed = checks.find(({ status }) => status === 'fail');
  throw new UsageError(`--session ${args.session}: it does not verify: ${failed?.code}: ${failed?.detail}`);
}

/** A processor's evidence alone: everything that it needs is in it, so nothing is fetched. */
async function verifyCpu(args: Arguments): Promise<number> {
  refuseExpected(args);
  const options = {
    ...(args.at === null ? {} : { at: args.at }),
    ...(args.allowSimulated === null ? {} : { simulatedRoots: readRoot(args.allowSimulated) }),
    ...(args.reportData === null ? {} : { expected: { reportData: args.reportData } }),
    ...cpuOptions(args),
    without: { revocation: args.withoutRevocation },
  };
  const report: CpuReport = await appraiseCpu(readText(args.file), options);
  print(
    args,
    report,
    () => earOfCpu(report, options, software()),
    () => printCpuReport(report),
  );
  return report.valid ? 0 : 1;
}

/** Runs the check, which fetches what it needs, and keeps that. Prints the report too. */
async function fetchCollateral(args: Arguments): Promise<number> {
  let kept = 0;
  const collateral = fetchingInto(args.into ?? '.', args, (path) => {
    kept++;
    console.log(`kept ${path}`);
  });
  const report = await appraise(args, { ...optionsOf(args), collateral });
  console.log(
    args.json
      ? JSON.stringify(report, null, 2)
      : `${printReport(report, args.at ?? new Date())}\n\n${kept} files in ${args.into}`,
  );
  return report.valid ? 0 : 1;
}

async function appraise(args: Arguments, options: VerifyOptions): Promise<VerificationReport> {
  if (args.command === 'session') return appraiseSession(readText(args.file), options);
  const input = readInput(args.file);
  // A file that is a bare list of evidence is checked as one, whatever the command was.
  if (args.command === 'evidence' || (args.command === 'fetch-collateral' && isList(input))) {
    refuseExpected(args);
    return appraiseEvidence(input, options);
  }
  const expected = {
    ...options.expected,
    ...(args.request === null ? {} : { request: readText(args.request) }),
    ...(args.response === null ? {} : { response: readText(args.response) }),
    ...(args.endpoint === null ? {} : { endpoint: args.endpoint }),
  };
  return appraiseAttestation(input, { ...options, expected });
}

/** @throws {UsageError} */
function refuseExpected({ request, response, endpoint }: Arguments): void {
  if (request !== null || response !== null || endpoint !== null)
    throw new UsageError(
      'bare evidence holds no request and no response: --request, --response and --endpoint have no use',
    );
}

function isList(input: string | Uint8Array): boolean {
  return typeof input === 'string' && input.trimStart().startsWith('[');
}

function optionsOf(args: Arguments): VerifyOptions {
  return {
    ...(args.at === null ? {} : { at: args.at }),
    ...(args.allowSimulated === null ? {} : { simulatedRoot: readRoot(args.allowSimulated) }),
    policy: {
      ...(args.maxAgeSeconds === null ? {} : { maxAgeSeconds: args.maxAgeSeconds }),
      ...(args.maxBatch === null ? {} : { maxBatch: args.maxBatch }),
      ...(args.minLevel === null ? {} : { minLevel: args.minLevel }),
    },
    cpu: cpuOptions(args),
    ...(args.challenge === null ? {} : { expected: { challenge: args.challenge } }),
    // A file that may be read may be checked: a gateway attests more than the library takes by default.
    limits: { maxCharacters: MAX_INPUT_BYTES },
    without: { referenceValues: args.withoutReferenceValues, revocation: args.withoutRevocation },
    // NVIDIA's keys for its remote service's tokens come over the network too.
    ...(args.offline ? {} : { fetchNrasKeys: (url: string) => fetchNrasKeys(url, fetch, { onFetch }) }),
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

const onFetch = (what: string) => console.error(`fetching ${what} …`);

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
