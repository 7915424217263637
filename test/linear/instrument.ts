// Puts a count at the start of every function and of every turn of a loop, in the sources of ours as they are loaded, and in
// zod's. An object that is spread counts its members.
import { readFileSync } from 'node:fs';
import { type LoadHookSync, registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';
import { parseAst } from 'rolldown/parseAst';

const COUNTED =
  /\/(?:(?:gateway|page|proto|sealed|verify)\/.*\.ts|node_modules\/zod\/.*\.js|test\/linear\/planted\.ts)$/;
const MAX_FILES = 4_096;

/** By the place of the file in {@link files}. */
export const counts = new Float64Array(MAX_FILES);
export const files: string[] = [];

interface Node {
  readonly type?: string;
  readonly start: number;
  readonly end: number;
  readonly body?: Node | null;
  readonly argument?: Node;
  readonly properties?: readonly Node[];
}

const FUNCTION = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
const LOOP = new Set(['ForStatement', 'ForInStatement', 'ForOfStatement', 'WhileStatement', 'DoWhileStatement']);

export function instrumented(source: string, file: string, index: number): string {
  const count = `++__counts[${index}]`;
  const puts: { readonly at: number; readonly text: string }[] = [];
  const around = ({ start, end }: Node, before: string, after: string) =>
    puts.push({ at: start, text: before }, { at: end, text: after });
  const walk = (node: unknown): void => {
    if (Array.isArray(node)) return node.forEach(walk);
    if (typeof node !== 'object' || node === null) return;
    const { type = '', body, properties } = node as Node;
    if (body !== undefined && body !== null) {
      if (FUNCTION.has(type) && body.type === 'BlockStatement') puts.push({ at: body.start + 1, text: `${count};` });
      else if (FUNCTION.has(type)) around(body, `(${count},`, ')');
      else if (LOOP.has(type)) around(body, `{${count};`, '}');
    }
    if (type === 'ObjectExpression')
      for (const { type: kind, argument } of properties ?? [])
        if (kind === 'SpreadElement' && argument !== undefined) around(argument, `__spread(${index},`, ')');
    Object.values(node).forEach(walk);
  };
  walk(parseAst(source, { lang: file.endsWith('.ts') ? 'ts' : 'js' } as never, file));
  // What ends at a place stands before what begins there; of two that end there, the inner one was put first.
  const order = puts.map((put, i) => ({ ...put, i, closes: /^[)}]/.test(put.text) }));
  order.sort((a, b) => a.at - b.at || Number(b.closes) - Number(a.closes) || (a.closes ? b.i - a.i : a.i - b.i));
  let out = '';
  let from = 0;
  for (const { at, text } of order) {
    out += source.slice(from, at) + text;
    from = at;
  }
  return out + source.slice(from);
}

const load: LoadHookSync = (url, context, next) => {
  const loaded = next(url, context);
  if (!url.startsWith('file:') || !COUNTED.test(url)) return loaded;
  const file = fileURLToPath(url);
  if (files.push(file) > MAX_FILES) throw new RangeError('more files than are counted');
  return { ...loaded, source: instrumented(readFileSync(file, 'utf8'), file, files.length - 1) };
};

/** Once, before anything is loaded that is to be counted. */
export function countSources(): void {
  Object.assign(globalThis, {
    __counts: counts,
    __spread: (index: number, given: object) => {
      if (typeof given === 'object' && given !== null)
        counts[index] = (counts[index] ?? 0) + Reflect.ownKeys(given).length;
      return given;
    },
  });
  registerHooks({ load });
}
