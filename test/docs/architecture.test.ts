// docs/architecture.md names files and folders that are there.
import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { ROOT, read } from './markdown.ts';

const FILES = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' }).trim().split('\n');

/** A path is named from the project's folder or from the room of its row. */
const isThere = (path: string) => FILES.some((file) => `/${file}`.includes(`/${path}`));

const named = [...read('docs/architecture.md').matchAll(/`([\w./-]+(?:\.ts|\/))`/g)].map(([, path = '']) => path);

it('names many', () => {
  expect(named.length).toBeGreaterThan(50);
});

it.each([...new Set(named)])('%s is there', (path) => {
  expect(isThere(path)).toBe(true);
});

it('a file that is not there would be found', () => {
  expect(isThere('verify/policy/none.ts')).toBe(false);
});
