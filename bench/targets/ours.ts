// Our gateway, one process, as an operator runs it: without tee, and with it over a simulated GPU.
import { join } from 'node:path';
import { freePort, startNode } from '../process.ts';
import { ready, type TargetKind, type Where } from './target.ts';

interface Variant {
  readonly sidecar: 'none' | 'simulated' | 'blank';
  readonly collection_ms?: number;
}

function gatewayKind(name: string, about: string, variant: Variant): TargetKind {
  const collection_ms = variant.collection_ms ?? 0;
  return {
    name,
    about,
    ...(collection_ms > 0 ? { max_rate: 1e3 / collection_ms } : {}),
    async start({ backendPort, folder }: Where) {
      const port = await freePort();
      const socket = join(folder, `sidecar-${port}.sock`);
      const tee = variant.sidecar !== 'none';
      const gateway = startNode('gateway/main.ts', {
        flags: profiling(name),
        env: {
          HOST: '127.0.0.1',
          PORT: String(port),
          BACKEND_URL: `http://127.0.0.1:${backendPort}/v1`,
          SIDECAR_SOCKET: socket,
          ALLOW_SIMULATED: '1',
          LOG_LEVEL: 'info',
        },
      });
      const aim = { port, headers: '', tee, exact: true };
      if (variant.sidecar === 'none') return ready(name, aim, { proxy: gateway });
      return ready(name, aim, {
        proxy: gateway,
        sidecar: startSidecar(variant.sidecar, socket, folder, collection_ms),
      });
    },
  };
}

/** `blank` is the real session and queue over an attester that signs nothing: what signing costs is the difference. */
export function startSidecar(kind: 'simulated' | 'blank', socket: string, folder: string, collection_ms = 0) {
  return startNode(kind === 'blank' ? 'bench/blank-sidecar.ts' : 'sidecar/main.ts', {
    flags: profiling(`sidecar ${kind}`),
    env: {
      SIDECAR_SOCKET: socket,
      ATTESTER: 'simulated',
      SIMULATED_COLLECTION_MS: String(collection_ms),
      SIMULATED_ROOT_DIR: join(folder, 'simulated-root'),
      LOG_LEVEL: 'info',
    },
  });
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

export const ours = gatewayKind('ours', 'the gateway, requests without tee', { sidecar: 'none' });
export const oursTee = gatewayKind('ours tee', 'every answer attested by the software twin, collection 0 ms', {
  sidecar: 'simulated',
});
export const oursTeeBlank = gatewayKind(
  'ours tee unsigned',
  'as tee, over a sidecar that signs nothing: what is ours of the cost, without the simulated GPU',
  { sidecar: 'blank' },
);
export const oursTee50 = gatewayKind('ours tee 50 ms', 'as tee, with a collection of 50 ms, one at a time', {
  sidecar: 'simulated',
  collection_ms: 50,
});
