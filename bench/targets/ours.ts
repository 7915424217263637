// Our gateway, as an operator runs it: without tee, and with it over a simulated GPU. Of this checkout, or of an earlier one.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, ROOT, type StartOptions, start, startNode } from '../system/process.ts';
import { ready, type TargetKind, type Where } from './target.ts';

/** `quick` is the real session, queue and check over a device that signs at the cost of a hash. */
type SidecarKind = 'simulated' | 'quick';

/** How a gateway or a sidecar is started, beside what it always is. */
interface More extends Pick<StartOptions, 'env'> {
  /** The checkout whose files, packages and flags of Node it has; by default this one. */
  readonly root?: string;
  /** Of a simulated machine. */
  readonly gpus?: number;
}

export interface GatewayStart {
  readonly port: number;
  readonly backendPort: number;
  readonly socket: string;
}

export const oursKinds = (root: string): TargetKind[] => [
  gatewayKind('ours', root, null, 'the gateway in one process, requests without tee, its log on'),
  gatewayKind('ours tee unsigned', root, 'quick', 'as tee, but signed at the cost of a hash, both checks included'),
  gatewayKind('ours tee', root, 'simulated', 'every answer attested by the software twin, collection 0 ms'),
];

/** The same of another checkout, with its own sidecar. */
export function beforeKinds(root: string): TargetKind[] {
  const { status, stdout } = spawnSync('git', ['rev-parse', '--short=8', 'HEAD'], { cwd: root, encoding: 'utf8' });
  const commit = status === 0 ? stdout.trim() : 'another checkout';
  const about = (name: string) => `"ours${name}" of ${commit}`;
  return [
    gatewayKind('before', root, null, about('')),
    gatewayKind('before tee unsigned', root, 'quick', about(' tee unsigned')),
    gatewayKind('before tee', root, 'simulated', about(' tee')),
  ];
}

function gatewayKind(name: string, root: string, sidecar: SidecarKind | null, about: string): TargetKind {
  return {
    name,
    about,
    // What the signature costs in software is in the first figure; an open stream takes the same memory with both.
    without: sidecar === 'simulated' ? ['whole-16k', 'whole-128k'] : sidecar === 'quick' ? ['memory'] : [],
    async start({ backendPort, folder }: Where) {
      const port = await freePort();
      const socket = join(folder, `sidecar-${port}.sock`);
      const proxy = startGateway(name, { port, backendPort, socket }, { root });
      const aim = { port, headers: '', tee: sidecar !== null, exact: true };
      if (sidecar === null) return ready(name, aim, { proxy });
      return ready(name, aim, { proxy, sidecar: startSidecar(sidecar, socket, 0, { root }) });
    },
  };
}

export function startGateway(name: string, { port, backendPort, socket }: GatewayStart, more: More = {}) {
  const { root = ROOT } = more;
  return startNode('gateway/main.ts', {
    cwd: root,
    flags: [...flagsOf(root, 'gateway'), ...profiling(name)],
    env: {
      HOST: '127.0.0.1',
      PORT: String(port),
      BACKEND_URL: `http://127.0.0.1:${backendPort}/v1`,
      SIDECAR_SOCKET: socket,
      ALLOW_SIMULATED: '1',
      LOG_LEVEL: 'info',
      CANARY_INTERVAL_MS: '0',
      // More streams than there are at once by default.
      ...(isEarlier(root) ? { MAX_STREAMS: '8192' } : { MAX_CONCURRENT_REQUESTS: '16384' }),
      ...more.env,
    },
  });
}

export function startSidecar(kind: SidecarKind, socket: string, collection_ms = 0, more: More = {}) {
  const { root = ROOT, gpus = 1 } = more;
  const root_dir = `${socket}.root`;
  const earlier = isEarlier(root);
  const simulated = earlier
    ? { SIMULATED_COLLECTION_MS: String(collection_ms), SIMULATED_ROOT_DIR: root_dir, SIMULATED_GPUS: String(gpus) }
    : {};
  const options = ['--root-dir', root_dir, '--collection-ms', String(collection_ms), '--gpus', String(gpus)];
  const script =
    kind === 'quick'
      ? ['bench/programs/blank-sidecar.ts', root_dir]
      : earlier
        ? ['sidecar/main.ts']
        : ['demo/twin/main.ts', ...options];
  return start([process.execPath, ...flagsOf(root, 'sidecar'), ...profiling(`sidecar ${kind}`), ...script], {
    cwd: root,
    env: {
      SIDECAR_SOCKET: socket,
      ATTESTER: 'simulated',
      ...simulated,
      LOG_LEVEL: 'info',
      CANARY_INTERVAL_MS: '0',
      ...more.env,
    },
  });
}

/** A checkout from before the simulated machine had options. */
const isEarlier = (root: string): boolean => !existsSync(join(root, 'demo/twin/options.ts'));

/** The flags of Node in the npm script that starts it. */
function flagsOf(root: string, script: 'gateway' | 'sidecar'): string[] {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return (scripts[script] as string).split(' ').filter((word) => word.startsWith('--'));
}

/** BENCH_PROFILE names a folder for CPU profiles of our processes. A run with it is slower: its figures are not to be kept. */
function profiling(name: string): string[] {
  const folder = process.env.BENCH_PROFILE;
  if (folder === undefined) return [];
  return [
    '--cpu-prof',
    `--cpu-prof-dir=${folder}`,
    `--cpu-prof-name=${name.replaceAll(/\W+/g, '-')}-${Date.now()}.cpuprofile`,
  ];
}
