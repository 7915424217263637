// The arrows between rooms (CONTRIBUTING.md), and that no file or folder leads back to itself.
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

/** From outside of itself, by room or by file. Tests, benchmarks and examples may import whatever they need. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  node: ['proto'],
  verify: ['proto', 'sealed'],
  sealed: [],
  auditor: ['proto', 'verify'],
  // Never the simulators: the images for production do not hold them.
  sidecar: ['proto', 'node', 'verify/index.ts', 'verify/service.ts', 'verify/cpu.ts'],
  gateway: ['proto', 'node', 'sealed', 'verify/index.ts', 'verify/service.ts', 'verify/cpu.ts'],
  page: ['proto', 'verify'],
  demo: [
    'gateway/base/config.ts',
    'sidecar/common/config.ts',
    'proto',
    'node/settings.ts',
    'verify/cpu.ts',
    'sidecar/run.ts',
    'sidecar/common/attester.ts',
    'sidecar/cpu/cpu-collector.ts',
  ],
  scripts: [
    'proto',
    'verify',
    'auditor',
    'sidecar',
    'gateway',
    'demo',
    'test/twin',
    'test/support',
    'vitest.config.ts',
  ],
};

interface Import {
  readonly from: string;
  readonly to: string;
}

const STATEMENT = /^(?:import|export)\s[^;'"]*?from\s+'(?<to>\.[^']+)'/gm;
const LAZY = /\bimport\('(?<to>\.[^']+)'\)/g;

function importsOf(from: string): Import[] {
  const text = readFileSync(from, 'utf8');
  return [...text.matchAll(STATEMENT), ...text.matchAll(LAZY)].map(({ groups }) => ({
    from,
    to: join(dirname(from), groups?.to ?? ''),
  }));
}

const isWithin = (file: string, place: string): boolean => file === place || file.startsWith(`${place}/`);
const roomOf = (file: string): string => file.split('/', 1)[0] ?? '';
const files = globSync(Object.keys(MAY_IMPORT).map((room) => `${room}/**/*.ts`));
const imports = files.flatMap(importsOf);

/** The first way from a file (or a folder) back to itself along `edges`, those of types included; `none` without one. */
function firstCycle(edges: readonly Import[]): string {
  const done = new Set<string>();
  const cycleAt = (place: string, way: readonly string[]): string | null => {
    if (way.includes(place)) return [...way.slice(way.indexOf(place)), place].join(' -> ');
    if (done.has(place)) return null;
    for (const { from, to } of edges) {
      const cycle = from === place ? cycleAt(to, [...way, place]) : null;
      if (cycle !== null) return cycle;
    }
    done.add(place);
    return null;
  };
  for (const { from } of edges) {
    const cycle = cycleAt(from, []);
    if (cycle !== null) return cycle;
  }
  return 'none';
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
      /^gateway\/(attestation|backend|base|exchange|http|keys|limits|threads|sealing|telemetry|usage|verifier)\//;
    const above = /^gateway\/(main|app|routes)\b/;
    const wrong = imports.filter(({ from, to }) => parts.test(from) && above.test(to));
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it('keep the order inside the sidecar: main and doctor, run, choose, server, signing, cpu, attesters, driver, common', () => {
    const order = [
      'main',
      'healthcheck',
      'doctor',
      'run',
      'choose',
      'server',
      'signing',
      'cpu',
      'attesters',
      'driver',
      'common',
    ];
    const rankOf = (file: string) => order.indexOf(/^sidecar\/(\w+)/.exec(file)?.[1] ?? '');
    const inside = imports.filter(({ from, to }) => roomOf(from) === 'sidecar' && roomOf(to) === 'sidecar');
    const upwards = inside.filter(({ from, to }) => rankOf(from) > rankOf(to) || rankOf(to) < 0);
    expect(upwards.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it.each(['proto', 'verify', 'auditor', 'sealed', 'sidecar', 'gateway', 'page'])(
    '%s has no circle of imports',
    (room) => {
      expect(firstCycle(imports.filter(({ from }) => roomOf(from) === room))).toBe('none');
    },
  );

  it.each(['proto', 'verify', 'auditor', 'sealed', 'sidecar', 'gateway', 'page', 'demo'])(
    '%s has no circle among folders, types included',
    (room) => {
      const within = imports.filter(({ from, to }) => roomOf(from) === room && roomOf(to) === room);
      const folders = within.map(({ from, to }) => ({ from: dirname(from), to: dirname(to) }));
      expect(firstCycle(folders.filter(({ from, to }) => from !== to))).toBe('none');
    },
  );

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
