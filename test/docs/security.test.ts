// The threat model names a test for each threat: every one of them is there, under that very name.
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const document = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8');
const named = [...document.matchAll(/\[([^\]]+)\]\(\.\.\/(test\/[^)]+\.(?:test|edge|long|cvm)\.ts)\)/g)].map(
  ([, title = '', file = '']) => ({ title, file }),
);

describe('the threat model', () => {
  it.each(named)('names a test that exists: $title', ({ title, file }) => {
    const path = new URL(`../../${file}`, import.meta.url);
    expect(existsSync(path), file).toBe(true);
    // As source writes it: a quote may be escaped there.
    const source = readFileSync(path, 'utf8').replaceAll("\\'", "'");
    expect(
      [`'${title}'`, `"${title}"`, `\`${title}\``].some((text) => source.includes(text)),
      `${file}: ${title}`,
    ).toBe(true);
  });

  it('gives every threat a test', () => {
    const rows = document.split('\n').filter((line) => line.startsWith('| '));
    const threats = document.slice(document.indexOf('## Threats'), document.indexOf('## What is not defended'));
    const bare = rows.filter(
      (row) => threats.includes(row) && !row.startsWith('| threat |') && !row.includes('](../test/'),
    );
    expect(bare).toEqual([]);
    expect(named.length).toBeGreaterThan(30);
  });
});
