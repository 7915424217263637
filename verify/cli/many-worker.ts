// A worker thread of `countersign verify DIR|FILE.jsonl`: checks one file or line after the other, with what it has computed so far.
import { parentPort, workerData } from 'node:worker_threads';
import type { Arguments } from './args.ts';
import { collateralFor } from './collateral-folder.ts';
import { decode, readInput, UsageError } from './input.ts';
import { fileKindOf } from './kinds.ts';
import type { Job, Line } from './many.ts';
import { appraise, optionsOf, sessionOption, statusOf } from './options.ts';

const VERDICTS = ['VALID', 'INVALID', 'INVALID', 'INCOMPLETE'] as const;

const args = workerData as Arguments;
const silent = () => {};
const own = { ...optionsOf(args, silent), collateral: collateralFor(args, silent) };
const ready = sessionOption(args, own).then((session) => ({ ...own, ...session }));

/** @returns null for a bundle, which is kept for the lines that follow. */
async function lineOf({ name, line }: Job): Promise<Line> {
  const input = line === null ? readInput(name) : decode(line, name);
  const kind = fileKindOf(input);
  if (kind === 'bundle' && typeof input === 'string') {
    await own.bundles?.add(input);
    return null;
  }
  const report = await appraise(args, kind, input, await ready);
  const code = report.checks.find(({ status }) => status === 'fail')?.code ?? null;
  const verdict = VERDICTS[statusOf(report)] ?? 'INVALID';
  return { name, verdict, level: report.level, code, report: args.json ? report : null };
}

/** A file that cannot be read, or is no text, is no valid answer, and ends nothing. */
function refused(name: string, error: unknown): Line {
  if (!(error instanceof UsageError)) throw error;
  return { name, verdict: 'INVALID', level: 'none', code: 'unreadable', report: null };
}

let last: Promise<unknown> = ready;
parentPort?.on('message', (job: Job) => {
  last = last.then(async () => parentPort?.postMessage(await lineOf(job).catch((error) => refused(job.name, error))));
});
