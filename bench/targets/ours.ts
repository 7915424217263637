// Our gateway, as an operator runs it: without tee, with it over a simulated GPU, in one process and in several.
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { NODE_FLAGS as GATEWAY_FLAGS } from '../../gateway/base/config.ts';
import { sleep } from '../system/clock.ts';
import { tree } from '../system/proc.ts';
import { freePort, pidOf, type StartOptions, startNode, stop } from '../system/process.ts';
import { ready, type TargetKind, Unavailable, type Where } from './target.ts';

/** `blank` is the real session, queue and check over an attester that signs nothing; `unchecked` does not check either. */
type SidecarKind = 'simulated' | 'blank' | 'unchecked';

interface Variant {
  readonly sidecar: 'none' | SidecarKind;
  readonly collection_ms?: number;
  readonly workers?: number;
  /** A simulated processor signs as well, and takes a second for it. */
  readonly cpu?: 'SEV_SNP' | 'TDX';
}

const CPU_MS = 1_000;
const WORKERS_MS = 5_000;

function gatewayKind(name: string, about: string, variant: Variant): TargetKind {
  const { sidecar, collection_ms = 0, workers = 1, cpu } = variant;
  const env = cpu && { CPU_EVIDENCE: 'required', SIMULATED_CPU: cpu, SIMULATED_CPU_MS: String(CPU_MS) };
  return {
    name,
    about,
    processes: workers,
    ...(collection_ms > 0 ? { max_rate: 1e3 / collection_ms } : {}),
    ...(sidecar === 'blank' || sidecar === 'unchecked' || cpu !== undefined || workers > 1
      ? { figures: ['whole-1k'] }
      : {}),
    async start({ backendPort, folder }: Where) {
      const port = await freePort();
      const socket = join(folder, `sidecar-${port}.sock`);
      const gateway = startGateway(name, { port, backendPort, socket, workers });
      const aim = { port, headers: '', tee: sidecar !== 'none', exact: true };
      const target = await ready(name, aim, {
        proxy: gateway,
        ...(sidecar === 'none'
          ? {}
          : { sidecar: startSidecar(sidecar, socket, folder, collection_ms, env && { env }) }),
      });
      if (workers === 1) return target;
      const found = await countWorkers(pidOf(gateway), workers);
      if (found >= workers) return target;
      await stop(gateway);
      throw new Unavailable(`WORKERS=${workers} is NOT BUILT in this gateway: it runs ${found} worker processes`);
    },
  };
}

export interface GatewayStart {
  readonly port: number;
  readonly backendPort: number;
  readonly socket: string;
  readonly workers?: number;
}

export function startGateway(
  name: string,
  { port, backendPort, socket, workers = 1 }: GatewayStart,
  more: Pick<StartOptions, 'env'> & { readonly flags?: readonly string[] } = {},
) {
  return startNode('gateway/main.ts', {
    flags: [...GATEWAY_FLAGS, ...profiling(name), ...(more.flags ?? [])],
    env: {
      HOST: '127.0.0.1',
      PORT: String(port),
      BACKEND_URL: `http://127.0.0.1:${backendPort}/v1`,
      SIDECAR_SOCKET: socket,
      ALLOW_SIMULATED: '1',
      LOG_LEVEL: 'info',
      CANARY_INTERVAL_MS: '0',
      // More than there are at once by default.
      MAX_STREAMS: '8192',
      ...(workers === 1 ? {} : { WORKERS: String(workers) }),
      ...more.env,
    },
  });
}

export function startSidecar(
  kind: SidecarKind,
  socket: string,
  folder: string,
  collection_ms = 0,
  more: Pick<StartOptions, 'env'> & { readonly flags?: readonly string[] } = {},
) {
  return startNode(kind === 'simulated' ? 'sidecar/main.ts' : 'bench/programs/blank-sidecar.ts', {
    flags: [...profiling(`sidecar ${kind}`), ...(more.flags ?? [])],
    env: {
      SIDECAR_SOCKET: socket,
      ATTESTER: 'simulated',
      SIMULATED_COLLECTION_MS: String(collection_ms),
      SIMULATED_ROOT_DIR: join(folder, 'simulated-root'),
      LOG_LEVEL: 'info',
      CANARY_INTERVAL_MS: '0',
      ...(kind === 'unchecked' ? { BENCH_CHECK: '0' } : {}),
      ...more.env,
    },
  });
}

/** Processes under the gateway's first one, once there are as many as were asked for or the time is over. */
async function countWorkers(pid: number, wanted: number): Promise<number> {
  const count = () => tree(pid).length - 1;
  for (const end = performance.now() + WORKERS_MS; count() < wanted && performance.now() < end; ) await sleep(50);
  return count();
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

export const ours = gatewayKind('ours', 'the gateway in one process, requests without tee, its log on', {
  sidecar: 'none',
});
export const oursTwoWorkers = gatewayKind('ours 2 workers', 'the same with WORKERS=2', { sidecar: 'none', workers: 2 });
const everyCore = gatewayKind('ours every core', 'the same with one worker for each core', {
  sidecar: 'none',
  workers: availableParallelism(),
});
export const oursEveryCore: TargetKind = {
  ...everyCore,
  async start(where) {
    if (availableParallelism() > 2) return everyCore.start(where);
    throw new Unavailable(`this machine has ${availableParallelism()} cores: "ours 2 workers" is one for each`);
  },
};
export const oursTee = gatewayKind('ours tee', 'every answer attested by the software twin, collection 0 ms', {
  sidecar: 'simulated',
});
export const oursTeeUnsigned = gatewayKind(
  'ours tee unsigned',
  'as tee, but signed at the cost of a hash: the cost of tee without a signature in software, both checks included',
  { sidecar: 'blank' },
);
export const oursTeeUnchecked = gatewayKind(
  'ours tee unchecked',
  'as unsigned, and the sidecar does not check: what is left of tee with the check of the gateway alone. Not how it is run',
  { sidecar: 'unchecked' },
);
export const oursTeeSnp = gatewayKind('ours tee snp', 'as tee, in a session with a simulated SEV-SNP that takes 1 s', {
  sidecar: 'simulated',
  cpu: 'SEV_SNP',
});
export const oursTeeTdx = gatewayKind('ours tee tdx', 'as tee, in a session with a simulated TDX that takes 1 s', {
  sidecar: 'simulated',
  cpu: 'TDX',
});
export const oursTee50 = gatewayKind('ours tee 50 ms', 'as tee, with a collection of 50 ms, one at a time', {
  sidecar: 'simulated',
  collection_ms: 50,
});
