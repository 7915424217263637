// How far a regular expression looks that may begin in one place only, and does not match there: an expression whose match is
// the longest beginning of one. `\s*:` becomes `(?:\s*(?::)?)?`, and matches all the space of a text in which no colon follows.

const known = new Map<string, RegExp>();

/** To be used with `lastIndex`. What stands in a group is one part of it. */
export function reachOf({ source, flags }: RegExp): RegExp {
  const id = `${flags}/${source}`;
  const before = known.get(id);
  if (before !== undefined) return before;
  const branches = parted(source).map((parts) => parts.reduceRight((rest, part) => `(?:${part}${rest})?`, ''));
  const reach = new RegExp(branches.join('|'), `${flags.replace(/[gy]/g, '')}y`);
  known.set(id, reach);
  return reach;
}

const QUANTIFIER = /(?:[*+?]|\{\d+(?:,\d*)?\})\??/y;

/** The alternatives of an expression, each in its parts: an atom with its quantifier. */
function parted(source: string): string[][] {
  const branches: string[][] = [[]];
  for (let at = 0; at < source.length; ) {
    if (source[at] === '|') {
      branches.push([]);
      at++;
      continue;
    }
    let end = atomEnd(source, at);
    QUANTIFIER.lastIndex = end;
    end += QUANTIFIER.exec(source)?.[0].length ?? 0;
    branches.at(-1)?.push(source.slice(at, end));
    at = end;
  }
  return branches;
}

/** A character, an escape, a class or a group. */
function atomEnd(source: string, at: number): number {
  if (source[at] === '\\')
    return at + (/^\\(?:u\{[^}]*\}|u....|x..|k<[^>]*>|.)/s.exec(source.slice(at))?.[0].length ?? 1);
  if (source[at] === '[') {
    let end = at + 1;
    while (source[end] !== ']') end += source[end] === '\\' ? 2 : 1;
    return end + 1;
  }
  if (source[at] !== '(') return at + 1;
  let end = at + 1;
  while (source[end] !== ')') end = atomEnd(source, end);
  return end + 1;
}
