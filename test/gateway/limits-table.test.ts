import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../gateway/config.ts';
import { MAX_HEADER_BYTES, MAX_HEADERS } from '../../gateway/http/server.ts';
import { MAX_MESSAGES } from '../../proto/openai.ts';

const document = readFileSync(new URL('../../docs/limits.md', import.meta.url), 'utf8');
const rows = [...document.matchAll(/^\| `([A-Z_]+)` \| (\d+|half) \| (\S+?)[ ,|].*\| (.+) \|$/gm)].map(
  ([, name = '', value, unit, gets]) => ({
    name,
    value: value === 'half' ? null : Number(value) * (unit === 'MiB' ? 1024 * 1024 : 1),
    unit,
    gets,
  }),
);
const config = loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', API_KEYS_FILE: 'keys' });
/** Every number of the configuration is a limit, but for ports and the number of processes; a key's share without one is half. */
const numbers = Object.entries(config)
  .filter(([name, value]) => typeof value === 'number' || (value === null && name.endsWith('_per_key')))
  .filter(([name]) => !name.endsWith('port') && name !== 'workers')
  .map(([name, value]) => ({ name: name.toUpperCase(), value: value as number | null }));

describe('docs/limits.md', () => {
  it('lists every limit of the configuration, each with its default and its unit', () => {
    expect(numbers.length).toBeGreaterThan(20);
    const listed = rows.map(({ name, value }) => `${name} ${value}`).sort();
    expect(listed).toEqual(numbers.map(({ name, value }) => `${name} ${value}`).sort());
    for (const { name, unit, gets } of rows) {
      if (name.endsWith('_MS')) expect(unit).toBe('ms');
      if (/_BYTES(_PER_KEY)?$/.test(name)) expect(unit).toBe('MiB');
      expect(gets?.length).toBeGreaterThan(10);
    }
  });

  it('lists nothing that no test sets', () => {
    const texts = ['gateway', 'store']
      .map((room) => new URL(`../${room}/`, import.meta.url))
      .flatMap((room) => readdirSync(room, { encoding: 'utf8', recursive: true }).map((file) => new URL(file, room)))
      .filter(({ pathname }) => /\.(test|store)\.ts$/.test(pathname))
      .map((file) => readFileSync(file, 'utf8'))
      .join('');
    for (const { name } of rows) expect(texts, name).toMatch(new RegExp(`\\b${name}: `));
  });

  it('has the fixed limits as they are', () => {
    expect(document).toContain(`| ${MAX_MESSAGES} messages |`);
    expect(document).toContain(`| ${MAX_HEADER_BYTES / 1024} KiB, ${MAX_HEADERS} headers |`);
  });
});
