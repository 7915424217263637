// The service as three images of one layer: gateway, a sidecar over a simulated machine, and an engine that answers with a real model by
// llama.cpp. Images for confidential VMs hold no simulator: this one is the test's.
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CACHE, fetchModel } from '../../demo/fetch.ts';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { createSimulatedAttester } from '../../demo/twin/gpu.ts';
import { MissingPart } from '../support/debian.ts';
import { run } from './guest.ts';
import type { Registry } from './registry.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SOURCES = ['proto', 'node', 'verify', 'gateway', 'sealed', 'sidecar', 'demo', 'package.json'];
const KEPT = '/var/lib/countersign';
const COMPILED = 'NODE_COMPILE_CACHE=/app/.compiled';
export const API_KEY = 'countersign-demo-key';
/** As the engine calls the model that llama.cpp loads. */
export const MODEL = 'SmolLM2-135M-Instruct';

export interface Service {
  /** By service, by digest. */
  readonly images: Readonly<Record<'gateway' | 'sidecar' | 'backend', string>>;
  /** The simulated machine's roots, which a caller may trust as if they were the makers'. */
  readonly roots: { readonly device: string; readonly amd: string };
}

/** @throws {MissingPart} where llama.cpp's build cannot be fetched. */
export async function serviceImages(registry: Registry, folder: string): Promise<Service> {
  const at = (path: string) => join(folder, path);
  for (const path of ['app/node_modules', 'tmp', 'proc', 'sys', 'dev', 'etc', 'run', 'weights', 'bin', 'llama'])
    mkdirSync(at(path), { recursive: true });
  copyFileSync(process.execPath, at('bin/node'));
  run('strip', [at('bin/node')]);
  for (const [library] of run('ldd', [process.execPath]).matchAll(/\/[^ ]+/g)) {
    mkdirSync(dirname(at(library)), { recursive: true });
    copyFileSync(library, at(library));
  }
  for (const source of SOURCES) cpSync(join(ROOT, source), at(`app/${source}`), { recursive: true });
  for (const path of productionModules())
    cpSync(join(ROOT, path), at(`app/${path}`), { recursive: true, dereference: true });
  cpSync(await llamaModules(), at('llama/node_modules'), { recursive: true });
  rmSync(at('llama/node_modules/node-llama-cpp/llama/gitRelease.bundle'), { force: true });
  const script = [
    'process.argv.splice(2, 1, "/llama/node_modules/node-llama-cpp/dist/index.js", process.argv[2] + "/model.gguf");',
    'await import("/app/demo/engine/main.ts");',
  ];
  writeFileSync(at('app/backend.mjs'), script.join('\n'));
  writeFileSync(at('app/keys'), `${API_KEY}\n`);
  const node = ['/bin/node', '--disable-warning=ExperimentalWarning'];
  for (const script of ['gateway/main.ts', 'demo/twin/main.ts', 'demo/engine/main.ts'])
    compile(folder, [...node, `/app/${script}`]);
  const roots = await makeRoots(at(`${KEPT}/root`));
  const listen = (port: number) => ['HOST=0.0.0.0', `PORT=${port}`, COMPILED];
  const socket = 'SIDECAR_SOCKET=/run/countersign/sidecar.sock';
  const ofGateway = ['API_KEYS_FILE=/app/keys', 'ALLOW_SIMULATED=1', 'SIDECAR_UID=0', 'CANARY_INTERVAL_MS=0'];
  const twin = [...node, '/app/demo/twin/main.ts', '--root-dir', `${KEPT}/root`];
  return {
    images: {
      backend: registry.add('backend', folder, [...node, '/app/backend.mjs'], listen(8000)),
      sidecar: registry.add('sidecar', folder, twin, [socket, COMPILED]),
      gateway: registry.add(
        'gateway',
        folder,
        [...node, '/app/gateway/main.ts'],
        [...listen(8080), socket, ...ofGateway],
      ),
    },
    roots,
  };
}

/** What Node makes of the sources, made once, as the Dockerfile does: without it each process starts for minutes in such a guest. */
function compile(folder: string, command: readonly string[]): void {
  const env = { PATH: process.env.PATH, [COMPILED.split('=')[0] ?? '']: COMPILED.split('=')[1] };
  spawnSync('chroot', [folder, ...command], { env, timeout: 20_000, stdio: 'ignore' });
}

/** What `npm ci --omit=dev` installs. */
function productionModules(): string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean; optional?: boolean }>;
  };
  const isUsed = ([path, { dev, devOptional, optional }]: [string, (typeof packages)[string]]) =>
    path.startsWith('node_modules/') && !dev && !devOptional && !optional && existsSync(join(ROOT, path));
  return Object.entries(packages)
    .filter(isUsed)
    .map(([path]) => path);
}

/** The folder of node-llama-cpp and what it needs. */
async function llamaModules(): Promise<string> {
  try {
    const { library } = await fetchModel(CACHE, console.log, AbortSignal.timeout(300_000));
    return join(dirname(library), '../..');
  } catch (error) {
    throw new MissingPart(`llama.cpp's build: ${(error as Error).message}`);
  }
}

async function makeRoots(rootDir: string): Promise<Service['roots']> {
  mkdirSync(dirname(rootDir), { recursive: true });
  await createSimulatedAttester({ rootDir, collectionMs: 0, devices: 1 });
  await createSimulatedCpu({ type: 'SEV_SNP', rootDir });
  const [device = '', amd = ''] = readFileSync(join(rootDir, 'root.pem'), 'utf8').split(/(?<=END CERTIFICATE-----\n)/);
  return { device, amd };
}
