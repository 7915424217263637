// `countersign transcript`: checks each proof of an agent's run, and that its turns are a chain.
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { type Arguments, fileIn, type OwnCommand } from '../../verify/cli/args.ts';
import { collateralFor } from '../../verify/cli/collateral-folder.ts';
import { UsageError, unusable } from '../../verify/cli/input.ts';
import { createPool, type Pool, poolSize } from '../../verify/cli/many.ts';
import { optionsOf, sessionOption } from '../../verify/cli/options.ts';
import { styled } from '../../verify/cli/report.ts';
import { BUNDLE, DEVICE, GPU, JSON_OUTPUT, POLICY, PROCESSOR, SESSION, SOFTWARE } from '../../verify/cli/table.ts';
import { type HtmlReport, htmlReport } from './html.ts';
import { redactor } from './redact.ts';
import { counter, type Summary, summaryInWords, turnAsJson, turnInWords } from './report.ts';
import { openTranscript, type Turn } from './turns.ts';

export const TRANSCRIPT: OwnCommand = {
  name: 'transcript',
  operands: 'FILE',
  text: "check an agent's run, as verifyingFetch({ transcript }) keeps it: each proof, and each tool's result against the call that it answers",
  options: [
    {
      name: 'html',
      value: 'OUT',
      text: 'write the conversation with what was found, as one page; it holds everything that was said',
    },
    {
      name: 'redact',
      value: 'OUT',
      text: 'write the transcript without its words: of each turn the proof, and hashes',
    },
    { name: 'unedited', text: 'refuse a run in which history was told again in another way, as compaction does' },
    ...GPU,
    BUNDLE,
    ...SESSION,
    DEVICE,
    ...POLICY,
    ...PROCESSOR,
    ...SOFTWARE,
    JSON_OUTPUT,
    { name: 'quiet', text: 'print nothing; the exit status is the answer' },
  ],
  examples: [
    'countersign transcript run.jsonl --html run.html',
    'countersign transcript run.jsonl --redact shown.jsonl --quiet',
  ],
  run: transcript,
};

const STATUS: Readonly<Record<Summary['verdict'], number>> = { UNBROKEN: 0, BROKEN: 1, INCOMPLETE: 3 };

async function transcript(args: Arguments, env: Parameters<OwnCommand['run']>[1]): Promise<number> {
  fileIn(args.operands, TRANSCRIPT);
  const { html, redact, unedited } = args.values as { html?: string; redact?: string; unedited?: boolean };
  // Options that cannot be used are found before the first line.
  await sessionOption(args, { ...optionsOf(args), collateral: collateralFor(args) });
  const strict = unedited === true;
  const copy = redact === undefined ? null : redactedCopy(redact);
  const page = html === undefined ? null : htmlReport(html);
  const pool = createPool(poolSize(), { ...args, run: null });
  try {
    const coloured = process.stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
    return await read(args, pool, { strict, coloured }, page, copy);
  } catch (error) {
    page?.discard();
    throw error;
  } finally {
    copy?.close();
    await pool.close();
  }
}

interface Manner {
  readonly strict: boolean;
  readonly coloured: boolean;
}

async function read(
  args: Arguments,
  pool: Pool,
  { strict, coloured }: Manner,
  page: HtmlReport | null,
  copy: Copy | null,
): Promise<number> {
  const { json, quiet } = args;
  const given = openTranscript(args.file, pool);
  const counted = counter(strict);
  for await (const turn of given.turns()) {
    copy?.add(turn);
    if ('bundle' in turn) continue;
    counted.add(turn);
    page?.add(turn);
    if (quiet) continue;
    if (json) console.log(JSON.stringify(turnAsJson(turn)));
    else console.log(coloured ? turnInWords(turn).split('\n').map(styled).join('\n') : turnInWords(turn));
  }
  const summary = counted.end(given.runs, given.open());
  if (summary.turns === 0) throw new UsageError(`${args.file}: no exchange is in it`);
  await page?.end(summary, strict);
  if (!quiet) console.log(json ? JSON.stringify({ summary }) : summaryInWords(summary, strict, coloured));
  if (!quiet && !json && copy !== null) console.log(copy.words());
  return STATUS[summary.verdict];
}

interface Copy {
  add(turn: Turn | { readonly bundle: string }): void;
  words(): string;
  close(): void;
}

/** @throws {UsageError} where the file is there already */
function redactedCopy(path: string): Copy {
  let opened: number;
  try {
    opened = openSync(path, 'wx', 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST')
      throw new UsageError(`--redact ${path}: it is there already`);
    throw unusable(path, error);
  }
  const make = redactor();
  const write = (line: string) => void writeSync(opened, `${line}\n`);
  let left = 0;
  return {
    add(turn) {
      if ('bundle' in turn) return write(turn.bundle);
      const { value, verdict, endpoint, conversation } = turn;
      const redacted =
        value === null || verdict === 'INVALID'
          ? null
          : value.redacted === 1
            ? value
            : make(value, endpoint, conversation);
      if (redacted === null) left++;
      else write(JSON.stringify(redacted));
    },
    words: () =>
      `redacted: ${path}${left === 0 ? '' : `, without ${left} that have no proof`}; its turns are incomplete until the whole line of one is shown beside them`,
    close() {
      fsyncSync(opened);
      closeSync(opened);
    },
  };
}
