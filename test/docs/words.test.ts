// The documentation stays short, and the README's first steps are those of the Quickstart.
import { describe, expect, it } from 'vitest';
import { pagesWithCommands } from '../../scripts/docs/install-commands.ts';
import { PUBLISHED } from '../../verify/common/version.ts';
import { blocks, pages, read } from './markdown.ts';

const MAX_WORDS = 24_000;

/** Whatever has a letter or a digit, code and tables included. */
const words = (text: string): number => text.split(/\s+/).filter((token) => /[\p{L}\p{N}]/u.test(token)).length;

describe('the documentation', () => {
  it(`has ${MAX_WORDS} words at most`, () => {
    const counted = pages().map((page): [string, number] => [page, words(read(page))]);
    const sum = counted.reduce((total, [, count]) => total + count, 0);
    const table = counted.map(([page, count]) => `${String(count).padStart(7)}  ${page}`).join('\n');
    expect(sum, `${table}\n${String(sum).padStart(7)}  in all`).toBeLessThanOrEqual(MAX_WORDS);
    expect(counted.length).toBeGreaterThan(10);
  });

  it('counts words, not marks', () => {
    expect(words('| a | `--b` | – |\n|---|--:|\n# 3 words')).toBe(4);
  });
});

describe('the README', () => {
  const readme = read('README.md');

  it('has 130 lines and 900 words at most', () => {
    expect(readme.split('\n').length).toBeLessThanOrEqual(130);
    expect(words(readme)).toBeLessThanOrEqual(900);
  });

  it('begins as the Quickstart does, command by command', () => {
    const own = blocks(readme.slice(0, readme.indexOf('## What it proves'))).map(({ text }) => text);
    const quickstart = blocks(read('docs/quickstart.md')).map(({ text }) => text);
    expect(own).toHaveLength(5);
    for (const block of own) expect(quickstart).toContain(block);
  });
});

describe('what installs the verifier', () => {
  it.each(Object.entries(pagesWithCommands()))('%s has the commands that apply now', (page, { text, missing }) => {
    expect(missing).toEqual([]);
    expect(read(page)).toBe(text);
  });

  it('follows a release, and comes back', () => {
    const released = pagesWithCommands(!PUBLISHED);
    for (const [page, { text, missing }] of Object.entries(released)) {
      expect(missing).toEqual([]);
      expect(text).not.toBe(read(page));
    }
  });
});
