// Every name that a page tells people to install: it is ours, or one that we mean. Registries are asked, because a name may be a stranger's.
import { spawnSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { PUBLISHED } from '../../verify/common/version.ts';
import { ROOT, read } from './markdown.ts';

/** Ours, by registry: free until they are published. */
const OURS = { npm: ['@countersign/verify'], pypi: ['countersign-verify'] } as const;
/** Others' that we mean: somebody of ours has looked at each. */
const THEIRS = {
  npm: ['@ai-sdk/openai-compatible', '@langchain/core', '@langchain/openai', 'ai', 'node', 'openai'],
  pypi: ['cryptography', 'langchain', 'langchain-openai', 'openai'],
} as const;

type Registry = keyof typeof OURS;

const PAGES = globSync('{*.md,{docs,examples,packages,python,deploy}/**/*.{md,py,ts,mjs,sh}}', {
  cwd: ROOT,
  exclude: (path) => /(^|\/)(node_modules|dist|\.[^/]+|__pycache__)(\/|$)/.test(path),
});

/** The names behind `npm install`, `npx` and `pip install`; folders, files and options are none. */
function namesIn(text: string): { readonly registry: Registry; readonly name: string }[] {
  return [...text.matchAll(/\b(npm install|npm i|npx|pip install) ([^\n`|#&;)]+)/g)].flatMap(
    ([, command, rest = '']) => {
      const registry = command === 'pip install' ? 'pypi' : 'npm';
      const words = rest.trim().split(/\s+/);
      const names = (command === 'npx' ? words.filter((word) => !word.startsWith('-')).slice(0, 1) : words)
        .map((word) => word.replace(/^['"]|['"]$/g, ''))
        .filter((word) => !/^[-./$…]|[/"]\S*\.(tgz|txt)|^[A-Z]|\.txt$/.test(word))
        .map((word) => word.replace(/(?!^)(==|@|\[).*$/, ''));
      return names.filter((name) => name !== '').map((name) => ({ registry, name }) as const);
    },
  );
}

const found = new Map<string, { readonly registry: Registry; readonly name: string; readonly page: string }>();
for (const page of PAGES)
  for (const one of namesIn(read(page))) found.set(`${one.registry} ${one.name}`, { ...one, page });

/** Whether the registry has a package of this name. @throws {Error} where it cannot be reached */
function has(registry: Registry, name: string): boolean {
  const [program, ...args] =
    registry === 'npm'
      ? ['npm', 'view', name, 'name']
      : ['python3', '-m', 'pip', '--disable-pip-version-check', 'index', 'versions', name];
  const { status, stderr } = spawnSync(program as string, args, { encoding: 'utf8', timeout: 60_000, cwd: tmpdir() });
  if (status === 0) return true;
  if (/E404|No matching distribution/.test(stderr)) return false;
  throw new Error(`${registry} does not answer: ${stderr.slice(0, 200)}`);
}

describe('the names that pages tell people to install', () => {
  it.each([...found.values()].map(({ registry, name, page }) => [registry, name, page] as const))(
    '%s: %s (%s) is ours or one that we mean',
    (registry, name) => {
      const isOurs = (OURS[registry] as readonly string[]).includes(name);
      if (!isOurs) expect(THEIRS[registry]).toContain(name);
      expect(has(registry, name)).toBe(isOurs ? PUBLISHED : true);
    },
  );

  it('are found in commands, and only there', () => {
    const names = namesIn(
      '`npm install openai @a/b@1 ./x.tgz`\nnpx --yes thing FILE\npip install -r r.txt \'x[y]\' "$repo/python"',
    );
    expect(names).toEqual([
      { registry: 'npm', name: 'openai' },
      { registry: 'npm', name: '@a/b' },
      { registry: 'npm', name: 'thing' },
      { registry: 'pypi', name: 'x' },
    ]);
    expect(found.size).toBeGreaterThan(5);
  });
});
