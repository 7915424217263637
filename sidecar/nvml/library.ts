// Opens NVIDIA's management library (libnvidia-ml.so.1).
import { NVML, refusal } from './failure.ts';
import { callAsync, type KoffiFunction, type KoffiLibrary, loadKoffi } from './ffi.ts';

/** Handles and numbers go by value; a Buffer goes as the address of its bytes. */
export type Argument = number | bigint | Buffer;

/** nvml.h. A handle is a pointer that we only carry. */
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
  nvmlDeviceGetConfComputeGpuCertificate: [HANDLE, OUT],
  nvmlDeviceGetConfComputeGpuAttestationReport: [HANDLE, OUT],
} as const;
export type FunctionName = keyof typeof FUNCTIONS;

export interface NvmlLibrary {
  /** The return code; 13 (function not found) where this driver's library has no such function. */
  call(name: FunctionName, ...args: readonly Argument[]): Promise<number>;
}

export const LIBRARY = 'libnvidia-ml.so.1';

/**
 * @param path as dlopen takes it.
 * @param max_calls at a time, whoever makes them: each takes a thread, and those that hang keep theirs.
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
