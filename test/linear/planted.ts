// Small functions of which it is known how they grow: the count must find the quadratic ones, and let the others by.
type Begin = (n: number) => () => unknown;

const bytes = (n: number) => new Uint8Array(n).fill(0x61);
const items = (n: number) => Array.from({ length: n / 8 }, (_, i) => i);
const times = (n: number, step: (i: number) => void): void => {
  for (let i = 0; i < n; i++) step(i);
};
/** The same of one input, again and again. */
const over =
  <T extends { readonly length: number }>(input: T, look: (input: T, i: number) => unknown) =>
  () =>
    times(input.length / 8, (i) => look(input, i));
/** `next` makes the next value of the last one. */
const folded = <T>(n: number, first: T, next: (last: T, i: number) => T): T => {
  let last = first;
  for (let i = 0; i < n / 8; i++) last = next(last, i);
  return last;
};

export const QUADRATIC: Readonly<Record<string, Begin>> = {
  'a loop in a loop': (n) => () => times(n / 8, () => times(n, () => {})),
  'bytes joined anew': (n) => () => folded(n, Buffer.alloc(0), (all) => Buffer.concat([all, bytes(8)])),
  'a copy of what is left': (n) => over(bytes(n), (all, i) => all.slice(8 * i)),
  'a search from the start': (n) => over(`${'x'.repeat(n)}!`, (text) => text.indexOf('!')),
  'a search of bytes for what is not there': (n) => over(bytes(n), (all, i) => all.indexOf(0, i)),
  'an expression from the start': (n) => over(`${'x'.repeat(n)}!`, (text) => /!/.test(text)),
  'an expression that looks ahead over the same space': (n) => {
    const colon = /\s*:/y;
    return over(' '.repeat(n), (text, i) => {
      colon.lastIndex = i;
      return colon.test(text);
    });
  },
  'a text put together and looked into': (n) => () =>
    folded(n, '', (text) => {
      text.charCodeAt(0);
      return `${text}${'x'.repeat(16)}`;
    }),
  'a list spread into the next': (n) => () => folded<number[]>(n, [], (list, i) => [...list, i]),
  'items put into the middle of a list': (n) => () => {
    const list: number[] = [];
    times(n / 8, (i) => list.splice(list.length >> 1, 0, i));
  },
  'items looked for in a list': (n) => () => items(n).filter((one, _i, list) => list.includes(one)),
  'a set made anew': (n) => () => items(n).forEach((_one, _i, list) => void new Set(list)),
  'an object spread into the next': (n) => () => folded(n, {}, (bag, i) => ({ ...bag, [`m${i}`]: i })),
  'JSON parsed again and again': (n) => over(`[${'1,'.repeat(n / 2)}1]`, (text) => JSON.parse(text)),
  'bytes decoded again and again': (n) => over(bytes(n), (all) => new TextDecoder().decode(all)),
};

export const LINEAR: Readonly<Record<string, Begin>> = {
  'a loop': (n) => () => times(n, () => {}),
  'bytes joined at the end': (n) => () => Buffer.concat(items(n).map(() => bytes(8))),
  'a search that goes on': (n) => () => {
    const text = 'xxxxxxx!'.repeat(n / 8);
    for (let at = text.indexOf('!'); at >= 0; at = text.indexOf('!', at + 1));
  },
  'an expression that goes on': (n) => () => [...'xxxxxxx!'.repeat(n / 8).matchAll(/x+(!)/g)].length,
  'a text replaced': (n) => () => 'a\r\n'.repeat(n / 3).replace(/\r\n/g, '\n'),
  'a text put together': (n) => () => folded(n, '', (text) => `${text}x`).length,
  'JSON, parsed and written': (n) => () => JSON.stringify(JSON.parse(`[${'1,'.repeat(n / 2)}1]`)),
  'a sorted list': (n) => () => items(n).sort((a, b) => ((a * 7919) % n) - ((b * 7919) % n)),
};
