// A machine with simulated GPUs and switches behind the stand-in for its driver, and the services that vouch for them.
import { join } from 'node:path';
import { DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../demo/twin/pki.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { type Faults, noFaults } from './faults.ts';
import { buildLibrary, buildSwitchLibrary, SOCKET_FILE } from './library.ts';
import { H100, type Model, NVSWITCH } from './models.ts';
import { type NvmlServer, startNvmlServer } from './nvml-server.ts';
import { makeRimSigner, RIM_ROOT, type RimSigner } from './rim-signer.ts';
import { type Services, startServices } from './services.ts';

export interface Machine {
  readonly faults: Faults;
  /** With the driver's libraries in it. */
  readonly folder: Folder;
  readonly devices: readonly Device[];
  readonly nvml: NvmlServer;
  readonly services: Services;
  readonly rim: RimSigner;
  readonly roots: { readonly device: string; readonly rim: string };
  close(): Promise<void>;
}

export interface MachineOptions {
  /** Of every GPU; H100 by default. */
  readonly model?: Model;
  /** NVSwitches: with any, protected PCIe is on. */
  readonly switch_count?: number;
  /** false leaves the library of the switches' driver out. */
  readonly switch_library?: boolean;
}

export async function startMachine(
  device_count = 1,
  { model = H100, switch_count = 0, switch_library = true }: MachineOptions = {},
): Promise<Machine> {
  const folder = temporaryFolder();
  buildLibrary(folder.path);
  if (switch_count > 0 && switch_library) buildSwitchLibrary(folder.path);
  const faults = { ...noFaults(), protected_pcie: switch_count > 0 };
  const root = makeRoot(DEVICE_ROOT);
  const gpu = makeIssuers(root, model.chip);
  const nvswitch = makeIssuers(root, NVSWITCH.chip);
  const devices = Array.from({ length: device_count }, () => makeDevice(gpu));
  const switches = Array.from({ length: switch_count }, () => makeDevice(nvswitch));
  const rim = makeRimSigner(makeRoot(RIM_ROOT));
  const nvml = await startNvmlServer(join(folder.path, SOCKET_FILE), { devices, model, switches }, faults);
  const services = await startServices(
    { issuers: [gpu, nvswitch], devices: [...devices, ...switches], rim, models: [model, NVSWITCH] },
    faults,
  );
  return {
    faults,
    folder,
    devices,
    nvml,
    services,
    rim,
    roots: { device: root.certificate.pem, rim: rim.root.certificate.pem },
    async close() {
      await services.close();
      await nvml.close();
      folder.remove();
    },
  };
}
