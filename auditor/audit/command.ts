// `countersign audit`: whether signed answers are what the auditor's own weights give.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { type Arguments, type OwnCommand, url } from '../../verify/cli/args.ts';
import { collateralFor, fetched, onFetch } from '../../verify/cli/collateral-folder.ts';
import { decode, isMany, readInput, UsageError, unusable } from '../../verify/cli/input.ts';
import { fileKindOf, refuseMisfit } from '../../verify/cli/kinds.ts';
import { type Job, jobsOf } from '../../verify/cli/many.ts';
import { optionsOf } from '../../verify/cli/options.ts';
import { plain } from '../../verify/cli/report.ts';
import { BUNDLE, GPU, JSON_OUTPUT } from '../../verify/cli/table.ts';
import {
  type Exchange,
  isTranscript,
  VerificationError,
  type VerifyOptions,
  verifyAttestation,
} from '../../verify/index.ts';
import { type Calibration, readCalibration, writeCalibration } from './calibration.ts';
import { chartOf } from './chart.ts';
import { type Engine, openEngine, Refused } from './engine.ts';
import { auditableOf } from './ids.ts';
import { type Account, asJson, inAnswers, inWords, leaveOut, newAccount } from './report.ts';
import { boundOf, CALIBRATION_TOKENS, type Decision, decide, MAX_BOUND, UNCALIBRATED } from './rule.ts';
import { keepWorst, newTally, type Passage, scoreAnswer, type Tally } from './score.ts';

export const AUDIT: OwnCommand = {
  name: 'audit',
  operands: 'FILE…',
  text: 'whether answers are what your own copy of the weights gives: their tokens beside your engine, with an error rate',
  options: [
    { name: 'engine', value: 'URL', text: 'your vLLM or SGLang with the weights, such as http://127.0.0.1:8000/v1' },
    { name: 'model', value: 'NAME', text: "the engine's name of them; its first model without it" },
    {
      name: 'against',
      value: 'URL',
      text: 'an engine with other weights, such as 8-bit ones: which of both explains the answers',
    },
    { name: 'alpha', value: 'SHARE', text: 'the false-alarm rate of all tests together; 0.01 without it' },
    { name: 'calibrate', value: 'FILE', text: 'the answers are of a reference deployment: write here what it misses' },
    { name: 'calibration', value: 'FILE', text: 'a file of --calibrate' },
    { name: 'chart', value: 'FILE', text: 'draw the audit there, as SVG' },
    ...GPU,
    BUNDLE,
    JSON_OUTPUT,
  ],
  examples: [
    'countersign audit answers/2026-10 --engine http://127.0.0.1:8000/v1 --chart audit.svg',
    'countersign audit reference --engine http://127.0.0.1:8000/v1 --calibrate calibration.json',
  ],
  run: audit,
};

interface Settings {
  readonly engine: Engine;
  readonly against: Engine | null;
  readonly alpha: number;
  readonly calibrate: string | null;
  readonly calibration: Calibration | null;
  readonly chart: string | null;
  readonly options: VerifyOptions;
}

type Values = Partial<Record<'engine' | 'model' | 'against' | 'alpha' | 'calibrate' | 'calibration' | 'chart', string>>;

/** @throws {UsageError} */
async function settingsIn(args: Arguments): Promise<Settings> {
  const values = args.values as Values;
  if (args.operands.length === 0) throw new UsageError('audit: a FILE is needed');
  if (values.engine === undefined) throw new UsageError('audit needs --engine URL');
  const alpha = Number(values.alpha ?? 0.01);
  if (!(alpha > 0 && alpha <= 0.5)) throw new UsageError(`--alpha ${values.alpha}: not a share from 0 to 0.5`);
  if (values.calibrate !== undefined)
    for (const name of ['against', 'calibration', 'chart', 'alpha'] as const)
      if (values[name] !== undefined) throw new UsageError(`--${name} has no use for --calibrate`);
  const folders = args.operands.filter((path) => isMany(path) && !path.endsWith('.jsonl'));
  const given = { ...args, bundles: [...args.bundles, ...folders] };
  const options = { ...optionsOf(given), collateral: collateralFor(given, onFetch) };
  const engine = await openEngine('--engine', url('--engine', values.engine), values.model ?? null);
  return {
    engine,
    against:
      values.against === undefined ? null : await openEngine('--against', url('--against', values.against), null),
    alpha,
    calibrate: values.calibrate ?? null,
    calibration: values.calibration === undefined ? null : readCalibration(values.calibration, engine.model),
    chart: values.chart ?? null,
    options,
  };
}

async function audit(args: Arguments): Promise<number> {
  const settings = await settingsIn(args);
  const { engine, against, alpha, calibrate, calibration, chart } = settings;
  const tally = newTally(against !== null);
  const account = newAccount();
  const worst: Passage[] = [];
  const seen = new Set<string>();
  for (const operand of args.operands)
    for await (const job of jobsOf(operand)) {
      const exchange = await provenIn(job, args, settings, account);
      if (exchange !== null && isNew(exchange, seen, account))
        keepWorst(worst, ...(await auditOne(job.name, exchange, settings, tally, account)));
    }
  fetched();
  if (calibrate !== null) return calibrated(calibrate, tally, account, engine);
  const bound = calibration === null ? UNCALIBRATED : boundOf(calibration);
  const decision = decide(tally, bound, alpha, account);
  const around = { model: engine.model, alpha, bound, calibrated: calibration !== null };
  if (chart !== null) write(chart, chartOf(tally, calibration, bound, alpha));
  console.log(args.json ? asJson(account, decision, around, tally) : inWords(account, decision, around));
  if (!args.json && process.stdout.isTTY) await printPassages(worst, engine);
  return statusOf(decision, account);
}

/** The proof is verified before anything of an answer goes to the engine. @returns null for what is not audited, or a bundle. */
async function provenIn(job: Job, args: Arguments, { options }: Settings, account: Account): Promise<Exchange | null> {
  const input = inputOf(job);
  const kind = fileKindOf(input);
  if (kind === 'bundle' && typeof input === 'string' && (args.operands.length > 1 || isMany(args.file))) {
    await options.bundles?.add(input);
    return null;
  }
  refuseMisfit(args, kind);
  try {
    return (await verifyAttestation(input, options)).exchange;
  } catch (error) {
    if (!(error instanceof VerificationError)) throw error;
    account.notAudited.push({ file: job.name, code: error.code, incomplete: error.incomplete });
    return null;
  }
}

function inputOf({ name, line }: Job): string | Uint8Array {
  if (line === null) return readInput(name);
  const text = decode(line, name);
  return isTranscript(text) ? line : text;
}

/** The same answer twice says nothing new: tests count each token once. */
function isNew({ request, response }: Exchange, seen: Set<string>, account: Account): boolean {
  const { choices, usage } = JSON.parse(response) as { choices?: unknown; usage?: { completion_tokens?: number } };
  const hash = createHash('sha256')
    .update(request)
    .update('\n')
    .update(JSON.stringify(choices) ?? '')
    .digest('base64');
  if (!seen.has(hash)) return seen.add(hash) !== null;
  leaveOut(account, 'the same answer again', usage?.completion_tokens ?? 0);
  return false;
}

async function auditOne(
  file: string,
  exchange: Exchange,
  { engine, against }: Settings,
  tally: Tally,
  account: Account,
): Promise<readonly Passage[]> {
  const auditable = auditableOf(exchange);
  if ('reason' in auditable) {
    leaveOut(account, auditable.reason, auditable.tokens);
    return [];
  }
  try {
    const { findings, passages, choices } = await scoreAnswer(file, auditable, tally, engine, against);
    account.findings.push(...findings.map((finding) => ({ file, ...finding })));
    if (choices > 0) account.answers++;
    return passages;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const tokens = auditable.choices.reduce((sum, { ids }) => sum + (ids?.length ?? 0), 0);
    leaveOut(account, `the engine refuses it, such as for its length (${error.message})`, tokens);
    return [];
  }
}

function calibrated(file: string, { greedy }: Tally, { notAudited, findings }: Account, engine: Engine): number {
  const { tokens, misses } = greedy;
  if (notAudited.length > 0) {
    const codes = [...new Set(notAudited.map(({ code }) => code))].join(', ');
    throw new UsageError(`--calibrate: no valid proof in ${inAnswers(notAudited.length)} (${codes})`);
  }
  const differing = new Set(findings.map(({ file: named }) => named)).size;
  if (differing > 0)
    throw new UsageError(`--calibrate: the token ids of ${inAnswers(differing)} are not those of this engine`);
  if (tokens < CALIBRATION_TOKENS) {
    console.log(
      `TOO LITTLE: ${tokens} tokens of temperature 0 with their ids, of ${CALIBRATION_TOKENS}; no file was written`,
    );
    return 3;
  }
  const bound = boundOf(greedy);
  const words = `${misses} of ${tokens} tokens miss by more than 0.25 nats: an honest engine misses at most ${(bound * 100).toFixed(2)} %`;
  if (bound > MAX_BOUND) {
    console.log(`NOT CONSISTENT: ${words}: the reference has other weights or another precision; no file was written`);
    return 1;
  }
  writeCalibration(file, engine.model, greedy, new Date());
  console.log(plain(`${words}; written to ${file}`));
  return 0;
}

function statusOf({ verdict }: Decision, { notAudited }: Account): number {
  if (verdict === 'NOT CONSISTENT' || notAudited.some(({ incomplete }) => !incomplete)) return 1;
  return verdict === 'TOO LITTLE' || notAudited.length > 0 ? 3 : 0;
}

/** @throws {UsageError} */
function write(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch (error) {
    throw unusable(file, error);
  }
}

/** Words of the answers: on a terminal, where they are kept nowhere. */
async function printPassages(passages: readonly Passage[], engine: Engine): Promise<void> {
  for (const { file, token, nats, ids } of passages)
    console.log(plain(`  ${nats.toFixed(1)} nats at token ${token} of ${file}: …${await engine.decode(ids)}…`));
}
