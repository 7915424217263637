// Counts what a function does, in a process of its own: how often our functions and loops run (instrument.ts), and how many
// characters, bytes and items the built-ins look at or copy. Counts do not depend on the machine, as times do.
//
// What it does not see: the comparison of two long texts by `===`, and the index `text[i]` on a text that was just put
// together. Of a regular expression it counts the text once: whether one backtracks, recheck decides
// (test/fuzz/regular-expressions.long.ts).
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { countSources, counts, files } from './instrument.ts';
import { reachOf } from './reach.ts';

// What this file needs for itself, as it is before anything is wrapped.
const { apply, construct, getOwnPropertyDescriptor, getPrototypeOf, defineProperty } = Reflect;
const { exec } = RegExp.prototype;
const { indexOf } = String.prototype;
/** Whether a text lies in one piece. One that was put together of others is copied when it is first looked into. */
const isFlat = new Function('text', 'return %StringIsFlat(text)') as (text: string) => boolean;

let operations = 0;
/** Not while this file itself works. */
let counting = true;

type Method = (this: unknown, ...args: never[]) => unknown;
/** What a call costs beside one operation. */
type Cost = (self: never, args: readonly never[], result: never) => number;

function wrap(owner: object, names: readonly PropertyKey[], cost: Cost): void {
  for (const name of names) {
    const descriptor = getOwnPropertyDescriptor(owner, name);
    if (descriptor === undefined) throw new TypeError(`there is no ${String(name)} to count`);
    const method = descriptor.value as Method;
    const counted = {
      [name](this: unknown, ...args: never[]): unknown {
        if (!counting) return apply(method, this, args);
        operations += 1 + (typeof this === 'string' && !isFlat(this) ? this.length : 0);
        const result = apply(method, this, args);
        operations += cost(this as never, args, result as never);
        return result;
      },
    }[name as string] as Method;
    defineProperty(counted, 'length', { value: method.length });
    defineProperty(owner, name, { ...descriptor, value: counted });
  }
}

/** A class whose objects cost something to make. */
function wrapClass(name: string, cost: (args: readonly unknown[], made: object) => number): void {
  const original = (globalThis as Record<string, unknown>)[name] as new (...args: never[]) => object;
  const counted = new Proxy(original, {
    construct(target, args, newTarget) {
      const made = construct(target, args, newTarget);
      operations += 1 + cost(args, made);
      return made;
    },
  });
  defineProperty(globalThis, name, { value: counted, writable: true, configurable: true, enumerable: false });
}

/** Of a text, an array or a typed array; its bytes, of a buffer. */
const size = (value: unknown): number => {
  const { length, byteLength } = (value ?? {}) as { length?: unknown; byteLength?: unknown };
  if (typeof length === 'number') return length;
  return typeof byteLength === 'number' ? byteLength : 0;
};
const nothing: Cost = () => 0;
/** Bytes are copied and set to zero in words. */
const WORD_BYTES = 8;
const words = (value: unknown): number => size(value) / WORD_BYTES;
const self: Cost = (it) => size(it);
const result: Cost = (_it, _args, made) => size(made);
const first: Cost = (_it, [one]) => size(one);
const second: Cost = (_it, [, two]) => size(two);
const selfAndResult: Cost = (it, _args, made) => size(it) + size(made);
const argumentsOf: Cost = (_it, args) => args.length;

/** From where a search begins to what it found, or to the end. */
const forward: Cost = (it, [sought, from], found) => {
  const began = typeof from === 'number' ? from : 0;
  return (found as number) < 0 ? Math.max(0, size(it) - began) : found - began + size(sought);
};
const backward: Cost = (it, [sought, from], found) => {
  const began = typeof from === 'number' ? from : size(it);
  return ((found as number) < 0 ? began : began - found) + size(sought);
};

function wrapTexts(): void {
  const text = String.prototype;
  wrap(text, ['indexOf'], forward);
  wrap(text, ['lastIndexOf'], backward);
  wrap(text, ['includes'], (it: string, args, found) => (found ? (apply(indexOf, it, args) as number) : it.length));
  wrap(text, ['startsWith', 'endsWith', 'localeCompare'], first);
  // A part of a text is a view of it.
  wrap(text, ['charCodeAt', 'codePointAt', 'charAt', 'at', 'slice', 'substring'], nothing);
  wrap(text, ['trim', 'trimStart', 'trimEnd'], (it, _args, made) => size(it) - size(made));
  wrap(text, ['toLowerCase', 'toUpperCase', 'normalize', 'split', 'isWellFormed', 'toWellFormed'], self);
  wrap(text, ['replace', 'replaceAll'], selfAndResult);
  wrap(text, ['match', 'search', 'matchAll'], nothing);
  wrap(text, ['concat', 'repeat', 'padStart', 'padEnd'], result);
  wrap(String, ['fromCharCode', 'fromCodePoint'], argumentsOf);
  wrap(String, ['raw'], result);
  // `test`, `match`, `matchAll`, `replace`, `search` and `split` call it once it is not the original one.
  defineProperty(RegExp.prototype, 'exec', {
    writable: true,
    configurable: true,
    value: function counted(this: RegExp, given: unknown): RegExpExecArray | null {
      if (!counting) return apply(exec, this, [given]) as RegExpExecArray | null;
      const text = String(given);
      const from = this.global || this.sticky ? this.lastIndex : 0;
      if (!isFlat(text)) operations += text.length;
      const match = apply(exec, this, [text]) as RegExpExecArray | null;
      operations += 1 + (match === null ? missed(this, text, from) : match.index + match[0].length - from);
      return match;
    },
  });
}

/** What is looked at before it is clear that there is no match: of an expression that may begin in one place only, not all. */
function missed(expression: RegExp, text: string, from: number): number {
  if (!expression.sticky && expression.source[0] !== '^') return Math.max(0, text.length - from);
  counting = false;
  const reach = reachOf(expression);
  counting = true;
  reach.lastIndex = from;
  return (apply(exec, reach, [text]) as RegExpExecArray | null)?.[0].length ?? 0;
}

function wrapLists(): void {
  const list = Array.prototype;
  wrap(list, ['concat', 'slice', 'flat', 'toSorted', 'toSpliced', 'toReversed', 'with'], result);
  wrap(list, ['join'], selfAndResult);
  wrap(list, ['map', 'filter', 'flatMap', 'forEach', 'reduce', 'reduceRight', 'sort', 'reverse', 'fill'], self);
  // These call what is our own, and it is counted there.
  wrap(list, ['find', 'findIndex', 'findLast', 'findLastIndex', 'some', 'every'], nothing);
  wrap(list, ['shift', 'unshift', 'copyWithin'], self);
  wrap(list, ['push'], argumentsOf);
  wrap(list, ['splice'], (it, args, out) => size(it) - Math.max(0, Number(args[0])) + args.length + size(out));
  wrap(list, ['indexOf'], forward);
  wrap(list, ['lastIndexOf'], backward);
  wrap(list, ['includes'], (it: unknown[], [sought], found) => {
    let at = 0;
    if (found) while (it[at] !== sought && at < it.length) at++;
    return found ? at : it.length;
  });
  wrap(Array, ['from', 'of'], result);
  wrap(Object, ['keys', 'values', 'entries', 'getOwnPropertyNames'], result);
  wrap(Object, ['assign'], (_it, args) =>
    args.reduce((sum, one) => sum + Object.getOwnPropertyNames(one ?? {}).length, 0),
  );
  // Spreading, destructuring, `for of`, and what takes an iterable: each item.
  for (const items of [[], '', new Map(), new Set()] as Iterable<unknown>[])
    wrap(getPrototypeOf(items[Symbol.iterator]()) as object, ['next'], nothing);
}

function wrapBytes(): void {
  const bytes = getPrototypeOf(Uint8Array.prototype) as object;
  wrap(bytes, ['set'], (_it, [source]) => words(source));
  wrap(bytes, ['slice'], (_it, _args, made) => words(made));
  wrap(bytes, ['map', 'toSorted', 'toReversed', 'with'], result);
  wrap(bytes, ['filter'], self);
  wrap(bytes, ['fill', 'copyWithin', 'reverse', 'sort', 'join', 'forEach', 'reduce', 'reduceRight'], self);
  wrap(bytes, ['find', 'findIndex', 'findLast', 'findLastIndex', 'some', 'every', 'subarray', 'at'], nothing);
  for (const owner of [bytes, Buffer.prototype]) {
    wrap(owner, ['indexOf'], forward);
    wrap(owner, ['lastIndexOf'], backward);
    wrap(owner, ['includes'], self);
  }
  wrapCopies(getPrototypeOf(Uint8Array) as object);
  wrapClass('Uint8Array', ([given], made) => (given instanceof ArrayBuffer ? 0 : words(made)));
  wrap(Buffer, ['concat', 'alloc'], (_it, _args, made) => words(made));
  wrap(Buffer, ['from'], (_it, [given], made) => ((given as unknown) instanceof ArrayBuffer ? 0 : words(made)));
  wrap(Buffer, ['byteLength', 'compare'], first);
  wrap(Buffer.prototype, ['equals', 'compare', 'fill'], self);
  wrap(Buffer.prototype, ['toString'], result);
  wrap(Buffer.prototype, ['copy'], (_it, _args, written) => written / WORD_BYTES);
  wrap(Buffer.prototype, ['write'], first);
  wrap(TextDecoder.prototype, ['decode'], first);
  wrap(TextEncoder.prototype, ['encode', 'encodeInto'], first);
}

/** `from`: of another typed array it is a copy, though it takes the bytes one by one. */
function wrapCopies(owner: object): void {
  const from = getOwnPropertyDescriptor(owner, 'from')?.value as Method;
  defineProperty(owner, 'from', {
    writable: true,
    configurable: true,
    value: function counted(this: unknown, ...args: never[]): unknown {
      const copies = counting && ArrayBuffer.isView(args[0]);
      if (copies) counting = false;
      const made = apply(from, this, args);
      if (copies) counting = true;
      if (counting) operations += 1 + (copies ? words(made) : size(made));
      return made;
    },
  });
}

function wrapFunctions(): void {
  wrap(JSON, ['parse'], first);
  wrap(JSON, ['stringify', 'rawJSON'] as never, result);
  wrap(globalThis, ['atob', 'btoa', 'encodeURIComponent', 'decodeURIComponent', 'structuredClone'], first);
  wrap(globalThis, ['parseInt', 'parseFloat'], first);
  wrap(Number, ['parseInt', 'parseFloat'], first);
  wrap(Date, ['parse'], first);
  wrapClass('URL', ([given]) => size(given));
  wrapClass('RegExp', ([given]) => size(given));
  wrap(getPrototypeOf(crypto.subtle) as object, ['digest'], second);
  wrap(getPrototypeOf(crypto.subtle) as object, ['verify'], (_it, args) => size(args[3]));
  const require = createRequire(import.meta.url);
  const buffer = require('node:buffer') as typeof import('node:buffer');
  const nodeCrypto = require('node:crypto') as typeof import('node:crypto');
  wrap(buffer, ['isUtf8', 'isAscii'], first);
  wrap(nodeCrypto, ['hash'], second);
  wrap(getPrototypeOf(nodeCrypto.createHash('sha256')) as object, ['update'], first);
  syncBuiltinESMExports();
}

/** Once, before anything is loaded that is to be counted. */
export function startCounting(): void {
  countSources();
  wrapTexts();
  wrapLists();
  wrapBytes();
  wrapFunctions();
}

export interface Count {
  readonly operations: number;
  /** What was done in each file, by its path. */
  readonly files: ReadonlyMap<string, number>;
  readonly thrown: unknown;
}

/** What `work` does until it is over, whatever comes of it. */
export async function countOf(work: () => unknown): Promise<Count> {
  let thrown: unknown = null;
  counts.fill(0);
  operations = 0;
  try {
    await work();
  } catch (error) {
    thrown = error;
  }
  let sum = operations;
  const done = new Map<string, number>();
  for (const [i, file] of files.entries()) {
    sum += counts[i] ?? 0;
    done.set(file, counts[i] ?? 0);
  }
  return { operations: sum, files: done, thrown };
}
