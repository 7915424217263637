// The pages as these tests read them: which there are, their code blocks, links and anchors.
import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { slug } from '../../docs/.vitepress/links.ts';

export const ROOT: string = fileURLToPath(new URL('../..', import.meta.url));

export const read = (path: string): string => readFileSync(`${ROOT}${path}`, 'utf8');

/** Of docs/, as paths from the project's folder. */
export const pages = (): string[] => globSync('docs/**/*.md', { cwd: ROOT }).filter(notInstalled).sort();

/** Every page of the project. */
export const allPages = (): string[] =>
  globSync('{*.md,{bench,deploy,docs,examples,packages,python,vectors}/**/*.md}', {
    cwd: ROOT,
    exclude: installed,
  }).sort();

const installed = (path: string) => /(^|\/)(node_modules|\.[^/]+|dist|__pycache__)(\/|$)/.test(path);
const notInstalled = (path: string) => !installed(path);

export interface Block {
  /** The first word behind the backticks; empty where there is none. */
  readonly language: string;
  readonly text: string;
  /** Of the block's first line, counted from 1. */
  readonly line: number;
  /** From a comment `not run: WHY` on the line above. */
  readonly notRun: string | null;
}

/** The fenced code blocks of a page. @throws {Error} for one that does not end */
export function blocks(page: string): Block[] {
  const found: Block[] = [];
  const lines = page.split('\n');
  for (let at = 0; at < lines.length; at++) {
    const [, indent = '', fence, language = ''] = /^( *)(```+)(\w*)/.exec(lines[at] ?? '') ?? [];
    if (fence === undefined) continue;
    const end = lines.findIndex((line, index) => index > at && line.trim() === fence);
    if (end < 0) throw new Error(`line ${at + 1}: a code block without an end`);
    const text = lines.slice(at + 1, end).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line));
    const [, notRun = null] = /^<!-- not run: (.+) -->$/.exec(lines[at - 1] ?? '') ?? [];
    found.push({ language, text: `${text.join('\n')}\n`, line: at + 2, notRun });
    at = end;
  }
  return found;
}

/** The page without its code. */
export const prose = (page: string): string =>
  page.replace(/^( *)(```+)[^\n]*\n[\s\S]*?\n *\2 *$/gm, '').replace(/``.*?``|`[^`\n]*`/g, '');

/** What a page's links and pictures lead to. */
export const links = (page: string): string[] =>
  [...prose(page).matchAll(/\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)/gm)].map(
    ([, inline, reference]) => inline ?? reference ?? '',
  );

/** The anchors of a page's headings. */
export function anchors(page: string): Set<string> {
  const found = new Set<string>();
  for (const [, heading = ''] of page
    .replace(/^( *)(```+)[^\n]*\n[\s\S]*?\n *\2 *$/gm, '')
    .matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const first = slug(heading.replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1'));
    let anchor = first;
    for (let number = 1; found.has(anchor); number++) anchor = `${first}-${number}`;
    found.add(anchor);
  }
  return found;
}
