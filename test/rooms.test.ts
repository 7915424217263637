// The arrows between rooms (CONTRIBUTING.md), and that no file needs itself to be loaded.
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

/** From outside of itself, by room or by file. Tests, benchmarks and examples may import whatever they need. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  verify: ['proto'],
  sidecar: ['proto', 'verify'],
  gateway: ['proto', 'verify'],
  page: ['proto', 'verify'],
  demo: ['gateway/config.ts', 'gateway/node-flags.ts', 'sidecar/node-flags.ts'],
  scripts: ['proto', 'verify', 'sidecar', 'gateway', 'demo'],
};

interface Import {
  readonly from: string;
  readonly to: string;
  /** Gone when the file runs: `import type`, or names that are all types. */
  readonly typeOnly: boolean;
}

const STATEMENT = /^(?:import|export)\s+(?<type>type\s)?(?<names>[^;'"]*?)from\s+'(?<to>\.[^']+)'/gm;
const LAZY = /\bimport\('(?<to>\.[^']+)'\)/g;

const onlyTypes = (names: string): boolean =>
  /^\{[^{}]*\}\s*$/.test(names) && /\w/.test(names) && !/[{,]\s*(?!type\s)\w/.test(names);

function importsOf(from: string): Import[] {
  const text = readFileSync(from, 'utf8');
  const path = (to = '') => join(dirname(from), to);
  return [
    ...[...text.matchAll(STATEMENT)].map(({ groups }) => ({
      from,
      to: path(groups?.to),
      typeOnly: groups?.type !== undefined || onlyTypes(groups?.names ?? ''),
    })),
    ...[...text.matchAll(LAZY)].map(({ groups }) => ({ from, to: path(groups?.to), typeOnly: true })),
  ];
}

const roomOf = (file: string): string => file.split('/', 1)[0] ?? '';
const files = globSync(Object.keys(MAY_IMPORT).map((room) => `${room}/**/*.ts`));
const imports = files.flatMap(importsOf);

/** Files that lead back to `file` when they are loaded: the way there, or null. */
function cycleAt(file: string, way: readonly string[] = [], done = new Set<string>()): readonly string[] | null {
  if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
  if (done.has(file)) return null;
  for (const { from, to, typeOnly } of imports) {
    if (from !== file || typeOnly) continue;
    const cycle = cycleAt(to, [...way, file], done);
    if (cycle !== null) return cycle;
  }
  done.add(file);
  return null;
}

describe('the rooms', () => {
  it.each(Object.entries(MAY_IMPORT))('%s imports nothing of ours but %j', (room, allowed) => {
    const ours = imports.filter(({ from, to }) => roomOf(from) === room && roomOf(to) !== room);
    const wrong = ours.filter(({ to }) => !allowed.includes(roomOf(to)) && !allowed.includes(to));
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
    const used = allowed.filter((one) => ours.some(({ to }) => to === one || roomOf(to) === one));
    expect(used, 'arrows that nothing needs any more').toEqual(allowed);
  });

  it('keep the order inside the gateway: main, app, routes, the parts they use', () => {
    const parts =
      /^gateway\/(aside|batch|delivery|engine|keys|limits|recorder|sidecar|sse|problem|store|verifier|wire)\b/;
    const above = /^gateway\/(main|serve|build|app|routes)\b/;
    const wrong = imports.filter(({ from, to }) => parts.test(from) && above.test(to));
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it('load without a circle', () => {
    const done = new Set<string>();
    expect(files.map((file) => cycleAt(file, [], done)).find((cycle) => cycle !== null) ?? 'none').toBe('none');
  });

  it('read the environment only where a process begins', () => {
    const readers = files.filter((file) => /\bprocess\.env\b/.test(readFileSync(file, 'utf8')));
    expect(readers.filter((file) => !/\/(main|healthcheck|cli)\.ts$/.test(file))).toEqual([]);
  });
});
