// openai-python's own API tests: from its source distribution, run by pytest in an environment of their own.
import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeVenv } from '../support/venv.ts';
import type { Route } from './backend.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const REQUIREMENTS = join(HERE, 'requirements.txt');
const ROOM = 'sdk-venv';
const FETCH_TIMEOUT_MS = 120_000;
const RUN_TIMEOUT_MS = 840_000;

export const OPENAI = /^openai==(\S+)$/m.exec(readFileSync(REQUIREMENTS, 'utf8'))?.[1] ?? '';

/** What became of a test: passed, failed or skipped, and its error's first words. */
export type Outcome = readonly [outcome: string, error: string];

export interface ApiTests {
  readonly routes: readonly Route[];
  /** Outcomes by the test's name. `headers` are the client's own, on every request. */
  run(name: string, baseUrl: string, headers?: Readonly<Record<string, string>>): Promise<Map<string, Outcome>>;
}

/** null where PyPI cannot be reached. @throws {Error} for everything else. */
export function apiTests(): ApiTests | null {
  const python = makeVenv(REQUIREMENTS, ROOM);
  if (python === null) return null;
  const source = sourceOf(python);
  const routes = JSON.parse(must(spawnSync(python, [join(HERE, 'routes.py')], { encoding: 'utf8' })).stdout);
  return {
    routes,
    async run(name, baseUrl, headers = {}) {
      const file = join(source, `outcomes-${name}-${process.pid}.json`);
      const options = ['-o', 'addopts=', '-p', 'plugin', '-p', 'no:cacheprovider', '-q', '--no-header', '--tb=line'];
      // Beside this process, which is the gateway and the backend.
      const child = spawn(python, ['-m', 'pytest', 'tests/api_resources', ...options], {
        cwd: source,
        env: {
          PATH: process.env.PATH,
          PYTHONPATH: HERE,
          PYTHONDONTWRITEBYTECODE: '1',
          TEST_API_BASE_URL: baseUrl,
          HEADERS: JSON.stringify(headers),
          OUTCOMES: file,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
        timeout: RUN_TIMEOUT_MS,
      });
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (data) => {
          output = (output + data).slice(-4_000);
        });
      await new Promise((resolve) => child.once('close', resolve));
      if (!existsSync(file)) throw new Error(`pytest ended without outcomes:\n${output}`);
      const outcomes = Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, Outcome>);
      rmSync(file);
      return new Map(outcomes);
    },
  };
}

/** The folder with its `tests`, fetched once and kept beside the environment. */
function sourceOf(python: string): string {
  const room = join(python, '../..');
  const folder = join(room, `openai-${OPENAI}`);
  if (existsSync(folder)) return folder;
  const fresh = join(room, `source.${process.pid}`);
  mkdirSync(fresh, { recursive: true });
  const pip = ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', '--no-binary', 'openai'];
  const options = { encoding: 'utf8', timeout: FETCH_TIMEOUT_MS } as const;
  must(spawnSync(python, [...pip, `openai==${OPENAI}`, '-d', fresh], options));
  must(spawnSync('tar', ['xzf', join(fresh, `openai-${OPENAI}.tar.gz`), '-C', fresh, '--no-same-owner'], options));
  // Without `src`: what is tested is what is installed.
  rmSync(join(fresh, `openai-${OPENAI}`, 'src'), { recursive: true });
  if (!existsSync(folder)) renameSync(join(fresh, `openai-${OPENAI}`), folder);
  rmSync(fresh, { recursive: true });
  return folder;
}

function must<T extends SpawnSyncReturns<string>>(ran: T): T {
  if (ran.status !== 0) throw new Error(`${ran.stderr}`, { cause: ran.error });
  return ran;
}
