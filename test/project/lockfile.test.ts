// A quiet `npm ci`: it warns of every package that does not accept the installing Node, and of every deprecated one.
import { readFileSync } from 'node:fs';
import semver from 'semver';
import { describe, expect, it } from 'vitest';

interface Locked {
  readonly version?: string;
  readonly engines?: { readonly node?: string };
  readonly deprecated?: string;
}

const read = (file: string) => JSON.parse(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8'));
/** Which Node may install: the one that runs the code comes with the package `node`. */
const installing: string = read('package.json').engines.node;
const packages = Object.entries(read('package-lock.json').packages as Record<string, Locked>);

describe('npm ci', () => {
  it.each(['20.19.0', '22.13.0', '24.21.0'])('is for Node %s', (version) => {
    expect(semver.satisfies(version, installing)).toBe(true);
  });

  it('finds no package that does not accept a Node of our engines', () => {
    const refused = packages
      .filter(([, { engines }]) => !semver.subset(installing, engines?.node ?? '*'))
      .map(([path, { version, engines }]) => `${path} ${version}: ${engines?.node}`);
    expect(refused).toEqual([]);
    expect(packages.length).toBeGreaterThan(100);
  });

  it('finds no deprecated package', () => {
    const deprecated = packages.filter(([, { deprecated }]) => deprecated !== undefined);
    expect(deprecated.map(([path, { deprecated }]) => `${path}: ${deprecated}`)).toEqual([]);
  });
});
