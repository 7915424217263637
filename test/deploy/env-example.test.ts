// .env.example names whatever the compose files read: itself, or by docs/configuration.md for the gateway's settings, to which it refers.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';

const read = (path: string) => readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
const FILES = ['compose.yaml', 'compose.cpu.yaml'];
const GATEWAYS = ['gateway', 'demo-gateway'];

/** Variables that compose fills in: `${NAME}`, with a default or without. */
const filledIn = (text: string): string[] => [...text.matchAll(/\$\{(\w+)/g)].map(([, name]) => name as string);

/** Variables that these services have as they are in .env: `NAME:` without a value. */
function passedOn(text: string, wanted: (service: string) => boolean): string[] {
  const services: Record<string, { environment?: Record<string, unknown> }> = parse(text, { merge: true }).services;
  return Object.entries(services)
    .filter(([name]) => wanted(name))
    .flatMap(([, { environment = {} }]) => Object.keys(environment).filter((name) => environment[name] === null));
}

const example = read('.env.example');
const named = new Set([...example.matchAll(/^#?(\w+)=/gm)].map(([, name]) => name));
const missing = (names: readonly string[]) => [...new Set(names)].filter((name) => !named.has(name));

describe.each(FILES)('.env.example and %s', (file) => {
  const text = read(file);

  it('name the same variables that compose fills in', () => {
    expect(filledIn(text)).toContain('CPU_EVIDENCE');
    expect(missing(filledIn(text))).toEqual([]);
  });

  it('name the same variables of every service but the gateway', () => {
    expect(missing(passedOn(text, (service) => !GATEWAYS.includes(service)))).toEqual([]);
  });
});

it("refers to docs/configuration.md, which names every setting of the gateway's that .env.example leaves out", () => {
  expect(example).toContain('Every other setting of docs/configuration.md reaches the gateway');
  const settings = passedOn(read('compose.yaml'), (service) => GATEWAYS.includes(service));
  expect(settings).toContain('MAX_STREAMS');
  const documented = read('docs/configuration.md');
  expect(missing(settings).filter((name) => !documented.includes(`\`${name}\``))).toEqual([]);
});
