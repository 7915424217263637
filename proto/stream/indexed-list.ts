// Lists whose items have indices: an item joins the one with its index.
import { isJsonObject, type Json, numberOf } from '../kept-numbers.ts';

/** An item of a carried list with a larger index counts as one without an index. */
const MAX_INDEX = 10_000;

/** Lists whose items arrived out of the order of their indices. They are sorted at the end. */
export type Unordered = Set<Json[]>;
/** Joins a value, which is never null, to the value before it. @throws {FoldError} */
export type Join = (before: Json | undefined, value: Json, unordered: Unordered) => Json;

/** Joins an item to the one with its index, or adds it. */
export function put(list: Json[], index: number, item: Json, join: Join, unordered: Unordered): void {
  // Nearly always the last item grows, or a new one begins after it.
  const last = list.at(-1);
  const lastIndex = last === undefined ? -1 : (indexOf(last) ?? MAX_INDEX + 1);
  const comesLast = lastIndex < index && !unordered.has(list);
  const found = lastIndex === index ? last : comesLast ? undefined : byIndex(list).get(index);
  const into = join(found, item, unordered);
  if (into === found) return;
  if (!comesLast) unordered.add(list);
  list.push(into);
  indexed.get(list)?.set(index, into);
}

/** Sorts items by their indices. An item without an index stays after the items that came before it. */
export function order(items: Json[]): void {
  let highest = -1;
  const ranked = items.map((item) => {
    const index = indexOf(item);
    highest = Math.max(highest, index ?? -1);
    return { item, rank: index ?? highest };
  });
  ranked.sort((a, b) => a.rank - b.rank);
  for (const [i, { item }] of ranked.entries()) items[i] = item;
}

/** The items of a list by index, built when an item other than the last grows. It avoids a search of a long list for each chunk. */
const indexed = new WeakMap<Json[], Map<number, Json>>();

export function byIndex(items: Json[]): Map<number, Json> {
  const cached = indexed.get(items);
  if (cached !== undefined) return cached;
  const found = new Map<number, Json>();
  for (const item of items) {
    const index = indexOf(item);
    if (index !== null) found.set(index, item);
  }
  indexed.set(items, found);
  return found;
}

export function indexOf(item: Json | undefined): number | null {
  if (item === undefined || !isJsonObject(item)) return null;
  const index = numberOf(item.index);
  return index !== null && isIndex(index) ? index : null;
}

export const isIndex = (index: number): boolean => Number.isInteger(index) && index >= 0 && index <= MAX_INDEX;
