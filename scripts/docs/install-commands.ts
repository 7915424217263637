// The commands that install the verifier: those of a copy of the repository, and those of the registries once a version is published.
import { readFileSync, writeFileSync } from 'node:fs';
import { PUBLISHED } from '../../verify/common/version.ts';

/** The pages, from the repository's root, and the two forms of each of their commands. */
const PAGES: Readonly<Record<string, readonly (readonly [copy: string, registry: string])[]>> = {
  'docs/quickstart.md': [
    [
      'npm run -s make package\nrepo=$PWD\nmkdir ../try\ncd ../try\ncp "$repo/run/simulated-root/root.pem" "$repo/run/answer.json" .\nnpm install openai "$repo/build/countersign-verify.tgz"',
      'repo=$PWD\nmkdir ../try\ncd ../try\ncp "$repo/run/simulated-root/root.pem" "$repo/run/answer.json" .\nnpm install openai @countersign/verify',
    ],
    ['venv/bin/pip install "$repo/python" openai', 'venv/bin/pip install countersign-verify openai'],
  ],
  'docs/sealed.md': [
    ['venv/bin/pip install "$repo/python[sealed]"', "venv/bin/pip install 'countersign-verify[sealed]'"],
  ],
  'packages/verify/README.md': [
    [
      'npm run -s make package                          # in a copy of the repository\nnpm install …/build/countersign-verify.tgz       # in your project\nnpx @countersign/verify answer.json              # there',
      'npm install @countersign/verify\nnpx @countersign/verify answer.json     # or: without installing anything',
    ],
  ],
  'python/README.md': [
    ['pip install ./python     # in a copy of the repository', 'pip install countersign-verify'],
    ["`pip install './python[sealed]'`", "`pip install 'countersign-verify[sealed]'`"],
  ],
};

/** The text of each page with the commands that apply, and what is missing of it, by page. */
export function pagesWithCommands(
  published = PUBLISHED,
): Record<string, { readonly text: string; readonly missing: string[] }> {
  const pages = Object.entries(PAGES).map(([page, pairs]) => {
    const text = pairs.reduce(
      (so, [copy, registry]) => {
        const [other, own] = published ? [copy, registry] : [registry, copy];
        return so.replaceAll(other, own);
      },
      readFileSync(path(page), 'utf8'),
    );
    const missing = pairs.map((pair) => pair[published ? 1 : 0]).filter((command) => !text.includes(command));
    return [page, { text, missing }] as const;
  });
  return Object.fromEntries(pages);
}

export function writeInstallCommands(published: boolean): void {
  for (const [page, { text }] of Object.entries(pagesWithCommands(published))) writeFileSync(path(page), text);
}

const path = (page: string): URL => new URL(`../../${page}`, import.meta.url);
