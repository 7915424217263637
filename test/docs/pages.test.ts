import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { variableTable } from '../../scripts/docs/variables.ts';
import { madePages } from '../../scripts/make-docs.ts';

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

describe('the pages made from code', async () => {
  it.each(Object.entries(await madePages()))('docs/%s is what npm run make docs writes', (name, text) => {
    expect(read(`docs/${name}`)).toBe(text);
  });

  it('know every variable that a config.ts reads by its name', async () => {
    const page = read('docs/configuration.md');
    for (const file of ['gateway/base/config.ts', 'sidecar/common/config.ts', 'demo/engine/config.ts'])
      for (const [, name] of read(file).matchAll(/^ {2}([A-Z][A-Z0-9_]+):/gm))
        expect(page, file).toContain(`\`${name}\``);
  });

  it('say default, unit and range, and refuse a variable without a meaning', () => {
    const schema = z.object({
      SOME_BYTES: z.coerce.number().int().min(1).max(4096).default(2048).describe('a size'),
      SOME_MS: z.coerce.number().int().min(0).default(1500).describe('a time'),
      SOME: z.enum(['a', 'b']).describe('a choice'),
    });
    const table = variableTable(schema);
    expect(table).toContain('| `SOME_BYTES` | `2048` (2 KiB) | 1 to 4096 bytes | a size |');
    expect(table).toContain('| `SOME_MS` | `1500` | from 0 ms | a time |');
    expect(table).toContain('| `SOME` | **required** | `a`, `b` | a choice |');
    expect(() => variableTable(z.object({ NEW: z.string() }))).toThrow('NEW');
  });
});
