// Mutations that know JSON: members and items taken out, doubled, renamed, or put in another's place.
import { mutateText } from './fuzz-bytes.ts';
import type { Random } from './fuzz-random.ts';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

const NAMES = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'length',
  '',
  '0',
  'raw',
  'nonce',
  'eat_nonce',
];
const VALUES: readonly string[] = [
  ...['null', 'true', 'false', '0', '-0', '-1', '1e400', '1.5', '12345678901234567890', '""', '"\\u0000"', '"\\ud800"'],
  ...['[]', '{}', '[[]]', '[null]', '{"__proto__":{"valid":true}}', '{"constructor":{"prototype":{}}}', '"x"'],
];
/** Written before the text of a value, never part of a genuine text. */
const MARK = '\uE000';

/** One change somewhere in a JSON text; duplicates and odd numbers included, so what comes back is a text. */
export function mutateJson(text: string, random: Random): string {
  let root: Json;
  try {
    root = JSON.parse(text) as Json;
  } catch {
    return mutateText(text, random);
  }
  const raw: string[] = [];
  const literal = (json: string): string => `${MARK}${raw.push(json) - 1}${MARK}`;
  const places = containers(root);
  if (places.length === 0) return random.pick([...VALUES, nested(random)]);
  const place = random.pick(places);
  const keys = Object.keys(place);
  const key = random.pick(keys);
  const old = JSON.stringify((place as Record<string, Json>)[key]);
  const put = (json: string) => define(place, key, literal(json));
  const ways = [
    () => put(random.pick(VALUES)),
    () => put(nested(random)),
    () => remove(place, key),
    () =>
      put(typeof JSON.parse(old) === 'string' ? JSON.stringify(mutateText(JSON.parse(old) as string, random)) : old),
    () => put(`${old},${Array.isArray(place) ? old : `${JSON.stringify(random.pick([key, ...NAMES]))}:${old}`}`),
    () => put(`[${old}]`),
    () => put(JSON.stringify(random.pick(containers(root)))),
    () => put(JSON.stringify(old)),
  ];
  random.pick(ways)();
  const changed = JSON.stringify(root);
  return changed.replace(new RegExp(`"${MARK}(\\d+)${MARK}"`, 'g'), (_, i: string) => raw[Number(i)] ?? '');
}

function containers(value: Json, found: (Json[] | { [name: string]: Json })[] = []) {
  if (typeof value !== 'object' || value === null) return found;
  if (Object.keys(value).length > 0) found.push(value);
  for (const inner of Object.values(value)) containers(inner, found);
  return found;
}

function define(place: object, key: string, value: Json): void {
  Object.defineProperty(place, key, { value, enumerable: true, configurable: true, writable: true });
}

function remove(place: Json[] | { [name: string]: Json }, key: string): void {
  if (Array.isArray(place)) place.splice(Number(key), 1);
  else delete place[key];
}

function nested(random: Random): string {
  const depth = random.pick([3, 20, 200, 900]);
  const [open, close] = random.pick([
    ['[', ']'],
    ['{"a":', '}'],
  ]) as [string, string];
  return `${open.repeat(depth)}null${close.repeat(depth)}`;
}
