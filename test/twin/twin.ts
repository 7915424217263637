// The test bench: a machine with simulated GPUs and switches, as far as NVIDIA's own verifier can see, with its services.

import { loadConfig } from '../../sidecar/common/config.ts';
import type { ProgramEnvironment } from '../../sidecar/common/program.ts';
import { type Machine, type MachineOptions, startMachine } from './machine.ts';
import { sdkVenv, twinVenv } from './venv.ts';

export interface Twin extends Machine {
  /** With NVIDIA's verifier in it, trusting the twin's roots. */
  readonly venv: string;
  readonly environment: ProgramEnvironment;
}

/** @throws {MissingPart} without gcc, Python or PyPI. */
export async function startTwin(device_count = 1, options: MachineOptions = {}): Promise<Twin> {
  const base = sdkVenv();
  const machine = await startMachine(device_count, options);
  const { folder, roots, services } = machine;
  return {
    ...machine,
    venv: twinVenv(folder.path, base, roots),
    environment: loadConfig({
      PATH: process.env.PATH,
      LD_LIBRARY_PATH: folder.path,
      RIM_URL: services.rim_url,
      OCSP_URL: services.ocsp_url,
      NO_PROXY: '127.0.0.1',
      no_proxy: '127.0.0.1',
    }).worker_environment,
  };
}
