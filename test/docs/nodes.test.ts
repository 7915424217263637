// The pages on nodes name what is there: the doctor's lines, its line for modprobe, this repository's files and tests.
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { holding, look } from '../sidecar/doctor/doctor-node.ts';

const ROOT = join(import.meta.dirname, '../..');
const PAGES = readdirSync(join(ROOT, 'docs/nodes')).map((name) => join('docs/nodes', name));
const read = (page: string) => readFileSync(join(ROOT, page), 'utf8');
const all = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, first = '']) => first);

describe.each(PAGES)('%s', (page) => {
  test('links to files and headings that are there', () => {
    for (const link of all(read(page), /\]\(([^)]+)\)/g).filter((link) => !link.startsWith('https://'))) {
      const [path = '', heading] = link.split('#');
      const target = path === '' ? page : join(dirname(page), path);
      expect(existsSync(join(ROOT, target)), link).toBe(true);
      if (heading !== undefined) expect(headings(read(target)), link).toContain(heading);
    }
  });

  test('names tests that are there', () => {
    for (const path of all(read(page), /`(test\/[^`\s]+)`/g))
      expect(globSync(path, { cwd: ROOT }), path).not.toEqual([]);
  });

  test('has the line for modprobe as the doctor has it', async () => {
    const { of } = await look({
      readText: holding({ '/proc/crypto': '' }),
      nvml: async () => Promise.reject(new Error('none')),
    });
    for (const line of all(read(page), /'(install nvidia [^']+)'/g)) expect(of('lkca').todo).toContain(`'${line}'`);
  });
});

test("what bites has the doctor's names", async () => {
  const names = all(read('docs/nodes/index.md'), /^\| `(\w+)` \|/gm);
  expect(names).toContain('lkca');
  const { findings } = await look();
  for (const name of names) expect(findings.map((finding) => finding.name)).toContain(name);
});

/** As GitHub makes anchors of headings. */
function headings(text: string): string[] {
  return all(text, /^#+ (.+)$/gm).map((heading) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}
