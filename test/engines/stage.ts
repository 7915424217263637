// The whole service over a real engine: llama-server, a sidecar with the simulated GPU, and the gateway between them.
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';
import { type LlamaServer, startLlamaServer } from './llama-server.ts';

export interface Stage {
  readonly engine: LlamaServer;
  readonly sidecar: RunningSidecar;
  readonly gateway: RunningGateway;
  close(): Promise<void>;
}

export async function startStage(): Promise<Stage> {
  const folder = temporaryFolder();
  const engine = await startLlamaServer(folder);
  const sidecar = await startSidecar(folder);
  const gateway = await startGateway({ BACKEND_URL: engine.url, SIDECAR_SOCKET: sidecar.socket });
  return {
    engine,
    sidecar,
    gateway,
    async close() {
      await gateway.close();
      await sidecar.close();
      await engine.close();
      folder.remove();
    },
  };
}
