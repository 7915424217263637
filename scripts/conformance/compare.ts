// Runs a program over the cases, two at a time, and compares what it says with the manifest.
import { resolve } from 'node:path';
import type { Expected, ManifestCase } from './manifest.ts';
import { type Answer, ask, type Limits } from './program.ts';

/**
 * `accepted`: it says valid of what must not pass, the one that matters most. `refused`: it refuses what is valid. `another`: a
 * verdict, code or level other than the manifest's. `broken`: no verdict as the contract has it. `unsupported` is no agreement.
 */
export const OUTCOMES = ['right', 'accepted', 'refused', 'another', 'broken', 'unsupported', 'not_asked'] as const;
export type Outcome = (typeof OUTCOMES)[number];

export interface Row {
  /** The case's name, without folder and ending. */
  readonly name: string;
  readonly outcome: Outcome;
  readonly expected: string;
  readonly said: string;
  readonly seconds: number;
}

const AT_ONCE = 2;
/** A program that hangs on so many cases hangs on all: the rest is not asked, and the run has failed. */
export const MAX_TIMEOUTS = 5;

/** @param folder of the vectors. @throws {NoProgram} */
export async function compare(
  program: readonly string[],
  folder: string,
  cases: readonly ManifestCase[],
  limits: Limits,
  stopped?: AbortSignal,
): Promise<Row[]> {
  const rows = new Map<ManifestCase, Row>();
  const left = [...cases];
  let timeouts = 0;
  async function work(): Promise<void> {
    for (let one = left.shift(); one !== undefined; one = left.shift()) {
      const given = timeouts >= MAX_TIMEOUTS || stopped?.aborted === true;
      const began_ms = performance.now();
      const answer = given ? null : await ask(program, resolve(folder, one.file), limits, stopped);
      if (answer?.verdict === 'none' && answer.timedOut) timeouts++;
      rows.set(one, rowOf(one, answer, Math.round(performance.now() - began_ms) / 1000));
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return cases.map((one) => rows.get(one) as Row);
}

/** All that were asked agree, and some were: what is not supported counts neither way. */
export const agrees = (rows: readonly Row[]): boolean =>
  rows.some(({ outcome }) => outcome === 'right') &&
  rows.every(({ outcome }) => outcome === 'right' || outcome === 'unsupported');

export const count = (rows: readonly Row[]): Readonly<Record<Outcome, number>> =>
  Object.fromEntries(
    OUTCOMES.map((one) => [one, rows.filter(({ outcome }) => outcome === one).length] as const),
  ) as Record<Outcome, number>;

function rowOf({ file, expected }: ManifestCase, answer: Answer | null, seconds: number): Row {
  const name = file.replace(/^cases\/|\.json$/g, '');
  return { name, outcome: outcomeOf(expected, answer), expected: lineOf(expected), said: saidOf(answer), seconds };
}

const lineOf = (expected: Expected): string =>
  `${expected.verdict} ${expected.verdict === 'valid' ? expected.level : expected.code}`;

function saidOf(answer: Answer | null): string {
  if (answer === null) return '';
  if (answer.verdict === 'none') return answer.reason;
  return answer.verdict === 'unsupported' ? 'not supported' : `${answer.verdict} ${answer.word}`;
}

function outcomeOf(expected: Expected, answer: Answer | null): Outcome {
  if (answer === null) return 'not_asked';
  if (answer.verdict === 'none') return 'broken';
  if (answer.verdict === 'unsupported') return 'unsupported';
  if (saidOf(answer) === lineOf(expected)) return 'right';
  if (answer.verdict === expected.verdict) return 'another';
  if (answer.verdict === 'valid') return 'accepted';
  return expected.verdict === 'valid' ? 'refused' : 'another';
}
