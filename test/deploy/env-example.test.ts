// .env.example names whatever the compose files read, and the compose files pass on every setting of gateway and sidecar that is an operator's.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { schema as gatewaySchema } from '../../gateway/config.ts';
import { schema as sidecarSchema } from '../../sidecar/config.ts';

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

const named = new Set([...read('.env.example').matchAll(/^#?(\w+)=/gm)].map(([, name]) => name));
const missing = (names: readonly string[]) => [...new Set(names)].filter((name) => !named.has(name));

describe.each(FILES)('.env.example and %s', (file) => {
  it('name the same variables that compose fills in', () => {
    expect(filledIn(read(file))).toContain('CPU_EVIDENCE');
    expect(missing(filledIn(read(file)))).toEqual([]);
  });

  it('name the same variables that compose passes on', () => {
    if (file === 'compose.yaml') expect(passedOn(file)).toContain('MAX_STREAMS');
    expect(missing(passedOn(file))).toEqual([]);
  });
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
    expect(wanted).toContain('MAX_STREAMS');
    expect(wanted.filter((name) => !given(gateway).includes(name))).toEqual([]);
  });

  it('of the sidecar, but those that the image fixes', () => {
    const image = ['SIDECAR_SOCKET', 'DRAIN_MS', 'TSM_ENTRY', 'NVTRUST_VENV', 'NVATTEST', 'COLLATERAL_DIR'];
    const fixed = [...image, 'NVML_LIBRARY', 'NSCQ_LIBRARY', 'SIMULATED_ROOT_DIR'];
    const wanted = Object.keys(sidecarSchema.shape).filter((name) => !fixed.includes(name));
    expect(wanted).toContain('SIGNERS');
    // compose.cpu.yaml has the launch file.
    const all = [...given(sidecar, demoSidecar), ...given(servicesOf('compose.cpu.yaml').sidecar)];
    expect(wanted.filter((name) => !all.includes(name))).toEqual([]);
  });
});
