// Every name that a page tells people to install: it is ours, or one that we mean. Registries are asked, because a name may be a stranger's.
import { globSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { PUBLISHED } from '../../verify/common/version.ts';
import { run } from '../package/installed.ts';
import { ROOT, read } from './markdown.ts';

/** Ours, by registry: free until they are published, and then of our repository. */
const OURS = { npm: ['@countersign/verify'], pypi: ['countersign-verify'] } as const;
/** Others' that we mean, with a word of what their registry says of them. */
const THEIRS: Readonly<Record<'npm' | 'pypi', Readonly<Record<string, string>>>> = {
  npm: {
    '@ai-sdk/openai-compatible': 'ai',
    '@langchain/core': 'langchain',
    '@langchain/openai': 'langchain',
    ai: 'ai-sdk',
    openai: 'openai',
  },
  pypi: { cryptography: 'pyca', langchain: 'langchain', 'langchain-openai': 'langchain', openai: 'openai' },
};

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

/** What the registry says of a name; null where there is none of it. */
async function ask(registry: Registry, name: string): Promise<string | null> {
  const { code, output } =
    registry === 'npm'
      ? await run('npm', ['view', name, 'name', 'repository.url', 'homepage', '--json'], ROOT)
      : await run(
          'python3',
          ['-m', 'pip', 'download', '--no-deps', '--no-binary=:none:', '--dest', '/dev/null/x', name],
          ROOT,
        );
  if (registry === 'npm') return code === 0 ? output : null;
  return /No matching distribution/.test(output) ? null : output;
}

describe('the names that pages tell people to install', () => {
  it.each([...found.values()].map(({ registry, name, page }) => [registry, name, page] as const))(
    '%s: %s (%s) is ours or one that we mean',
    async (registry, name) => {
      const answer = await ask(registry, name);
      if ((OURS[registry] as readonly string[]).includes(name)) {
        if (PUBLISHED) expect(answer).toContain('countersign');
        else expect(answer).toBe(null);
        return;
      }
      expect(Object.keys(THEIRS[registry])).toContain(name);
      expect(answer?.toLowerCase()).toContain(registry === 'npm' ? THEIRS.npm[name] : name);
    },
  );

  it('are found in commands, and only there', () => {
    const names = namesIn(
      '`npm install openai @a/b@1 ./x.tgz`, npx --yes thing FILE, pip install -r r.txt \'x[y]\' "$repo/python"',
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
