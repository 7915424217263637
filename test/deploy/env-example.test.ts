// .env.example has the settings that matter, compose passes on every setting of gateway and sidecar that is an operator's, and a page lists the rest.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { schema as gatewaySchema } from '../../gateway/base/config.ts';
import { schema as sidecarSchema } from '../../sidecar/common/config.ts';

const read = (path: string) => readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
const FILES = ['compose.yaml', 'compose.cpu.yaml'];

/** Variables that compose fills in: `${NAME}`, with a default or without. */
const filledIn = (text: string): string[] => [...text.matchAll(/\$\{(\w+)/g)].map(([, name]) => name as string);

type Services = Record<string, { environment?: Record<string, unknown> }>;
const servicesOf = (file: string): Services => parse(read(file), { merge: true }).services;

/** Variables that services have as they are in .env: `NAME:` without a value. */
const passedOn = (file: string): string[] =>
  Object.values(servicesOf(file)).flatMap(({ environment = {} }) =>
    Object.keys(environment).filter((name) => environment[name] === null),
  );

const example = read('.env.example');
const named = new Set([...example.matchAll(/^#?(\w+)=/gm)].map(([, name]) => name));
const listed = `${read('docs/configuration.md')}${read('docs/operate.md')}`;

describe.each(FILES)('what %s reads', (file) => {
  it.each([
    ['fills in', filledIn(read(file))],
    ['passes on', passedOn(file)],
  ])('and %s stands in .env.example or on a page', (_, names) => {
    if (file === 'compose.yaml') expect(names.length).toBeGreaterThan(10);
    const missing = [...new Set(names)].filter((name) => !named.has(name) && !listed.includes(`\`${name}`));
    expect(missing).toEqual([]);
  });
});

it('.env.example has fifteen settings at most, each under a sentence of its own', () => {
  expect(named.size).toBeLessThanOrEqual(15);
  const lines = example.split('\n');
  // BIND and PORT share one.
  const bare = lines.filter((line, i) => /^#?\w+=/.test(line) && !/^# .*\.$|^# .*['\w]$/.test(lines[i - 1] ?? ''));
  expect(bare).toEqual(['PORT=8080']);
});

it('.env.example names nothing that no compose file reads', () => {
  const used = new Set(FILES.flatMap((file) => [...filledIn(read(file)), ...passedOn(file)]));
  // Compose itself reads it.
  used.add('COMPOSE_PROFILES');
  expect([...named].filter((name) => !used.has(name as string))).toEqual([]);
});

describe('compose.yaml passes on every setting', () => {
  const { gateway, sidecar, 'demo-sidecar': demoSidecar } = servicesOf('compose.yaml');
  const given = (...services: (Services[string] | undefined)[]) =>
    services.flatMap((service) => Object.keys(service?.environment ?? {}));

  it('of the gateway, but those that image and compose.yaml fix', () => {
    const fixed = ['HOST', 'PORT', 'SIDECAR_SOCKET', 'SIDECAR_UID', 'DRAIN_MS', 'ALLOW_SIMULATED', 'BACKEND_API_KEY'];
    const wanted = Object.keys(gatewaySchema.shape).filter((name) => !fixed.includes(name));
    expect(wanted).toContain('MAX_HELD_BYTES');
    expect(wanted.filter((name) => !given(gateway).includes(name))).toEqual([]);
  });

  it('of the sidecar, but those that the image fixes', () => {
    const fixed = ['SIDECAR_SOCKET', 'TSM_ENTRY', 'NVTRUST_VENV', 'COLLATERAL_DIR'];
    const wanted = Object.keys(sidecarSchema.shape).filter((name) => !fixed.includes(name));
    expect(wanted).toContain('SIGNERS');
    // compose.cpu.yaml has the launch file.
    const all = [...given(sidecar, demoSidecar), ...given(servicesOf('compose.cpu.yaml').sidecar)];
    expect(wanted.filter((name) => !all.includes(name))).toEqual([]);
  });
});
