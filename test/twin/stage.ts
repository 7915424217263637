// The whole service with NVIDIA's verifier in it: scripted backend, gateway, sidecar, nvtrust's workers, twin.

import { createNvtrustAttester, type NvtrustOptions } from '../../sidecar/attesters/nvtrust/nvtrust.ts';
import type { Attester } from '../../sidecar/common/attester.ts';
import { type Backend, startBackend } from '../support/backend.ts';
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';
import type { MachineOptions } from './machine.ts';
import { startTwin, type Twin } from './twin.ts';

export interface Stage {
  readonly twin: Twin;
  readonly backend: Backend;
  readonly sidecar: RunningSidecar;
  readonly gateway: RunningGateway;
  close(): Promise<void>;
}

/** The attester as in production; that its root is a test's, only a test can say. */
export async function startNvtrust(twin: Twin, options: Partial<NvtrustOptions> = {}): Promise<Attester> {
  const attester = await createNvtrustAttester({
    venv: twin.venv,
    environment: twin.environment,
    workers: 2,
    ...options,
  });
  return { ...attester, simulated: { root: twin.roots.device } };
}

export async function startStage(device_count = 1, machine: MachineOptions = {}): Promise<Stage> {
  const twin = await startTwin(device_count, machine);
  const folder = temporaryFolder();
  const backend = await startBackend();
  const sidecar = await startSidecar(folder, { attester: await startNvtrust(twin) });
  const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
  return {
    twin,
    backend,
    sidecar,
    gateway,
    async close() {
      await gateway.close();
      await sidecar.close();
      await backend.close();
      await twin.close();
      folder.remove();
    },
  };
}
