// Docker Compose at a pinned version, as the tests drive it: built once from its Go module into .cache/compose. Debian 12 carries only 1.29.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart, which } from './debian.ts';

// renovate: datasource=go depName=github.com/docker/compose/v2
const VERSION = 'v2.40.3';
const MODULE = 'github.com/docker/compose/v2';
const FOLDER = fileURLToPath(new URL(`../../.cache/compose/${VERSION}/`, import.meta.url));
const BUILD_TIMEOUT_MS = 1_800_000;
/** What Go says when there is no module proxy to be reached. */
const NOT_TO_BE_HAD = /dial tcp|no such host|i\/o timeout|connection refused|module lookup disabled|TLS handshake/;

/** The path of `docker-compose`, which is `docker compose` without the word `docker`. @throws {MissingPart} when it cannot be had here. */
export function composeProgram(): string {
  const program = join(FOLDER, 'docker-compose');
  if (existsSync(program)) return program;
  if (which('go') === null) throw new MissingPart(`Docker Compose ${VERSION}, and there is no Go to build it with`);
  console.log(`Building Docker Compose ${VERSION}: a few minutes, once`);
  mkdirSync(FOLDER, { recursive: true });
  const { Dir } = JSON.parse(go(['mod', 'download', '-json', `${MODULE}@${VERSION}`])) as { Dir: string };
  // Under its name only when it is whole: another run may look for it meanwhile.
  const part = `${program}.${process.pid}.part`;
  const flags = ['-trimpath', '-buildvcs=false', '-ldflags', `-s -w -X ${MODULE}/internal.Version=${VERSION}`];
  // Its go.mod excludes modules, so it builds as the main module alone.
  go(['build', ...flags, '-o', part, './cmd'], Dir);
  renameSync(part, program);
  return program;
}

function go(args: readonly string[], cwd = FOLDER): string {
  const env = { ...process.env, GOFLAGS: '', GOWORK: 'off' };
  const options = { env, cwd, encoding: 'utf8', timeout: BUILD_TIMEOUT_MS } as const;
  const { status, stdout, stderr, error } = spawnSync('go', args, options);
  if (error !== undefined) throw error;
  if (status === 0) return stdout;
  const said = `${stdout}\n${stderr}`;
  if (NOT_TO_BE_HAD.test(said)) throw new MissingPart(`Docker Compose ${VERSION}: Go cannot fetch its modules`);
  throw new Error(`go ${args[0]} ended with ${status}: ${said.slice(-2000)}`);
}
