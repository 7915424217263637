// Mozilla's Oblivious HTTP and binary HTTP (crates `ohttp` and `bhttp`) as a program, built once into .cache/interop. It needs cargo.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LineProcess } from '../support/line-process.ts';

const SOURCE = fileURLToPath(new URL('ohttp', import.meta.url));
const CACHE = fileURLToPath(new URL('../../.cache/interop', import.meta.url));
const FILES = ['Cargo.toml', 'Cargo.lock', 'src/main.rs'];
const BUILD_TIMEOUT_MS = 1_200_000;

/** Why the crates cannot be had here; null: they can. */
export const missing: string | null = whatIsMissing();

function whatIsMissing(): string | null {
  const { error, status } = spawnSync('cargo', ['--version']);
  return error !== undefined || status !== 0 ? 'cargo is not installed' : null;
}

/** The crates that are tested, with their versions. */
export const CRATES = ['ohttp', 'bhttp'].map((name) => {
  const lock = readFileSync(join(SOURCE, 'Cargo.lock'), 'utf8');
  return `${name} ${new RegExp(`name = "${name}"\nversion = "(\\S+)"`).exec(lock)?.[1]}`;
});

/** Starts the program; the first time, after minutes of building it. @throws {Error} with what cargo said. */
export function startOhttp(): LineProcess {
  const digest = createHash('sha256');
  for (const file of FILES) digest.update(readFileSync(join(SOURCE, file)));
  const program = join(CACHE, `ohttp-${digest.digest('hex').slice(0, 16)}`);
  if (!existsSync(program)) build(program);
  return new LineProcess(program, []);
}

function build(program: string): void {
  mkdirSync(CACHE, { recursive: true });
  console.log(`building ${CRATES.join(' and ')}: some minutes, once`);
  const target = join(CACHE, 'target');
  const built = spawnSync('cargo', ['build', '--locked', '--target-dir', target], {
    cwd: SOURCE,
    encoding: 'utf8',
    timeout: BUILD_TIMEOUT_MS,
  });
  if (built.status !== 0) throw new Error(`cargo could not build test/interop/ohttp:\n${built.stderr}`);
  renameSync(join(target, 'debug', 'countersign-interop'), program);
  rmSync(target, { recursive: true });
}

export interface HttpMessage {
  readonly request?: readonly string[] | null;
  readonly status?: number | null;
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** In hex. */
  readonly content: string;
}

/** What came of a call. Bytes are in hex. */
export interface Outcome {
  readonly number: number;
  readonly bytes: string;
  readonly http: HttpMessage;
  readonly error?: string;
}
