// Small functions of which it is known how they grow: the measure must find the quadratic ones, and let the others by.
type Begin = (n: number) => () => unknown;

const bytes = (n: number) => new Uint8Array(n).fill(0x61);
const items = (n: number) => Array.from({ length: n / 8 }, (_, i) => i);
const times = (n: number, step: (i: number) => void): void => {
  for (let i = 0; i < n; i++) step(i);
};

export const QUADRATIC: Readonly<Record<string, Begin>> = {
  'bytes joined anew': (n) => () => {
    let all = Buffer.alloc(0);
    times(n / 8, () => {
      all = Buffer.concat([all, Buffer.from('abcdefgh')]);
    });
  },
  'a copy of what is left': (n) => () => times(n / 8, (i) => bytes(n).slice(8 * i)),
  'a search from the start': (n) => () => times(n / 8, () => `${'x'.repeat(n)}!`.indexOf('!')),
  'a search of bytes for what is not there': (n) => () => times(n / 8, (i) => bytes(n).indexOf(0, i)),
  'an expression that backtracks': (n) => () => /\s+$/.test(`${' '.repeat(n / 8)}x`),
  'a list spread into the next': (n) => () => {
    let list: number[] = [];
    times(n / 8, (i) => {
      list = [...list, i];
    });
  },
  'items taken from the middle of a list': (n) => () => {
    for (const list = items(2 * n); list.length > 0; ) list.splice(list.length >> 1, 1);
  },
  'items looked for in a list': (n) => () => items(n).filter((one, _, list) => list.lastIndexOf(-one) >= 0),
  'an object spread into the next': (n) => () => {
    let bag: Record<string, number> = {};
    times(n / 64, (i) => {
      bag = { ...bag, [`m${i}`]: i };
    });
  },
  'JSON parsed again and again': (n) => () => times(n / 64, () => JSON.parse(`[${'1,'.repeat(n / 2)}1]`)),
  'bytes decoded again and again': (n) => () => times(n / 16, () => new TextDecoder().decode(bytes(n))),
};

export const LINEAR: Readonly<Record<string, Begin>> = {
  'bytes joined at the end': (n) => () => Buffer.concat(items(n).map(() => Buffer.from('abcdefgh'))),
  'a search that goes on': (n) => () => {
    const text = 'xxxxxxx!'.repeat(n / 8);
    for (let at = text.indexOf('!'); at >= 0; at = text.indexOf('!', at + 1));
  },
  'a text replaced': (n) => () => 'a\r\n'.repeat(n / 3).replace(/\r\n/g, '\n'),
  'JSON, parsed and written': (n) => () => JSON.stringify(JSON.parse(`[${'1,'.repeat(n / 2)}1]`)),
  'a sorted list': (n) => () => items(n).sort((a, b) => ((a * 7919) % n) - ((b * 7919) % n)),
};
