// A gateway in this process, and beside it a sidecar as a process of its own, which a test starts, kills and starts again.
import { join } from 'node:path';
import { type Backend, startBackend } from './backend.ts';
import { ask } from './client.ts';
import { eventually, type Folder, type RunningGateway, startGateway, temporaryFolder } from './harness.ts';
import { type RunningProcess, startProcess } from './process.ts';

export interface Restartable {
  readonly folder: Folder;
  readonly socket: string;
  readonly backend: Backend;
  readonly gateway: RunningGateway;
  /** Starts the sidecar on the same socket and with the same root as before. `cpu`: its CPU_EVIDENCE. */
  startSidecar(cpu?: string): RunningProcess;
  /** Resolves when the gateway's health is `ok`. */
  healthy(): Promise<void>;
  close(): Promise<void>;
}

/** The gateway waits up to 10 s for a sidecar; none runs at first. */
export async function startRestartable(): Promise<Restartable> {
  const folder = temporaryFolder();
  const socket = join(folder.path, 'run', 'sidecar.sock');
  const backend = await startBackend();
  const gateway = await startGateway({
    BACKEND_URL: backend.url,
    SIDECAR_SOCKET: socket,
    limits: { sidecar_wait_ms: 10_000 },
  });
  let sidecar: RunningProcess | null = null;
  const isHealthy = async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json().status === 'ok';
  return {
    folder,
    socket,
    backend,
    gateway,
    startSidecar(cpu = 'off') {
      sidecar = startProcess('demo/twin/main.ts', ['--root-dir', join(folder.path, 'root'), '--collection-ms', '5'], {
        SIDECAR_SOCKET: socket,
        CPU_EVIDENCE: cpu,
      });
      return sidecar;
    },
    healthy: () => eventually(isHealthy, 15_000),
    async close() {
      await gateway.close();
      if (sidecar?.child.exitCode === null) await sidecar.kill('SIGKILL');
      await backend.close();
      folder.remove();
    },
  };
}
