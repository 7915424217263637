// What the page, the feed and the command line say of a node, in sentences.
import type { Level } from '../../verify/index.ts';
import type { Change, Kept, State } from './board.ts';

export const LABELS: Readonly<Record<State, string>> = {
  good: 'Proven',
  failed: 'Failed',
  away: 'Away',
  unchecked: 'Not checked',
};

/** At level none a node that is good has signed, and proved nothing about itself. */
const isHollow = ({ state, level }: Kept): boolean => state === 'good' && level === 'none';

export const labelOf = (entry: Kept): string => (isHollow(entry) ? 'Signed' : LABELS[entry.state]);

const PROVEN: Readonly<Record<Level, string>> = {
  none: 'It signed its answer, and nothing shows that hardware did (level none).',
  gpu: 'A genuine NVIDIA GPU in confidential mode signed its answer.',
  'gpu+cpu': 'A genuine NVIDIA GPU signed its answer, asked by a confidential VM on a genuine processor.',
  measured: 'A genuine NVIDIA GPU signed its answer, asked by a confidential VM with software that the watch knows.',
};

/** What is the matter with a node, or what it proved. */
export function sentenceOf({ state, reason, level, warnings }: Kept): string {
  if (state !== 'good') return reason ?? '';
  return [...warnings, PROVEN[level ?? 'none']].join(' ');
}

/** `2026-11-26 17:04 UTC` */
export const timeInWords = (time: string): string => `${time.slice(0, 10)} ${time.slice(11, 16)} UTC`;

export function changeInWords({ entry, was }: Change): string {
  const before = was === null || was === entry.state ? '' : `, ${LABELS[was].toLowerCase()} before`;
  return `${entry.node}: ${labelOf(entry)}${before}. ${sentenceOf(entry)}`;
}

export interface Headline {
  /** `3 of 4 proven` */
  readonly short: string;
  readonly long: string;
  /** What must be said beside it; null: nothing. */
  readonly but: string | null;
}

/** How many nodes are as is demanded of them. */
export function headlineOf(entries: readonly Kept[]): Headline {
  const good = entries.filter(({ state }) => state === 'good').length;
  const all = entries.length;
  const nodes = good === all ? (all === 1 ? 'The node' : `All ${all} nodes`) : `${good} of ${all} nodes`;
  const isOne = good === 1;
  if (entries.some(isHollow))
    return {
      short: `${good} of ${all} signed`,
      long: `${nodes} signed ${isOne ? 'its answer' : 'their answers'}`,
      but: 'No more than level none is demanded of some nodes: what they sign says nothing about hardware.',
    };
  return { short: `${good} of ${all} proven`, long: `${nodes} proved ${isOne ? 'itself' : 'themselves'}`, but: null };
}
