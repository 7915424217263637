// Counts what a function does, whatever the machine: each function and each turn of a loop in our sources and in zod's, and
// what built-ins look at or copy. A regular expression counts the text once: whether one backtracks, recheck decides
// (test/fuzz/regular-expressions.long.ts). Not seen: `===` of two long texts.
import { readFileSync } from 'node:fs';
import { createRequire, registerHooks, syncBuiltinESMExports } from 'node:module';
import { fileURLToPath } from 'node:url';
import { parseAst } from 'rolldown/parseAst';

const COUNTED =
  /\/(?:(?:gateway|page|proto|sealed|verify)\/.*\.ts|node_modules\/zod\/.*\.js|test\/linear\/planted\.ts)$/;
const { apply, construct, getOwnPropertyDescriptor, getPrototypeOf, defineProperty, ownKeys } = Reflect;
const Expression = RegExp;
const { exec } = RegExp.prototype;
const { indexOf } = String.prototype;
/** A text that was put together of others is copied when it is first looked into. */
const isFlat = new Function('text', 'return %StringIsFlat(text)') as (text: string) => boolean;
/** Bytes are copied in words. */
const WORD_BYTES = 8;
let operations = 0;

interface Node {
  readonly type?: string;
  readonly start: number;
  readonly end: number;
  readonly body?: Node | null;
  readonly argument?: Node;
}

/** The source with a count in each function, in each loop, and of the members of each object that is spread. */
function instrumented(source: string, file: string): string {
  const puts: { readonly at: number; readonly text: string }[] = [];
  const around = ({ start, end }: Node, before: string, after: string) =>
    puts.push({ at: start, text: before }, { at: end, text: after });
  const walk = (node: unknown, within = ''): void => {
    if (Array.isArray(node)) for (const one of node) walk(one, within);
    if (Array.isArray(node) || typeof node !== 'object' || node === null) return;
    const { type = '', body, argument } = node as Node;
    if (/^(?:Function|Arrow)/.test(type) && body?.type === 'BlockStatement')
      puts.push({ at: body.start + 1, text: '__count();' });
    else if (/^Arrow/.test(type) && body) around(body, '(__count(),', ')');
    else if (/^(?:For|While|DoWhile)/.test(type) && body) around(body, '{__count();', '}');
    if (type === 'SpreadElement' && within === 'ObjectExpression' && argument) around(argument, '__spread(', ')');
    for (const one of Object.values(node)) walk(one, type || within);
  };
  walk(parseAst(source, { lang: file.endsWith('.ts') ? 'ts' : 'js' } as never, file));
  // What ends at a place stands before what begins there; of two that end there, the inner one was put first.
  const order = puts.map((put, i) => ({ ...put, i, closes: /^[)}]/.test(put.text) }));
  order.sort((a, b) => a.at - b.at || Number(b.closes) - Number(a.closes) || (a.closes ? b.i - a.i : a.i - b.i));
  let [out, from] = ['', 0];
  for (const { at, text } of order) {
    out += source.slice(from, at) + text;
    from = at;
  }
  return out + source.slice(from);
}

type Cost = (self: never, args: readonly never[], result: never) => number;
const size = (value: unknown): number => {
  const { length, byteLength } = (value ?? {}) as { length?: unknown; byteLength?: unknown };
  return typeof length === 'number' ? length : typeof byteLength === 'number' ? byteLength : 0;
};
const words = (value: unknown): number => size(value) / WORD_BYTES;
const nothing: Cost = () => 0;
const self: Cost = (it) => size(it);
const result: Cost = (_it, _args, made) => size(made);
const first: Cost = (_it, [one]) => size(one);
const second: Cost = (_it, [, two]) => size(two);
const both: Cost = (it, _args, made) => size(it) + size(made);
const given: Cost = (_it, args) => args.length;
const copied: Cost = (_it, [one], made) => ((one as unknown) instanceof ArrayBuffer ? 0 : words(made));
/** From where a search begins to what it found, or to the end. */
const forward: Cost = (it, [sought, from], found) => {
  const began = typeof from === 'number' ? from : 0;
  return (found as number) < 0 ? Math.max(0, size(it) - began) : found - began + size(sought);
};
const backward: Cost = (it, [sought, from], found) => {
  const began = typeof from === 'number' ? from : size(it);
  return ((found as number) < 0 ? began : began - found) + size(sought);
};
const included: Cost = (it: string | unknown[], [sought], found) =>
  !found ? it.length : typeof it === 'string' ? apply(indexOf, it, [sought]) : it.indexOf(sought);

function wrap(owner: object, names: string, cost: Cost): void {
  for (const name of names.split(' ')) {
    const descriptor = getOwnPropertyDescriptor(owner, name);
    if (descriptor === undefined) throw new TypeError(`there is no ${name} to count`);
    const method = descriptor.value as (...args: never[]) => unknown;
    const counted = {
      [name](this: unknown, ...args: never[]): unknown {
        operations += 1 + (typeof this === 'string' && !isFlat(this) ? this.length : 0);
        const before = operations;
        const made = apply(method, this, args);
        // `from` takes the bytes of another array one by one, which is a copy.
        if (name === 'from' && ArrayBuffer.isView(args[0])) operations = before;
        operations += cost(this as never, args, made as never);
        return made;
      },
    }[name] as typeof method;
    defineProperty(counted, 'length', { value: method.length });
    defineProperty(owner, name, { ...descriptor, value: counted });
  }
}

function wrapClass(name: string, cost: (args: readonly unknown[], made: object) => number): void {
  const counted = new Proxy((globalThis as Record<string, unknown>)[name] as new (...args: never[]) => object, {
    construct(target, args, newTarget) {
      const made = construct(target, args, newTarget);
      operations += 1 + cost(args, made);
      return made;
    },
  });
  defineProperty(globalThis, name, { value: counted, writable: true, configurable: true, enumerable: false });
}

/** `test`, `match`, `matchAll`, `replace`, `search` and `split` call it once it is not the original one. */
function countedExec(this: RegExp, text: unknown): RegExpExecArray | null {
  const read = String(text);
  const from = this.global || this.sticky ? this.lastIndex : 0;
  if (!isFlat(read)) operations += read.length;
  const match = apply(exec, this, [read]) as RegExpExecArray | null;
  operations += 1 + (match === null ? missed(this, read, from) : match.index + match[0].length - from);
  return match;
}

/**
 * What is looked at before it is clear that there is no match: of an expression that may begin in one place only, the space and the
 * word that stand there, if its first character does.
 */
const REACH = /\s*[^\s<>"']*/y;
const FIRST = /^\^?(\\.|\[(?:\\.|[^\]\\])*\]|[^\\[(.])/s;
const firsts = new Map<string, RegExp | null>();
function missed({ sticky, source }: RegExp, text: string, from: number): number {
  if (!sticky && source[0] !== '^') return Math.max(0, text.length - from);
  const matches = (one: RegExp) => {
    one.lastIndex = from;
    return apply(exec, one, [text]) as RegExpExecArray | null;
  };
  let first = firsts.get(source);
  if (first === undefined) {
    const [, atom] = (apply(exec, FIRST, [source]) as RegExpExecArray | null) ?? [];
    first = atom === undefined ? null : new Expression(atom, 'y');
    firsts.set(source, first);
  }
  return first !== null && matches(first) === null ? 0 : (matches(REACH)?.[0].length ?? 0);
}

function wrapBuiltIns(): void {
  const [text, list] = [String.prototype, Array.prototype];
  const [typed, Typed] = [getPrototypeOf(Uint8Array.prototype) as object, getPrototypeOf(Uint8Array) as object];
  for (const owner of [text, list, typed, Buffer.prototype]) {
    wrap(owner, 'indexOf', forward);
    wrap(owner, 'lastIndexOf', backward);
    wrap(owner, 'includes', owner === text || owner === list ? included : self);
  }
  wrap(text, 'startsWith endsWith localeCompare', first);
  // A part of a text is a view of it.
  wrap(text, 'charCodeAt codePointAt charAt at slice substring match search matchAll', nothing);
  wrap(text, 'trim trimStart trimEnd', (it, _args, made) => size(it) - size(made));
  wrap(text, 'toLowerCase toUpperCase normalize split isWellFormed toWellFormed', self);
  wrap(text, 'replace replaceAll', both);
  wrap(text, 'concat repeat padStart padEnd', result);
  wrap(String, 'fromCharCode fromCodePoint', given);
  defineProperty(RegExp.prototype, 'exec', { writable: true, configurable: true, value: countedExec });
  wrap(list, 'concat slice flat toSorted toSpliced toReversed with', result);
  wrap(list, 'join', both);
  wrap(list, 'map filter flatMap forEach reduce reduceRight sort reverse fill shift unshift copyWithin', self);
  wrap(list, 'push', given);
  wrap(list, 'splice', (it, args, out) => size(it) - Math.max(0, Number(args[0])) + args.length + size(out));
  wrap(Array, 'from of', result);
  wrap(Object, 'keys values entries getOwnPropertyNames', result);
  wrap(Object, 'assign', (_it, args) => args.reduce((sum, one) => sum + ownKeys(one ?? {}).length, 0));
  // Spreading, destructuring, `for of`, and what takes an iterable: each item.
  for (const items of [[], '', new Map(), new Set()] as Iterable<unknown>[])
    wrap(getPrototypeOf(items[Symbol.iterator]()) as object, 'next', nothing);
  wrap(typed, 'set', (_it, [source]) => words(source));
  wrap(typed, 'slice', (_it, _args, made) => words(made));
  wrap(typed, 'map toSorted toReversed with', result);
  wrap(typed, 'filter fill copyWithin reverse sort join forEach reduce reduceRight', self);
  wrap(Typed, 'from', (_it, [one], made) => (ArrayBuffer.isView(one) ? words(made) : size(made)));
  wrapClass('Uint8Array', ([one], made) => (one instanceof ArrayBuffer ? 0 : words(made)));
  wrap(Buffer, 'concat alloc from', copied);
  wrap(Buffer, 'byteLength compare', first);
  wrap(Buffer.prototype, 'equals compare fill', self);
  wrap(Buffer.prototype, 'toString', result);
  wrap(Buffer.prototype, 'copy', (_it, _args, written) => written / WORD_BYTES);
  for (const [owner, names] of [
    [Buffer.prototype, 'write'],
    [TextDecoder.prototype, 'decode'],
    [TextEncoder.prototype, 'encode encodeInto'],
    [JSON, 'parse'],
    [globalThis, 'atob btoa encodeURIComponent decodeURIComponent structuredClone parseInt parseFloat'],
    [Date, 'parse'],
    [createRequire(import.meta.url)('node:buffer'), 'isUtf8 isAscii'],
    [getPrototypeOf(createRequire(import.meta.url)('node:crypto').createHash('sha256')), 'update'],
  ] as [object, string][])
    wrap(owner, names, first);
  wrap(JSON, 'stringify', result);
  wrapClass('URL', ([one]) => size(one));
  wrapClass('RegExp', ([one]) => size(one));
  wrap(getPrototypeOf(crypto.subtle) as object, 'digest', second);
  wrap(createRequire(import.meta.url)('node:crypto'), 'hash', second);
  syncBuiltinESMExports();
}

/** Once, before anything is loaded that is to be counted. */
export function startCounting(): void {
  const count = () => ++operations;
  const spread = (members: object) => {
    if (typeof members === 'object' && members !== null) operations += ownKeys(members).length;
    return members;
  };
  Object.assign(globalThis, { __count: count, __spread: spread });
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.startsWith('file:') || !COUNTED.test(url)) return loaded;
      const file = fileURLToPath(url);
      return { ...loaded, source: instrumented(readFileSync(file, 'utf8'), file) };
    },
  });
  wrapBuiltIns();
}

/** What `work` does until it is over, and the error that it ends with. */
async function countOf(work: () => unknown): Promise<{ readonly operations: number; readonly thrown: unknown }> {
  operations = 0;
  try {
    await work();
    return { operations, thrown: null };
  } catch (thrown) {
    return { operations, thrown };
  }
}

/** Twice the input may take so many times the work. */
const MAX_GROWTH = 2.2;
/** Some inputs are refused earlier than those twice as long, and buffers grow in steps: other sizes are looked at, too. */
const OTHER_SIZES = [1, 0.53, 0.6, 0.69, 0.78, 0.88];

export interface Growth {
  readonly steep: boolean;
  /** At n, 2n and 4n, less what an input that is nearly empty costs. */
  readonly counts: readonly number[];
  /** By the largest input. */
  readonly thrown: unknown;
}

/** `begin` makes an input of a size, and what is counted of it. */
export async function growthOf(begin: (n: number) => Promise<() => unknown>, n: number): Promise<Growth> {
  // What is made once, no matter who comes first, is made now.
  await countOf(await begin(1));
  const least = (await countOf(await begin(1))).operations;
  const sums = [0, 0, 0];
  let [read, thrown]: [number, unknown] = [0, null];
  for (const share of OTHER_SIZES) {
    read += n * share;
    const counted: number[] = [];
    for (const times of [1, 2, 4]) {
      const one = await countOf(await begin(Math.ceil(n * share * times)));
      counted.push(one.operations);
      thrown = one.thrown;
    }
    // An input that is refused early takes less than one that is nearly empty, and right.
    const floor = Math.min(least, (counted[0] ?? 0) / 2);
    for (const [i, count] of counted.entries()) sums[i] = (sums[i] ?? 0) + count - floor;
    // To read a character is an operation, too.
    const [one = 0, two = 0, four = 0] = sums.map((sum, i) => Math.max(0, sum) + read * 2 ** i);
    const steep = Math.max(two / one, four / two) > MAX_GROWTH;
    if (!steep || share === OTHER_SIZES.at(-1)) return { steep, counts: sums, thrown };
  }
  throw new TypeError('unreachable');
}
