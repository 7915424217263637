// NVML opened, the mode looked at, the GPUs counted: what a collection starts from, until the driver loses it.
import type { Device } from '../attesters/attester.ts';
import { NVML, NvmlError, refusal } from './errors.ts';
import type { Handle, Nvml } from './nvml.ts';

export interface Gpu extends Device {
  readonly handle: Handle;
  readonly uuid: string;
}

export interface Session {
  readonly gpus: readonly Gpu[];
  /** The GPUs reach each other over switches, which must be attested with them. */
  readonly protected_pcie: boolean;
}

/** nvmlDeviceArchitecture_t, as NVIDIA's evidence names those that attest. */
export const ARCHITECTURES: Readonly<Record<number, string>> = { 9: 'HOPPER', 10: 'BLACKWELL' };
const MAX_GPUS = 16;

/** @throws {AttesterError} no GPU, one that cannot attest, or a mode in which its word is worth nothing. */
export async function openSession(nvml: Nvml): Promise<Session> {
  await nvml.init();
  try {
    return await look(nvml);
  } catch (error) {
    await nvml.shutdown().catch(() => undefined);
    throw error;
  }
}

async function look(nvml: Nvml): Promise<Session> {
  const count = await nvml.count();
  if (count === 0) throw refusal('no_gpu', 'the driver sees no GPU; look at nvidia-smi -L');
  if (count > MAX_GPUS) throw refusal('no_gpu', `${count} GPUs, and ${MAX_GPUS} is the most we know`);
  const gpus: Gpu[] = [];
  for (let index = 0; index < count; index++) gpus.push(await openGpu(nvml, index));
  const { protected_pcie } = await checkMode(nvml);
  return { gpus, protected_pcie };
}

async function openGpu(nvml: Nvml, index: number): Promise<Gpu> {
  const handle = await nvml.handle(index);
  const model = await nvml.name(handle);
  const architecture = await nvml.architecture(handle);
  const arch = ARCHITECTURES[architecture];
  if (arch === undefined)
    throw refusal('unsupported_gpu', `GPU ${index} (${model}) cannot attest; Hopper and Blackwell can`);
  return { handle, arch, model, uuid: await nvml.uuid(handle) };
}

/** @throws {AttesterError} cc_off, devtools_on. */
export async function checkMode(nvml: Nvml): Promise<{ readonly protected_pcie: boolean }> {
  const mode = await nvml.mode().catch((cause: unknown) => {
    if (!(cause instanceof NvmlError) || cause.nvml_code !== NVML.not_supported) throw cause;
    throw refusal('cc_off', 'this machine knows no confidential computing; a Hopper or newer is needed', 'stop', {
      cause,
    });
  });
  // A mode of its own: NVIDIA's verifiers ask for either.
  const protected_pcie = mode.multi_gpu === 'protected_pcie';
  if (!mode.confidential && !protected_pcie)
    throw refusal(
      'cc_off',
      'confidential computing is off; turn it on from the host (nvidia_gpu_tools.py --set-cc-mode=on) and restart the machine',
    );
  if (mode.devtools)
    throw refusal(
      'devtools_on',
      'devtools mode is on: the GPU can be looked into; set CC mode "on" in place of "devtools" and restart the machine',
    );
  if (mode.environment === 'simulation')
    throw refusal('cc_off', 'the driver runs in a simulated environment: no hardware keeps its secrets');
  return { protected_pcie };
}
