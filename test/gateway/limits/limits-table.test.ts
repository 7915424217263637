import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/base/config.ts';
import { LIMITS } from '../../../gateway/base/limits.ts';
import { MAX_UNOPENED_OF_ADDRESS } from '../../../gateway/base/memory-bounds.ts';
import { STATUS } from '../../../gateway/base/problem.ts';
import { MAX_HEADER_BYTES, MAX_HEADERS } from '../../../gateway/http/server.ts';
import { MAX_MESSAGES } from '../../../proto/openai.ts';

const MiB = 1024 * 1024;
const page = readFileSync(new URL('../../../docs/operate.md', import.meta.url), 'utf8');
const document = page.split('### Limits\n')[1]?.split(/^#+ /m)[0] ?? '';
const rows = [...document.matchAll(/^\| `([A-Z_]+)` \| (\d+)(?: (\S+))? \| (.+) \|$/gm)].map(
  ([, name = '', value, unit, gets = '']) => ({
    name,
    value: Number(value) * (unit === 'MiB' ? MiB : 1),
    unit,
    gets,
  }),
);
const config = loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', API_KEYS_FILE: 'keys' });
/** Every number of the configuration is a limit, except for ports. */
const limits = new Map(
  Object.entries(config)
    .filter(([, value]) => typeof value === 'number')
    .filter(([name]) => !name.endsWith('port'))
    .map(([name, value]) => [name.toUpperCase(), value as number]),
);

describe('the limits in docs/operate.md', () => {
  it('are limits of the configuration, each with its default, its unit and what a client gets', () => {
    expect(rows.length).toBeGreaterThan(6);
    for (const { name, value, unit, gets } of rows) {
      expect(limits.get(name), name).toBe(value);
      expect(unit, name).toBe(name.endsWith('_MS') ? 'ms' : name.endsWith('_BYTES') ? 'MiB' : undefined);
      expect(gets, name).toMatch(/^(with tee: )?[45]\d\d|^the same/);
    }
  });

  it('name codes with the statuses that they have', () => {
    const named = [...document.matchAll(/\b(\d{3}) `(\w+)`/g)];
    expect(named.length).toBeGreaterThan(8);
    for (const [, status, code] of named) expect(STATUS).toHaveProperty(code ?? '', Number(status));
  });

  it('have the fixed ones as they are', () => {
    expect(document).toContain(
      `| a stream | ${LIMITS.max_stream_bytes / MiB} MiB, ${LIMITS.max_stream_events} events |`,
    );
    expect(document).toContain(`| an answer | ${LIMITS.max_answer_ms} ms |`);
    expect(document).toContain(`| answers that wait for their attestation | ${LIMITS.max_attestations_waiting} |`);
    expect(document).toContain(`| wait for a sidecar | ${LIMITS.sidecar_wait_ms} ms |`);
    expect(document).toContain(`| verifications | ${LIMITS.max_verify_per_second} a second |`);
    expect(config.max_streams).toBe(config.max_concurrent_requests / 2);
    expect(document).toContain('| streams | half of those |');
    expect(document).toContain(`| ${MAX_MESSAGES} messages |`);
    expect(document).toContain(` ${MAX_UNOPENED_OF_ADDRESS} unopened |`);
    expect(document).toContain(`| ${MAX_HEADER_BYTES / 1024} KiB, ${MAX_HEADERS} headers |`);
  });
});

it('each limit of the configuration is set by a test', () => {
  expect(limits.size).toBeGreaterThan(20);
  const texts = ['gateway', 'store']
    .map((room) => new URL(`../../${room}/`, import.meta.url))
    .flatMap((room) => readdirSync(room, { encoding: 'utf8', recursive: true }).map((file) => new URL(file, room)))
    .filter(({ pathname }) => /\.(test|long|store)\.ts$/.test(pathname))
    .map((file) => readFileSync(file, 'utf8'))
    .join('');
  for (const name of limits.keys()) expect(texts, name).toMatch(new RegExp(`\\b${name}: `, 'i'));
});
