// Small functions of which it is known how they grow: the check must find the quadratic ones, and let the others by.

export interface Planted {
  readonly quadratic: boolean;
  /** `n` characters, bytes or items. */
  readonly begin: (n: number) => () => unknown;
}

const bytes = (n: number) => new Uint8Array(n).fill(0x61);
const items = (n: number) => Array.from({ length: n }, (_, i) => i);
const times = (n: number, step: (i: number) => void): void => {
  for (let i = 0; i < n; i++) step(i);
};
const quadratic = (begin: Planted['begin']): Planted => ({ quadratic: true, begin });
const linear = (begin: Planted['begin']): Planted => ({ quadratic: false, begin });
const ITEM = 'x'.repeat(16);

export const PLANTED: Readonly<Record<string, Planted>> = {
  'a loop in a loop': quadratic((n) => () => {
    let sum = 0;
    for (let i = 0; i < n; i++) for (let k = 0; k < i; k++) sum += k;
    return sum;
  }),
  'bytes joined anew in a loop': quadratic((n) => () => {
    let all = Buffer.alloc(0);
    times(n / 8, () => {
      all = Buffer.concat([all, Buffer.from('abcdefgh')]);
    });
  }),
  'typed arrays joined anew in a loop': quadratic((n) => () => {
    let all = new Uint8Array(0);
    times(n / 8, () => {
      const more = new Uint8Array(all.length + 8);
      more.set(all);
      all = more;
    });
  }),
  'a copy of what is left, in a loop': quadratic((n) => {
    const all = bytes(n);
    return () => times(n / 8, (i) => all.slice(8 * i));
  }),
  'a search from the start, in a loop': quadratic((n) => {
    const text = `${'x'.repeat(n)}!`;
    return () => times(n / 8, () => text.indexOf('!'));
  }),
  'a search of bytes from the start, in a loop': quadratic((n) => {
    const all = bytes(n);
    return () => times(n / 8, () => all.indexOf(0));
  }),
  'a search for what is not there, at each place': quadratic((n) => {
    const text = 'ab'.repeat(n / 2);
    return () => times(n / 2, (i) => text.includes('c', i));
  }),
  'an expression from the start, in a loop': quadratic((n) => {
    const text = `${'x'.repeat(n)}!`;
    return () => times(n / 8, () => /!/.test(text));
  }),
  'an expression that looks ahead over the same space': quadratic((n) => {
    const text = ' '.repeat(n);
    return () => {
      const colon = /\s*:/y;
      times(n, (i) => {
        colon.lastIndex = i;
        colon.test(text);
      });
    };
  }),
  'a text that is put together and looked into': quadratic((n) => () => {
    let text = '';
    times(n / 16, () => {
      text += ITEM;
      text.charCodeAt(0);
    });
  }),
  'a text cut and put together': quadratic((n) => () => {
    let text = 'x'.repeat(n);
    times(n / 16, () => {
      text = `${text.slice(16)}${ITEM}`;
    });
  }),
  'a list spread into the next': quadratic((n) => () => {
    let list: number[] = [];
    times(n / 8, (i) => {
      list = [...list, i];
    });
  }),
  'a list joined with the next': quadratic((n) => () => {
    let list: number[] = [];
    times(n / 8, (i) => {
      list = list.concat(i);
    });
  }),
  'items put before a list': quadratic((n) => () => {
    const list: number[] = [];
    times(n / 8, (i) => list.unshift(i));
  }),
  'items taken from the start of a list': quadratic((n) => {
    const list = items(n / 8);
    return () => {
      while (list.length > 0) list.shift();
    };
  }),
  'items put into the middle of a list': quadratic((n) => () => {
    const list: number[] = [];
    times(n / 8, (i) => list.splice(list.length >> 1, 0, i));
  }),
  'items looked for in a list': quadratic((n) => {
    const list = items(n / 8);
    return () => list.filter((one) => list.includes(one));
  }),
  'items found in a list': quadratic((n) => {
    const list = items(n / 8);
    return () => list.map((one) => list.indexOf(one));
  }),
  'a set made anew in a loop': quadratic((n) => {
    const list = items(n / 8);
    return () => times(n / 8, () => new Set(list));
  }),
  'a map copied for each': quadratic((n) => () => {
    let map = new Map<number, number>();
    times(n / 8, (i) => {
      map = new Map(map).set(i, i);
    });
  }),
  'names listed anew in a loop': quadratic((n) => () => {
    const bag: Record<string, number> = {};
    times(n / 8, (i) => {
      bag[`m${i}`] = Object.keys(bag).length;
    });
  }),
  'an object spread into the next': quadratic((n) => () => {
    let bag: Record<string, number> = {};
    times(n / 8, (i) => {
      bag = { ...bag, [`m${i}`]: i };
    });
  }),
  'JSON parsed again and again': quadratic((n) => {
    const text = `[${'1,'.repeat(n / 2)}1]`;
    return () => times(n / 16, () => JSON.parse(text));
  }),
  'bytes decoded again and again': quadratic((n) => {
    const all = bytes(n);
    return () => times(n / 16, () => new TextDecoder().decode(all));
  }),
  'bytes hashed again and again': quadratic((n) => {
    const all = bytes(n);
    return async () => {
      for (let i = 0; i < n / 64; i++) await crypto.subtle.digest('SHA-256', all);
    };
  }),
  'a loop': linear((n) => () => times(n, () => {})),
  'bytes joined at the end': linear((n) => () => {
    const list: Buffer[] = [];
    times(n / 8, () => list.push(Buffer.from('abcdefgh')));
    return Buffer.concat(list);
  }),
  'room that doubles': linear((n) => () => {
    let room = new Uint8Array(64);
    times(n, (i) => {
      if (i === room.length) {
        const more = new Uint8Array(2 * room.length);
        more.set(room);
        room = more;
      }
      room[i] = 1;
    });
  }),
  'a search that goes on': linear((n) => {
    const text = 'xxxxxxx!'.repeat(n / 8);
    return () => {
      for (let at = text.indexOf('!'); at >= 0; at = text.indexOf('!', at + 1));
    };
  }),
  'an expression that goes on': linear((n) => {
    const text = 'xxxxxxx!'.repeat(n / 8);
    return () => [...text.matchAll(/x+(!)/g)].length;
  }),
  'a text replaced': linear((n) => () => 'a\r\n'.repeat(n / 3).replace(/\r\n/g, '\n')),
  'a text put together': linear((n) => () => {
    let text = '';
    times(n, () => {
      text += 'x';
    });
    return text.length;
  }),
  'a list that grows': linear((n) => () => {
    const list: number[] = [];
    times(n, (i) => list.push(i));
    return list.map((one) => one + 1).filter((one) => one > 3).length;
  }),
  'JSON, parsed and written': linear((n) => () => JSON.stringify(JSON.parse(`[${'1,'.repeat(n / 2)}1]`))),
  'a sorted list': linear(
    (n) => () =>
      items(n)
        .map((i) => (i * 7919) % n)
        .sort((a, b) => a - b),
  ),
};
