// A run as it is kept: everything that was measured, in JSON, under bench/results.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Column, Measured } from '../figures/figure.ts';
import type { Plan } from '../plan.ts';
import type { Machine } from '../system/machine.ts';
import { ROOT } from '../system/process.ts';
import type { BarResult } from './bars.ts';
import type { Row } from './results.ts';

export interface SavedFigure {
  readonly title: string;
  readonly columns: readonly Column[];
  /** Medians over the rounds. */
  readonly rows: readonly Row[];
  readonly rounds: readonly (readonly Measured[])[];
}

export interface Saved {
  readonly machine: Machine;
  readonly plan: Plan;
  readonly took_s: number;
  /** CPU that others took of the machine, in percent of a core: the median over all that was measured; null: not known. */
  readonly others_percent: number | null;
  readonly legend: readonly { readonly name: string; readonly about: string }[];
  readonly skipped: readonly string[];
  readonly figures: Readonly<Record<string, SavedFigure>>;
  readonly bars: readonly BarResult[];
}

const FOLDER = join(ROOT, 'bench/results');
/** Members that are NaN where there is nothing to say, which JSON writes as null. */
const NUMBERS = new Set(['value', 'to_nginx', 'to_pipe']);

/** Into `file`, or under `name` with the others. @returns where it lies. */
export function save(result: object, file: string | null, name: string): string {
  const path = file ?? join(FOLDER, `${name.replaceAll(':', '')}.json`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(result, null, 2)}\n`);
  return path;
}

/** The result in `file`, or the newest one. @throws {TypeError} when there is none, or it is something else. */
export function load(file: string | null): Saved {
  const path = file ?? newest();
  const saved = read(path);
  if (saved.bars === undefined || saved.figures === undefined)
    throw new TypeError(`${path} is no result of this bench`);
  return saved as Saved;
}

function read(path: string): Partial<Saved> {
  try {
    return JSON.parse(readFileSync(path, 'utf8'), (key, value) =>
      value === null && NUMBERS.has(key) ? Number.NaN : value,
    );
  } catch (error) {
    throw new TypeError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

function newest(): string {
  let names: string[] = [];
  try {
    names = readdirSync(FOLDER).filter((name) => /^\d.*\.json$/.test(name));
  } catch {
    // There is no folder before the first run.
  }
  const last = names.sort().at(-1);
  if (last === undefined) throw new TypeError('there is no saved result: run npm run bench first');
  return join(FOLDER, last);
}
