// NVML as this sidecar uses it: what there is, which mode it is in, and a device's chain and report over a nonce.
import { NVML, NvmlError, refusal } from './failure.ts';
import type { Argument, FunctionName, NvmlLibrary } from './library.ts';
import {
  CERTIFICATE_BYTES,
  type ConfidentialMode,
  DRIVER_VERSION_BYTES,
  emptySettings,
  HANDLE_BYTES,
  NUMBER_BYTES,
  readAttestationChain,
  readReport,
  readSettings,
  readState,
  readText,
  reportRequest,
  STATE_BYTES,
  TEXT_BYTES,
} from './structures.ts';

export type Handle = bigint;

/** Every method throws {NvmlError}. */
export interface Nvml {
  init(): Promise<void>;
  shutdown(): Promise<void>;
  driverVersion(): Promise<string>;
  mode(): Promise<ConfidentialMode>;
  /** Whether the GPUs accept work: attestation comes before that, and does not need it. */
  ready(): Promise<boolean>;
  count(): Promise<number>;
  handle(index: number): Promise<Handle>;
  name(device: Handle): Promise<string>;
  uuid(device: Handle): Promise<string>;
  /** nvmlDeviceArchitecture_t: 9 Hopper, 10 Blackwell. */
  architecture(device: Handle): Promise<number>;
  /** PEM, leaf first. */
  attestationChain(device: Handle): Promise<string>;
  /** The SPDM request and its signed response. */
  report(device: Handle, nonce: Uint8Array): Promise<Uint8Array>;
}

export function createNvml(library: NvmlLibrary): Nvml {
  const run = async (name: FunctionName, ...args: readonly Argument[]) => {
    const code = await library.call(name, ...args);
    if (code !== NVML.success) throw new NvmlError(name, code);
  };
  const filled = async (name: FunctionName, bytes: Buffer, ...before: readonly Argument[]) => {
    await run(name, ...before, bytes);
    return bytes;
  };
  const number = async (name: FunctionName, ...before: readonly Argument[]) =>
    (await filled(name, Buffer.alloc(NUMBER_BYTES), ...before)).readUInt32LE(0);
  const text = async (name: FunctionName, size: number, ...before: readonly Argument[]) => {
    const bytes = Buffer.alloc(size);
    await run(name, ...before, bytes, size);
    return readText(bytes);
  };
  const read = <T>(name: FunctionName, value: T | null): T => {
    if (value === null) throw refusal('nvml_error', `${name} answered with a size that cannot be`);
    return value;
  };
  return {
    init: () => run('nvmlInit_v2'),
    shutdown: () => run('nvmlShutdown'),
    driverVersion: () => text('nvmlSystemGetDriverVersion', DRIVER_VERSION_BYTES),
    async mode() {
      const settings = emptySettings();
      const code = await library.call('nvmlSystemGetConfComputeSettings', settings);
      if (code === NVML.success) return readSettings(settings);
      // Older drivers know the state alone.
      if (code !== NVML.function_not_found && code !== NVML.version_mismatch)
        throw new NvmlError('nvmlSystemGetConfComputeSettings', code);
      return readState(await filled('nvmlSystemGetConfComputeState', Buffer.alloc(STATE_BYTES)));
    },
    ready: async () => (await number('nvmlSystemGetConfComputeGpusReadyState')) === 1,
    count: () => number('nvmlDeviceGetCount_v2'),
    handle: async (index) =>
      (await filled('nvmlDeviceGetHandleByIndex_v2', Buffer.alloc(HANDLE_BYTES), index)).readBigUInt64LE(0),
    name: (device) => text('nvmlDeviceGetName', TEXT_BYTES, device),
    uuid: (device) => text('nvmlDeviceGetUUID', TEXT_BYTES, device),
    architecture: (device) => number('nvmlDeviceGetArchitecture', device),
    async attestationChain(device) {
      const name = 'nvmlDeviceGetConfComputeGpuCertificate';
      return read(name, readAttestationChain(await filled(name, Buffer.alloc(CERTIFICATE_BYTES), device)));
    },
    async report(device, nonce) {
      const name = 'nvmlDeviceGetConfComputeGpuAttestationReport';
      return read(name, readReport(await filled(name, reportRequest(nonce), device)));
    },
  };
}
