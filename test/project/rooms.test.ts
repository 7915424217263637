// The arrows between rooms (CONTRIBUTING.md), and that no file leads back to itself.
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

/** From outside of itself, by room or by file. Tests, benchmarks and examples may import whatever they need. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  node: ['proto'],
  verify: ['proto', 'sealed'],
  sealed: [],
  sidecar: ['proto', 'node', 'verify/index.ts', 'verify/service.ts', 'verify/cpu/index.ts'],
  gateway: ['proto', 'node', 'sealed', 'verify/index.ts', 'verify/service.ts', 'verify/cpu/index.ts'],
  page: ['proto', 'verify'],
  demo: ['gateway/base/config.ts', 'gateway/node-flags.ts', 'sidecar/config.ts'],
  scripts: ['proto', 'verify', 'sidecar', 'gateway', 'demo', 'test/twin', 'test/support'],
};

interface Import {
  readonly from: string;
  readonly to: string;
}

const STATEMENT = /^(?:import|export)\s[^;'"]*?from\s+'(?<to>\.[^']+)'/gm;
const LAZY = /\bimport\('(?<to>\.[^']+)'\)/g;

function importsOf(from: string): Import[] {
  const text = readFileSync(from, 'utf8');
  const found = [...text.matchAll(STATEMENT), ...text.matchAll(LAZY)];
  return found.map(({ groups }) => ({ from, to: join(dirname(from), groups?.to ?? '') }));
}

const isWithin = (file: string, place: string): boolean => file === place || file.startsWith(`${place}/`);
const roomOf = (file: string): string => file.split('/', 1)[0] ?? '';
const files = globSync(Object.keys(MAY_IMPORT).map((room) => `${room}/**/*.ts`));
const imports = files.flatMap(importsOf);

/** Files that lead back to `file` by their imports, those of types included: the way there, or null. */
function cycleAt(file: string, way: readonly string[] = [], done = new Set<string>()): readonly string[] | null {
  if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
  if (done.has(file)) return null;
  for (const { from, to } of imports) {
    if (from !== file) continue;
    const cycle = cycleAt(to, [...way, file], done);
    if (cycle !== null) return cycle;
  }
  done.add(file);
  return null;
}

describe('the rooms', () => {
  it.each(Object.entries(MAY_IMPORT))('%s imports nothing of ours but %j', (room, allowed) => {
    const ours = imports.filter(({ from, to }) => roomOf(from) === room && roomOf(to) !== room);
    const wrong = ours.filter(({ to }) => !allowed.some((one) => isWithin(to, one)));
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
    const used = allowed.filter((one) => ours.some(({ to }) => isWithin(to, one)));
    expect(used, 'arrows that nothing needs any more').toEqual(allowed);
  });

  it('keep the order inside the gateway: main, app, routes, the parts they use', () => {
    const parts =
      /^gateway\/(attestation|backend|base|exchange|http|keys|limits|offload|sealing|telemetry|usage|verifier)\//;
    const above = /^gateway\/(main|app|routes)\b/;
    const wrong = imports.filter(({ from, to }) => parts.test(from) && above.test(to));
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it('keep the order inside the sidecar: main and doctor, server, signing, cpu, attesters, driver, common', () => {
    const order = [
      'main',
      'healthcheck',
      'doctor',
      'server',
      'signing',
      'cpu',
      'attesters',
      'driver',
      'config',
      'common',
    ];
    const rankOf = (file: string) => order.indexOf(/^sidecar\/(\w+)/.exec(file)?.[1] ?? '');
    const inside = imports.filter(({ from, to }) => roomOf(from) === 'sidecar' && roomOf(to) === 'sidecar');
    const upwards = inside.filter(({ from, to }) => rankOf(from) > rankOf(to) || rankOf(to) < 0);
    expect(upwards.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it.each(['proto', 'verify', 'sealed', 'sidecar', 'gateway', 'page'])('%s has no circle of imports', (room) => {
    const done = new Set<string>();
    const ofRoom = files.filter((file) => roomOf(file) === room);
    expect(ofRoom.map((file) => cycleAt(file, [], done)).find((cycle) => cycle !== null) ?? 'none').toBe('none');
  });

  it('proto imports no package of Node', () => {
    const ofProto = files.filter((file) => roomOf(file) === 'proto');
    const withNode = ofProto.filter((file) => /from '(?:node:[\w/]+|ws)';/.test(readFileSync(file, 'utf8')));
    expect(withNode).toEqual([]);
  });

  it('read the environment only where a process begins', () => {
    const readers = files.filter((file) => /\bprocess\.env\b/.test(readFileSync(file, 'utf8')));
    expect(readers.filter((file) => !/\/(main|healthcheck|cli)\.ts$/.test(file))).toEqual([]);
  });
});
