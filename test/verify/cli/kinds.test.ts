// Which command takes which kind of file, and which options each can answer: every pair of kinds.json, which Python's tests read too.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { COMMANDS } from '../../../verify/cli/table.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';

type Kind = 'attestation' | 'answer' | 'event' | 'stream' | 'evidence' | 'amd' | 'intel' | 'session';

/** `valid`, `incomplete`, `usage`, or the code of the check that fails. */
type Outcome = string;

interface Pairs {
  readonly at: string;
  /** The kinds that each command takes. */
  readonly commands: Readonly<Record<string, readonly Kind[]>>;
  /** Each with a value that no file meets, where it is a demand. */
  readonly options: Readonly<Record<string, { readonly value: string | null } & Readonly<Record<Kind, Outcome>>>>;
  readonly files: Readonly<Record<Kind, { readonly command: string; readonly text: string }>>;
  readonly parts: Readonly<Record<string, string>>;
}

const pairs: Pairs = JSON.parse(readFileSync(new URL('./kinds.json', import.meta.url), 'utf8'));
const { at, commands, options, files, parts } = pairs;
const KINDS = Object.keys(files) as Kind[];
const MANY = fileURLToPath(new URL('./many.ts', import.meta.url));
/** Of the commands that are no check. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  collateral: ['--into', 'into', '--rim-url', 'http://127.0.0.1:1', '--ocsp-url', 'http://127.0.0.1:1'],
  export: ['--cmw'],
  replay: ['--base-url', 'http://127.0.0.1:1', '--offline'],
};

/** The command of this kind as it passes. */
const good = (kind: Kind): string[] => [
  ...[files[kind].command, kind, '--allow-simulated', 'roots', '--at', at, '--without-revocation'],
  ...(files[kind].command === 'cpu' ? [] : ['--offline', '--without-reference-values']),
  ...(kind === 'event' ? ['--event'] : []),
];

function given(name: string): string[] {
  const value = options[name]?.value ?? null;
  return value === null ? [`--${name}`] : [`--${name}`, value];
}

interface Ran {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

let folder: Folder;
const results = new Map<string, Ran>();
const named = (args: readonly string[]): Ran => results.get(args.join(' ')) as Ran;

beforeAll(() => {
  folder = temporaryFolder();
  for (const name of ['rim', 'ocsp']) mkdirSync(join(folder.path, 'empty', name), { recursive: true });
  for (const [name, text] of Object.entries(parts)) writeFileSync(join(folder.path, name), text);
  for (const kind of KINDS) writeFileSync(join(folder.path, kind), files[kind].text);
  const lists = KINDS.flatMap((kind) => [
    ...Object.keys(options).map((name) => [...good(kind), ...given(name)]),
    ...Object.keys(commands).map((command) => [command, kind, ...(NEEDED[command] ?? [])]),
    good(kind),
  ]);
  const { stdout } = spawnSync(process.execPath, [MANY], {
    cwd: folder.path,
    input: JSON.stringify(lists),
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  for (const [i, ran] of (JSON.parse(stdout) as Ran[]).entries()) results.set(lists[i]?.join(' ') ?? '', ran);
}, 120_000);
afterAll(() => folder.remove());

function expectOutcome({ status, stdout, stderr }: Ran, outcome: Outcome, name: string): void {
  if (outcome === 'usage') {
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(new RegExp(`^countersign: [^\\n]*--${name}[ ,'][^\\n]*\\nsee --help\\n$`));
  } else if (outcome === 'valid') expect([status, stderr]).toEqual([0, '']);
  else if (outcome === 'incomplete') expect([status, stderr]).toEqual([3, '']);
  else {
    expect([status, stderr]).toEqual([1, '']);
    expect(/^INVALID: (\w+)/m.exec(stdout)?.[1]).toBe(outcome);
  }
}

describe.each(KINDS)('%s', (kind) => {
  it.each(Object.keys(options))('with --%s', (name) => {
    expectOutcome(named([...good(kind), ...given(name)]), options[name]?.[kind] as Outcome, name);
  });

  it('passes, in the words of its command', () => {
    const words = files[kind].command === 'verify' ? /\nVALID \(level: none\)\n$/ : /\nPASSED: .*about no answer.*\n$/;
    expect(named(good(kind))).toEqual({ status: 0, stderr: '', stdout: expect.stringMatching(words) });
  });

  it.each(Object.keys(commands))('is taken by %s, or its own command is named', (command) => {
    const { status, stdout, stderr } = named([command, kind, ...(NEEDED[command] ?? [])]);
    if (commands[command]?.includes(kind)) return expect(stderr).not.toContain('does not take');
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(
      new RegExp(`: ${command} does not take .*: countersign ${files[kind].command} FILE checks it\n`),
    );
  });
});

it('every option of the commands that check a file is among them', () => {
  const checking = COMMANDS.filter(({ name }) => ['verify', 'evidence', 'cpu', 'session'].includes(name));
  const names = checking.flatMap((command) => command.options.map(({ name }) => name));
  expect(new Set(Object.keys(options))).toEqual(new Set(names));
});
