// The test bench: a machine with simulated GPUs and switches, as far as NVIDIA's own verifier can see, with its services.

import { join } from 'node:path';
import { DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../sidecar/attesters/simulated/pki.ts';
import type { ProgramEnvironment } from '../../sidecar/common/program.ts';
import { loadConfig } from '../../sidecar/config.ts';
import { temporaryFolder } from '../support/harness.ts';
import { type Faults, noFaults } from './faults.ts';
import { buildLibrary, buildSwitchLibrary, SOCKET_FILE } from './library.ts';
import { H100, type Model, NVSWITCH } from './models.ts';
import { type NvmlServer, startNvmlServer } from './nvml-server.ts';
import { makeRimSigner, RIM_ROOT } from './rim-signer.ts';
import { type Services, startServices } from './services.ts';
import { sdkVenv, twinVenv } from './venv.ts';

export interface Twin {
  readonly faults: Faults;
  /** With NVIDIA's verifier in it, trusting the twin's roots. */
  readonly venv: string;
  readonly environment: ProgramEnvironment;
  readonly roots: { readonly device: string; readonly rim: string };
  readonly devices: readonly Device[];
  readonly nvml: NvmlServer;
  readonly services: Services;
  close(): Promise<void>;
}

export interface TwinOptions {
  /** Of every GPU; H100 by default. */
  readonly model?: Model;
  /** NVSwitches: with any, protected PCIe is on. */
  readonly switch_count?: number;
}

/** @throws {MissingPart} without gcc, Python or PyPI. */
export async function startTwin(device_count = 1, { model = H100, switch_count = 0 }: TwinOptions = {}): Promise<Twin> {
  const base = sdkVenv();
  const folder = temporaryFolder();
  buildLibrary(folder.path);
  if (switch_count > 0) buildSwitchLibrary(folder.path);
  const faults = { ...noFaults(), protected_pcie: switch_count > 0 };
  const root = makeRoot(DEVICE_ROOT);
  const gpu = makeIssuers(root, model.chip);
  const nvswitch = makeIssuers(root, NVSWITCH.chip);
  const devices = Array.from({ length: device_count }, () => makeDevice(gpu));
  const switches = Array.from({ length: switch_count }, () => makeDevice(nvswitch));
  const rim = makeRimSigner(makeRoot(RIM_ROOT));
  const roots = { device: root.certificate.pem, rim: rim.root.certificate.pem };
  const nvml = await startNvmlServer(join(folder.path, SOCKET_FILE), { devices, model, switches }, faults);
  const services = await startServices(
    { issuers: [gpu, nvswitch], devices: [...devices, ...switches], rim, models: [model, NVSWITCH] },
    faults,
  );
  return {
    faults,
    roots,
    devices,
    venv: twinVenv(folder.path, base, roots),
    environment: loadConfig({
      PATH: process.env.PATH,
      LD_LIBRARY_PATH: folder.path,
      RIM_URL: services.rim_url,
      OCSP_URL: services.ocsp_url,
      NO_PROXY: '127.0.0.1',
      no_proxy: '127.0.0.1',
    }).worker_environment,
    nvml,
    services,
    async close() {
      await services.close();
      await nvml.close();
      folder.remove();
    },
  };
}
