// What was changed in a history that is told again: it is laid beside what the run held so far, in one pass.
import { type Finding, finding, named, plural } from './findings.ts';
import type { Item } from './items.ts';

/** What is kept of an item: hashes, and no text. */
export interface Kept extends Pick<Item, 'kind' | 'hash' | 'id' | 'content' | 'length'> {
  readonly turn: number;
}

export interface Edits {
  readonly findings: readonly Finding[];
  /** What stands in place of what was told before, or between. */
  readonly put: readonly Item[];
  /** The items after everything that was told before. */
  readonly fresh: readonly Item[];
}

/** An item that stands for one that was told before in another form. */
interface Pair {
  readonly before: Kept;
  readonly now: Item;
}

/** What lies between two items that are in both. */
interface Gap {
  readonly removed: Kept[];
  readonly put: Item[];
}

/**
 * @param told what the run held so far, the last answer included
 * @param first the index in `told` from which on the client tells it for the first time: what is changed there was never told rightly
 * @param isSaid whether the run's model said it, at any time
 */
export function editsIn(
  told: readonly Kept[],
  first: number,
  items: readonly Item[],
  isSaid: (item: Item) => boolean,
): Edits {
  const { gaps, taken } = laidBeside(told, items);
  const removedById = new Map<string, Kept>();
  for (const [i, one] of told.entries())
    if (!taken.has(i) && one.id !== null) removedById.set(`${one.kind} ${one.id}`, one);
  const pairs: Pair[] = [];
  const paired = new Set<Kept>();
  const pair = (before: Kept, now: Item) => {
    pairs.push({ before, now });
    paired.add(before);
  };
  const findings: Finding[] = [];
  const last = gaps.at(-1) as Gap;
  const fresh: Item[] = [];
  const put: Item[] = [];
  for (const gap of gaps) {
    const left: Item[] = [];
    for (const now of gap.put) {
      const known = removedById.get(`${now.kind} ${now.id}`);
      const words = now.kind === 'answer';
      const before =
        now.id === null
          ? words
            ? gap.removed.find((one) => one.kind === now.kind && !paired.has(one))
            : undefined
          : known;
      if (before !== undefined && !paired.has(before) && !isSaid(now)) pair(before, now);
      else if (gap === last || now.kind === 'result') fresh.push(now);
      else left.push(now);
    }
    put.push(...left.filter(({ kind }) => kind === 'user'));
    findings.push(...unpaired(gap, paired, left, isSaid, fresh));
  }
  put.push(...pairs.map(({ now }) => now));
  return { findings: [...findings, ...changed(pairs, new Set(told.slice(first)))], put, fresh };
}

/** Items in both are found in their order; what is told in another place counts as removed there and put here. */
function laidBeside(told: readonly Kept[], items: readonly Item[]): { gaps: Gap[]; taken: Set<number> } {
  const places = new Map<string, number[]>();
  for (const [i, { hash }] of told.entries()) places.set(hash, [...(places.get(hash) ?? []).slice(-MAX_SAME), i]);
  const taken = new Set<number>();
  const gaps: Gap[] = [];
  let put: Item[] = [];
  let from = 0;
  for (const item of items) {
    const at = (places.get(item.hash) ?? []).find((place) => place >= from);
    if (at === undefined) {
      put.push(item);
      continue;
    }
    gaps.push({ removed: told.slice(from, at), put });
    [put, from] = [[], at + 1];
    taken.add(at);
  }
  return { gaps: [...gaps, { removed: told.slice(from), put }], taken };
}

/** Of equal items, as many places are looked at. */
const MAX_SAME = 32;

/** What a gap has beside its pairs. What nobody said is put to `fresh`, where it is judged. */
function unpaired(
  { removed }: Gap,
  paired: ReadonlySet<Kept>,
  left: readonly Item[],
  isSaid: (item: Item) => boolean,
  fresh: Item[],
): Finding[] {
  const gone = removed.filter((one) => !paired.has(one) && one.kind !== 'aside');
  const messages = left.filter(({ kind }) => kind === 'user');
  fresh.push(...left.filter((one) => one.kind !== 'user' && !isSaid(one)));
  if (gone.length === 0)
    return messages.map(({ name }) =>
      finding('message_inserted', `a message (${named(name)}) was put into what was told before`),
    );
  const turns = [...new Set(gone.map(({ turn }) => turn))];
  const where = turns.length === 1 ? `of turn ${turns[0]}` : `of turns ${Math.min(...turns)} to ${Math.max(...turns)}`;
  const instead =
    messages.length === 0 ? 'nothing stands in their place' : `${plural(messages.length, 'message')} in their place`;
  const code = gone.length > messages.length ? 'history_shortened' : 'history_changed';
  return [finding(code, `${counted(gone)} ${where} no longer told, ${instead}`)];
}

const WORDS = { user: 'message', answer: 'answer', call: 'call', result: 'result' } as const;

function counted(gone: readonly Kept[]): string {
  const counts = Object.entries(WORDS).map(
    ([kind, word]) => [gone.filter((one) => one.kind === kind).length, word] as const,
  );
  return counts.flatMap(([count, word]) => (count === 0 ? [] : plural(count, word))).join(', ');
}

function changed(pairs: readonly Pair[], firstTold: ReadonlySet<Kept>): Finding[] {
  const swapped = new Set<Pair>();
  const findings: Finding[] = [];
  const results = new Map(
    pairs.filter(({ now }) => now.kind === 'result').map((one) => [`${one.before.content} ${one.now.content}`, one]),
  );
  for (const one of results.values()) {
    const other = results.get(`${one.now.content} ${one.before.content}`);
    if (other === undefined || other === one || swapped.has(one)) continue;
    swapped.add(one).add(other);
    const ids = [one, other].map(({ now }) => named(now.id ?? ''));
    findings.push(
      finding('results_swapped', `the results of ${ids.join(' and ')} (turn ${one.before.turn}) changed places`),
    );
  }
  for (const one of pairs) if (!swapped.has(one)) findings.push(changedOne(one, firstTold.has(one.before)));
  return findings;
}

function changedOne({ before, now }: Pair, isFirst: boolean): Finding {
  const sizes = `${before.length} characters then, ${now.length} now`;
  if (now.kind === 'result')
    return finding(
      'result_changed',
      `the result of ${named(now.id ?? '')} (turn ${before.turn}) is told in other words: ${sizes}`,
    );
  const what =
    now.kind === 'call'
      ? `the call ${named(now.id ?? '')} of turn ${before.turn} is told with another tool or other arguments`
      : `the answer of turn ${before.turn} is told in other words: ${sizes}`;
  if (isFirst) return finding('said_changed', `${what}, from the first time on`);
  return finding(now.kind === 'call' ? 'call_changed' : 'answer_changed', what);
}
