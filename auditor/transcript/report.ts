// What a transcript shows, in words or as JSON: a line or more for each turn, and then the verdict. Of what was said it tells names, ids and
// lengths, and no words.
import { plain, styled } from '../../verify/cli/report.ts';
import { LEVELS, type Level } from '../../verify/index.ts';
import { type Code, type Finding, named, plural } from './findings.ts';
import type { Item } from './items.ts';
import type { Turn } from './turns.ts';

/** What the turns come to. */
export interface Summary {
  readonly verdict: 'UNBROKEN' | 'BROKEN' | 'INCOMPLETE';
  readonly turns: number;
  readonly runs: number;
  readonly valid: number;
  /** The lowest of a valid turn. */
  readonly level: Level | null;
  readonly models: readonly string[];
  /** How often each was found. */
  readonly found: Readonly<Partial<Record<Code, number>>>;
  /** The gravest, or an edit where there is no graver. */
  readonly first: { readonly turn: number | null; readonly finding: Finding } | null;
  readonly proven: readonly string[];
  readonly not_proven: readonly string[];
}

const MAX_MODELS = 64;
const GRAVITY = ['note', 'edit', 'incomplete', 'broken'] as const;

/** Counts turns, and keeps none of them. @param strict an edit breaks the run */
export function counter(strict: boolean) {
  const found: Partial<Record<Code, number>> = {};
  const models = new Set<string>();
  let [turns, valid, results] = [0, 0, 0];
  let level: Level | null = null;
  let first: Summary['first'] = null;

  function count(turn: number | null, findings: readonly Finding[]): void {
    for (const finding of findings) {
      found[finding.code] = (found[finding.code] ?? 0) + 1;
      const gravity = GRAVITY.indexOf(finding.severity);
      if (gravity > 0 && gravity > (first === null ? -1 : GRAVITY.indexOf(first.finding.severity)))
        first = { turn, finding };
    }
  }

  return {
    add({ number, verdict, findings, model, level: own, fresh }: Turn): void {
      turns++;
      results += fresh.filter(({ kind }) => kind === 'result').length;
      count(number, findings);
      if (model !== null && models.size < MAX_MODELS) models.add(model);
      if (verdict !== 'VALID') return;
      valid++;
      if (level === null || LEVELS.indexOf(own) < LEVELS.indexOf(level)) level = own;
    },
    end(runs: number, open: readonly Finding[]): Summary {
      count(null, open);
      const severity = first?.finding.severity ?? 'note';
      const broken = severity === 'broken' || (strict && severity === 'edit');
      const verdict = broken ? 'BROKEN' : severity === 'incomplete' ? 'INCOMPLETE' : 'UNBROKEN';
      return {
        verdict,
        turns,
        runs,
        valid,
        level,
        models: [...models],
        found,
        first,
        ...claims({ valid, turns, results, verdict, found }, severity === 'edit'),
      };
    },
  };
}

function claims(
  {
    valid,
    turns,
    results,
    verdict,
    found,
  }: Pick<Summary, 'valid' | 'turns' | 'verdict' | 'found'> & { results: number },
  isEdited: boolean,
): Pick<Summary, 'proven' | 'not_proven'> {
  const whole = `${valid} of ${turns} turns`;
  const edited = isEdited ? 'and what was changed when it was told again is listed' : 'and nothing was put between';
  const hidden = 'what the service added of its own state, where a turn names an earlier response by its id';
  return {
    proven: [
      ...(valid > 0
        ? [
            `the model's side, in ${whole}: it was given exactly this request, and gave exactly this answer and these calls`,
          ]
        : []),
      ...(valid > 0 && verdict === 'UNBROKEN'
        ? [
            results === 0
              ? `the model was told no tool's result, ${edited}`
              : `each result that the model was told, at first, answers a call that it made, ${edited}`,
          ]
        : []),
    ],
    not_proven: [
      'that a tool ran, or that its result is true: a result is what the model was told, and one that was changed before is not seen',
      ...(found.receipt === undefined
        ? []
        : ['what the receipts of tools say: they are carried along, and nothing judges them']),
      'that this is everything: turns at the end, branches and whole runs may be left out',
      ...(found.state_hidden === undefined ? [] : [hidden]),
      ...(found.redacted === undefined
        ? []
        : [
            'anything of redacted turns: what their messages are, and their order, is claimed; only the whole raw of a turn proves it',
          ]),
    ],
  };
}

/** `2 calls ("get_weather", "get_time")`. */
export function itemsInWords(items: readonly Item[]): string {
  const words = {
    user: 'message',
    answer: 'answer',
    call: 'call',
    result: 'result',
    aside: 'aside',
    reference: 'reference',
    instructions: 'instruction',
  };
  const counts = new Map<string, Item[]>();
  for (const item of items) counts.set(words[item.kind], [...(counts.get(words[item.kind]) ?? []), item]);
  const parts = [...counts].map(([word, some]) => {
    const names = some.filter(({ kind }) => kind === 'call').map(({ name }) => named(name));
    return `${plural(some.length, word)}${names.length === 0 ? '' : ` (${[...new Set(names)].join(', ')})`}`;
  });
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}

export function placeInWords({ run, parent }: Pick<Turn, 'run' | 'parent'>): string {
  if (run === null) return 'in no run';
  return parent === null ? `begins run ${run}` : `continues turn ${parent}`;
}

export function turnInWords(turn: Turn): string {
  const { number, verdict, level, fresh, said, findings } = turn;
  const choices = said.map(itemsInWords).join(' | ');
  const what = said.length === 0 ? '' : `: told ${itemsInWords(fresh)}; said ${choices}`;
  const lines = [
    `turn ${number}  ${verdict}  ${level}  ${placeInWords(turn)}${what}`,
    ...findings.map(({ code, severity, text }) => `  ${severity === 'broken' ? 'FAIL' : severity}  ${code}: ${text}`),
  ];
  return lines.map((line) => plain(line)).join('\n');
}

export function turnAsJson({
  number,
  line,
  verdict,
  level,
  endpoint,
  model,
  time,
  run,
  parent,
  findings,
  fresh,
  said,
}: Turn): object {
  const items = (some: readonly Item[]) => some.map(({ kind, id, name, length }) => ({ kind, id, name, length }));
  const turn = { turn: number, line, verdict, level, endpoint, model, time, run, parent };
  return { ...turn, findings, told: items(fresh), said: said.map(items) };
}

/** One line. */
export function verdictInWords({ verdict, level, first, found }: Summary, strict: boolean): string {
  const where = first?.turn == null ? '' : ` in turn ${first.turn}`;
  const cause = first === null ? '' : `: ${first.finding.code}${where}: ${first.finding.text}`;
  if (verdict !== 'UNBROKEN') return `${verdict}${cause}`;
  const edits =
    first !== null && !strict && found !== undefined
      ? `; history was edited, first${where}: ${first.finding.code}`
      : '';
  return `UNBROKEN (level: ${level ?? 'none'})${edits}`;
}

export function summaryInWords(summary: Summary, strict: boolean, coloured: boolean): string {
  const { turns, runs, valid, models, found, proven, not_proven } = summary;
  const counts = Object.entries(found).map(([code, count]) => `${count} ${code}`);
  const lines = [
    '',
    `${plural(turns, 'turn')} in ${plural(runs, 'run')}, ${valid} valid${models.length === 0 ? '' : `; by ${models.map(named).join(', ')}`}`,
    ...(counts.length === 0 ? [] : [`found: ${counts.join(', ')}`]),
    ...proven.map((text) => `  + ${text}`),
    ...not_proven.map((text) => `  - not proven: ${text}`),
    '',
    verdictInWords(summary, strict),
  ].map((line) => plain(line));
  return (coloured ? lines.map(styled) : lines).join('\n');
}
