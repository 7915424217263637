// The machine as the doctor sees it: every look at it goes through here, so that a test can be any machine.
import { constants } from 'node:fs';
import { access, lstat, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { EnvHttpProxyAgent } from 'undici';
import { RunError, runProgram } from '../program.ts';
import { type Answered, askSidecar } from './ask.ts';
import { type NvmlFacts, readNvml } from './nvml.ts';

export type Access = 'read_write' | 'write' | 'execute';

export interface Ran {
  readonly exit_code: number | null;
  readonly stdout: string;
}

export interface Host {
  readonly user: string;
  now(): Date;
  /** null: it is not there, or not to be read. */
  readText(path: string): Promise<string | null>;
  /** Names; empty where the folder is not there. */
  list(folder: string): Promise<readonly string[]>;
  kind(path: string): Promise<'folder' | 'socket' | 'device' | 'file' | null>;
  /** null: yes; otherwise why not: 'EACCES', 'ENOENT', 'EPERM'. */
  access(path: string, wanted: Access): Promise<string | null>;
  /** null: there is no such program, or it did not end in time. */
  run(program: string, args: readonly string[]): Promise<Ran | null>;
  fetch: typeof globalThis.fetch;
  /** @throws {Error} why NVML cannot be asked. */
  nvml(library: string): Promise<NvmlFacts>;
  /** @throws {Error} with the system's `code` where nobody listens. */
  askSidecar(socket_path: string, raw: string): Promise<Answered>;
}

const RUN_DEADLINE_MS = 10_000;
const MAX_OUTPUT_BYTES = 256 * 1024;
const MODES: Readonly<Record<Access, number>> = {
  read_write: constants.R_OK | constants.W_OK,
  write: constants.W_OK | constants.X_OK,
  execute: constants.X_OK,
};

/** @param environment what programs that are run may see. */
export function thisHost(environment: Readonly<Record<string, string>>): Host {
  return {
    user: userInfo().username,
    now: () => new Date(),
    readText: (path) => readFile(path, 'utf8').catch(() => null),
    list: (folder) => readdir(folder).catch(() => []),
    async kind(path) {
      const stat = await lstat(path).catch(() => null);
      if (stat === null) return null;
      if (stat.isDirectory()) return 'folder';
      if (stat.isSocket()) return 'socket';
      return stat.isCharacterDevice() ? 'device' : 'file';
    },
    access: (path, wanted) =>
      access(path, MODES[wanted]).then(
        () => null,
        (error: NodeJS.ErrnoException) => error.code ?? 'unknown',
      ),
    run: (program, args) => runHere(program, args, environment),
    fetch: fetchThrough(environment),
    nvml: readNvml,
    askSidecar,
  };
}

async function runHere(program: string, args: readonly string[], env: Readonly<Record<string, string>>) {
  const cwd = await mkdtemp(join(tmpdir(), 'countersign-doctor-'));
  const limits = { deadline_ms: RUN_DEADLINE_MS, max_output_bytes: MAX_OUTPUT_BYTES };
  try {
    return await runProgram(program, args, { cwd, env: { ...env, HOME: cwd, TMPDIR: cwd }, ...limits });
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}

/** By the proxy that NVIDIA's programs would take too; Node's own fetch takes none. */
function fetchThrough(environment: Readonly<Record<string, string>>): typeof globalThis.fetch {
  const httpProxy = environment.http_proxy;
  const httpsProxy = environment.https_proxy ?? environment.HTTPS_PROXY;
  const noProxy = environment.no_proxy ?? environment.NO_PROXY;
  if (httpProxy === undefined && httpsProxy === undefined) return globalThis.fetch;
  const dispatcher = new EnvHttpProxyAgent({
    ...(httpProxy === undefined ? {} : { httpProxy }),
    ...(httpsProxy === undefined ? {} : { httpsProxy }),
    ...(noProxy === undefined ? {} : { noProxy }),
  });
  // Node's types know only Node's own dispatcher, which this one is compatible with.
  return (input, init) => globalThis.fetch(input, Object.assign<RequestInit, object>({ ...init }, { dispatcher }));
}
