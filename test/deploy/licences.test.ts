import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { bundlePage } from '../../gateway/routes/page.ts';
import { debianPackages, document, FILE, npmPackages, pagePackages, pythonPackages } from '../../scripts/licences.ts';

/** All may be handed on in an image beside Apache-2.0. MPL-2.0 asks for the sources of its own files alone, which are there as they are. */
const ALLOWED = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'MIT-0',
  'MPL-2.0',
]);

const allowed = (licence: string | null) =>
  licence?.split(/ (?:AND|OR) /).every((one) => ALLOWED.has(one.replace(/[()]/g, ''))) ?? false;

describe('the licences of what the images carry', () => {
  it('are known, and let us hand the packages on', () => {
    const packages = [...npmPackages(), ...pagePackages(), ...pythonPackages()];
    expect(packages.length).toBeGreaterThan(30);
    expect(packages.filter(({ licence }) => !allowed(licence))).toEqual([]);
  });

  it('are listed in THIRD-PARTY.md as they are installed (npm run make licences writes it)', () => {
    expect(readFileSync(new URL(`../../${FILE}`, import.meta.url), 'utf8')).toBe(document());
  });

  it('leave out what only development uses', () => {
    const names = npmPackages().map(({ name }) => name);
    expect(names).toContain('hono');
    expect(names).not.toContain('vitest');
  });

  it('stand in the page for each package in its bundle, with the words that its licence asks for', async () => {
    const bundle = (await bundlePage()).map(({ body }) => new TextDecoder().decode(body)).join('\n');
    const named = [...bundle.matchAll(/^ {2}\(\*! (\S+ \S+)$/gm)].map(([, one]) => one);
    expect(named.sort()).toEqual(pagePackages().map(({ name, version }) => `${name} ${version}`));
    expect(bundle).toContain('Copyright (c) 2018+, MarkedJS');
    expect(bundle.split('Permission is hereby granted, free of charge').length - 1).toBe(pagePackages().length);
  });

  it('include what the sidecar has from Debian', () => {
    expect(debianPackages()).toEqual(expect.arrayContaining(['python3-minimal', 'ca-certificates']));
    expect(document()).toContain('`python3-minimal`');
  });

  it('are refused where they are unknown or not in the list', () => {
    expect(allowed(null)).toBe(false);
    expect(allowed('GPL-3.0-only')).toBe(false);
    expect(allowed('MIT AND GPL-3.0-only')).toBe(false);
    expect(allowed('(MIT OR Apache-2.0)')).toBe(true);
  });
});
