// NVML, as the sidecar uses it: lists the GPUs, reads their mode, and a GPU's chain and report over a nonce.

import type { Device } from '../common/attester.ts';
import { NVML, NvmlError, refusal } from './errors.ts';
import { callAsync, type KoffiFunction, type KoffiLibrary, loadKoffi, NONCE_BYTES, readText } from './ffi.ts';

// NVML's structures as bytes: the sizes and offsets that nvml.h gives them, little-endian, without padding.

/** nvmlSystemGetDriverVersion, nvmlDeviceGetName (v2), nvmlDeviceGetUUID (v2). */
const TEXT_BYTES = 96;
const DRIVER_VERSION_BYTES = 80;
const HANDLE_BYTES = 8;
const NUMBER_BYTES = 4;

/** nvmlConfComputeSystemState_t: environment, ccFeature, devToolsMode. */
const STATE_BYTES = 12;
/** nvmlSystemConfComputeSettings_v1_t: version, environment, ccFeature, devToolsMode, multiGpuMode. */
const SETTINGS_BYTES = 20;
/** NVML_STRUCT_VERSION: the size, and the version in the highest byte. */
const SETTINGS_V1 = 0x0100_0014;

export interface ConfidentialMode {
  readonly environment: 'unavailable' | 'simulation' | 'production';
  readonly confidential: boolean;
  readonly devtools: boolean;
  /** null: this driver does not report it. */
  readonly multi_gpu: 'none' | 'protected_pcie' | 'nvle' | null;
}

const ENVIRONMENTS = ['unavailable', 'simulation', 'production'] as const;
const MULTI_GPU = ['none', 'protected_pcie', 'nvle'] as const;

function emptySettings(): Buffer {
  const bytes = Buffer.alloc(SETTINGS_BYTES);
  bytes.writeUInt32LE(SETTINGS_V1, 0);
  return bytes;
}

const readSettings = (bytes: Buffer): ConfidentialMode => ({
  ...readState(bytes.subarray(4)),
  multi_gpu: MULTI_GPU[bytes.readUInt32LE(16)] ?? null,
});

const readState = (bytes: Buffer): ConfidentialMode => ({
  environment: ENVIRONMENTS[bytes.readUInt32LE(0)] ?? 'unavailable',
  confidential: bytes.readUInt32LE(4) === 1,
  // Anything but "off" is on.
  devtools: bytes.readUInt32LE(8) !== 0,
  multi_gpu: null,
});

/** nvmlConfComputeGpuCertificate_t: two sizes, the identity chain, the attestation chain. */
const CERTIFICATE_CHAIN_BYTES = 0x1000;
const ATTESTATION_CHAIN_BYTES = 0x1400;
const CERTIFICATE_BYTES = 8 + CERTIFICATE_CHAIN_BYTES + ATTESTATION_CHAIN_BYTES;

/** The attestation chain, PEM, leaf first; null where the driver states an impossible size. */
function readAttestationChain(bytes: Buffer): string | null {
  const size = bytes.readUInt32LE(4);
  const start = 8 + CERTIFICATE_CHAIN_BYTES;
  return size === 0 || size > ATTESTATION_CHAIN_BYTES ? null : readText(bytes.subarray(start, start + size));
}

/** nvmlConfComputeGpuAttestationReport_t: isCecAttestationReportPresent, two sizes, nonce, report, CEC report. */
const NONCE_AT = 12;
const REPORT_AT = NONCE_AT + NONCE_BYTES;
const MAX_REPORT_BYTES = 0x2000;
const MAX_CEC_REPORT_BYTES = 0x1000;
const REPORT_BYTES = REPORT_AT + MAX_REPORT_BYTES + MAX_CEC_REPORT_BYTES;

function reportRequest(nonce: Uint8Array): Buffer {
  if (nonce.length !== NONCE_BYTES) throw new RangeError(`a nonce has ${NONCE_BYTES} bytes`);
  const bytes = Buffer.alloc(REPORT_BYTES);
  bytes.set(nonce, NONCE_AT);
  return bytes;
}

/**
 * The SPDM request and its signed response; null where the driver states an impossible size. The report of the board's external
 * root of trust (CEC), which may follow, is not read: nothing here depends on it.
 */
function readReport(bytes: Buffer): Buffer | null {
  const [size, cec_size] = [bytes.readUInt32LE(4), bytes.readUInt32LE(8)];
  if (size === 0 || size > MAX_REPORT_BYTES || cec_size > MAX_CEC_REPORT_BYTES) return null;
  return Buffer.from(bytes.subarray(REPORT_AT, REPORT_AT + size));
}

// Opens NVIDIA's management library (libnvidia-ml.so.1).

/** Handles and numbers are passed by value, a Buffer as the address of its bytes. */
type Argument = number | bigint | Buffer;

/** nvml.h. A handle is an opaque pointer. */
const HANDLE = 'uintptr_t';
const OUT = 'void *';
const FUNCTIONS = {
  nvmlInit_v2: [],
  nvmlShutdown: [],
  nvmlSystemGetDriverVersion: [OUT, 'uint'],
  nvmlSystemGetConfComputeState: [OUT],
  nvmlSystemGetConfComputeSettings: [OUT],
  nvmlSystemGetConfComputeGpusReadyState: [OUT],
  nvmlDeviceGetCount_v2: [OUT],
  nvmlDeviceGetHandleByIndex_v2: ['uint', OUT],
  nvmlDeviceGetName: [HANDLE, OUT, 'uint'],
  nvmlDeviceGetUUID: [HANDLE, OUT, 'uint'],
  nvmlDeviceGetArchitecture: [HANDLE, OUT],
  nvmlDeviceGetPersistenceMode: [HANDLE, OUT],
  nvmlDeviceGetConfComputeGpuCertificate: [HANDLE, OUT],
  nvmlDeviceGetConfComputeGpuAttestationReport: [HANDLE, OUT],
} as const;
type FunctionName = keyof typeof FUNCTIONS;

interface NvmlLibrary {
  /** The return code; 13 (function not found) where this driver's library has no such function. */
  call(name: FunctionName, ...args: readonly Argument[]): Promise<number>;
}

/**
 * @param path as dlopen takes it.
 * @param max_calls limit of concurrent calls in this process: each takes a thread, and one that hangs keeps it.
 * @throws {AttesterError} without koffi or without the library.
 */
export function openLibrary(path: string, max_calls: number): NvmlLibrary {
  const library = loaded(path);
  const functions = new Map<FunctionName, KoffiFunction | null>();
  for (const [name, parameters] of Object.entries(FUNCTIONS) as [FunctionName, readonly string[]][])
    functions.set(name, bound(library, name, parameters));
  return {
    call(name, ...args) {
      const run = functions.get(name) ?? null;
      if (run === null) return Promise.resolve(NVML.function_not_found);
      return callAsync<number>(run, args, max_calls);
    },
  };
}

function loaded(path: string): KoffiLibrary {
  const koffi = loadKoffi();
  try {
    return koffi.load(path);
  } catch (cause) {
    const words = `${path} cannot be loaded; install the NVIDIA driver, or start the container with the GPU (--gpus all)`;
    throw refusal('no_driver', words, 'stop', { cause });
  }
}

function bound(library: KoffiLibrary, name: string, parameters: readonly string[]): KoffiFunction | null {
  try {
    return library.func(name, 'int', parameters);
  } catch {
    return null;
  }
}

type Handle = bigint;

/** Every method throws {NvmlError}. */
export interface Nvml {
  init(): Promise<void>;
  shutdown(): Promise<void>;
  driverVersion(): Promise<string>;
  mode(): Promise<ConfidentialMode>;
  /** Whether the GPUs accept work. Attestation comes before that and does not need it. */
  ready(): Promise<boolean>;
  count(): Promise<number>;
  handle(index: number): Promise<Handle>;
  name(device: Handle): Promise<string>;
  uuid(device: Handle): Promise<string>;
  /** nvmlDeviceArchitecture_t: 9 Hopper, 10 Blackwell. */
  architecture(device: Handle): Promise<number>;
  /** Whether the driver keeps the GPU's session while nobody uses the GPU. */
  persistence(device: Handle): Promise<boolean>;
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
      // Older drivers have only the state.
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
    persistence: async (device) => (await number('nvmlDeviceGetPersistenceMode', device)) === 1,
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

// A session with NVML: opens the GPUs and checks the mode for a collection.

interface Gpu extends Device {
  readonly handle: Handle;
  readonly uuid: string;
}

interface Session {
  readonly gpus: readonly Gpu[];
  /** The GPUs reach each other over switches, which must be attested with them. */
  readonly protected_pcie: boolean;
}

/** nvmlDeviceArchitecture_t of GPUs that can attest, with their names in NVIDIA's evidence. */
export const ARCHITECTURES: Readonly<Record<number, string>> = { 9: 'HOPPER', 10: 'BLACKWELL' };
const MAX_GPUS = 16;

/** @throws {AttesterError} no GPU, one that cannot attest, or a mode in which its reports prove nothing. */
export async function openSession(nvml: Nvml): Promise<Session> {
  await nvml.init();
  try {
    return await openGpus(nvml);
  } catch (error) {
    await nvml.shutdown().catch(() => undefined);
    throw error;
  }
}

async function openGpus(nvml: Nvml): Promise<Session> {
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
  // Protected PCIe is a mode of its own: NVIDIA's verifiers accept either mode.
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
