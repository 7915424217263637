// Which figures and targets a run is about.
import type { Figure } from './figures/figure.ts';
import { FIGURES } from './figures/index.ts';
import { targetsWith } from './targets/index.ts';
import type { TargetKind } from './targets/target.ts';

/** The ratios need them, whatever was asked for. */
const YARDSTICKS = new Set(['direct', 'nginx', 'pipe']);

export interface Choice {
  readonly kinds: readonly TargetKind[];
  readonly figures: readonly Figure[];
  /** Left out by nobody's wish: said loudly. */
  readonly skipped: readonly string[];
}

/**
 * A name may be a figure's or a target's; naming none of a sort means all of it, except for what is `slow` in a quick run.
 * `before`: another checkout, or null.
 * @throws {TypeError} naming what is not known.
 */
export function choose(
  only: readonly string[],
  without: readonly string[],
  quick: boolean,
  before: string | null = null,
): Choice {
  const targets = targetsWith(before);
  const known = [...FIGURES, ...targets].map(({ name }) => name);
  const wanted = new Set(only.flatMap((given) => matching(given, known)));
  const unwanted = new Set(without.flatMap((given) => matching(given, known)));
  const figures = FIGURES.filter(({ name }) => wanted.has(name));
  const named = targets.some(({ name }) => wanted.has(name));
  const candidates = targets.filter(({ name }) => !named || wanted.has(name) || YARDSTICKS.has(name));
  const kinds = candidates.filter(({ name, slow }) => !unwanted.has(name) && (named || !quick || slow !== true));
  return {
    kinds,
    figures: (figures.length > 0 ? figures : FIGURES).filter(({ name }) => !unwanted.has(name)),
    skipped: candidates.filter((kind) => !kinds.includes(kind)).map(({ name }) => skippedLine(name, unwanted)),
  };
}

function skippedLine(name: string, unwanted: ReadonlySet<string>): string {
  return unwanted.has(name) ? `${name}: as asked for` : `${name}: not in a quick run, unless it is named`;
}

/** The name itself, hyphens and spaces alike; or else all that begin with it: `whole` is whole-1k, whole-16k and whole-128k. */
function matching(given: string, names: readonly string[]): string[] {
  const plain = (name: string) => name.replaceAll(' ', '-');
  const exact = names.filter((name) => plain(name) === plain(given));
  const found = exact.length > 0 ? exact : names.filter((name) => plain(name).startsWith(plain(given)));
  if (found.length === 0) throw new TypeError(`${given} is not known. ${names.join(', ')}`);
  return found;
}
