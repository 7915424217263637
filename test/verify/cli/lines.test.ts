// What the command prints, line by line, and its exit status: every run of lines.json, which Python's tests read too.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { styled } from '../../../verify/cli/report.ts';
import { SENTENCES, STEPS } from '../../../verify/cli/words.ts';
import { FAILURE_CODES } from '../../../verify/common/checks.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';

interface File {
  readonly text?: string;
  readonly base64?: string;
  readonly folder?: boolean;
  /** Of a file of zeros. */
  readonly size?: number;
}

interface Run {
  readonly args: readonly string[];
  readonly status: number;
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
}

const read = (name: string) => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));
const { sentences, steps, coloured, files, runs } = read('./lines.json');
const kinds = read('./kinds.json');
const MANY = fileURLToPath(new URL('./many.ts', import.meta.url));

let folder: Folder;
let ran: readonly { readonly status: number; readonly stdout: string; readonly stderr: string }[];

function put(name: string, { text, base64, folder: isFolder, size }: File): void {
  const path = join(folder.path, name);
  if (isFolder === true) return void mkdirSync(path);
  writeFileSync(path, base64 === undefined ? (text ?? '') : Buffer.from(base64, 'base64'));
  if (size !== undefined) truncateSync(path, size);
}

beforeAll(() => {
  folder = temporaryFolder();
  for (const [name, file] of Object.entries<File>(files)) put(name, file);
  for (const [name, text] of Object.entries<string>(kinds.parts)) put(name, { text });
  for (const [name, file] of Object.entries<File>(kinds.files)) put(name, file);
  const { stdout } = spawnSync(process.execPath, [MANY], {
    cwd: folder.path,
    input: JSON.stringify(runs.map(({ args }: Run) => args)),
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  ran = JSON.parse(stdout);
}, 120_000);
afterAll(() => folder.remove());

const lines = (text = ''): string[] => text.split('\n').slice(0, -1);

describe('countersign', () => {
  it.each((runs as Run[]).map((run, i) => [run.args.join(' '), run, i] as const))('%s', (_, run, i) => {
    const { status, stdout, stderr } = ran[i] ?? {};
    expect({ status, stdout: lines(stdout), stderr: lines(stderr) }).toEqual({
      status: run.status,
      stdout: run.stdout,
      stderr: run.stderr,
    });
  });

  it.each(Object.entries<string>(coloured))('colours %s', (line, expected) => {
    expect(styled(line)).toBe(expected);
  });
});

describe('the words', () => {
  it('are a sentence for every code, and the steps that are known', () => {
    expect(SENTENCES).toEqual(sentences);
    expect(STEPS).toEqual(steps);
    expect(new Set(Object.keys(sentences))).toEqual(new Set(FAILURE_CODES));
    for (const sentence of Object.values(sentences)) expect(sentence).toMatch(/^[A-Za-z][^.\n]{10,90}[a-zA-Z]$/);
  });
});
