// Opens NVIDIA's management library (libnvidia-ml.so.1) through koffi. Every call runs on a thread of libuv's pool.
import { createRequire } from 'node:module';
import { NVML, refusal } from './failure.ts';

/** The part of koffi that is used here. It is loaded with the attester that needs it, and by nothing else. */
interface Koffi {
  load(path: string): KoffiLibrary;
  config(settings: Readonly<Record<string, number>>): unknown;
}
interface KoffiLibrary {
  func(name: string, result: string, parameters: readonly string[]): KoffiFunction;
  unload(): void;
}
interface KoffiFunction {
  async(...args: readonly unknown[]): void;
}

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
/** libuv has four threads, and one is left for everything else. */
export const PARALLEL_CALLS = 3;
/** The driver keeps its structures on the stack, and koffi's own default is small. */
const STACK_BYTES = 1024 * 1024;

/**
 * @param path as dlopen takes it.
 * @param max_calls at a time, whoever makes them: each takes a thread, and those that hang keep theirs.
 * @throws {AttesterError} without koffi or without the library.
 */
export function openLibrary(path: string, max_calls = PARALLEL_CALLS): NvmlLibrary {
  const library = loaded(path);
  const functions = new Map<FunctionName, KoffiFunction | null>();
  for (const [name, parameters] of Object.entries(FUNCTIONS) as [FunctionName, readonly string[]][])
    functions.set(name, bound(library, name, parameters));
  return {
    call(name, ...args) {
      const run = functions.get(name) ?? null;
      if (run === null) return Promise.resolve(NVML.function_not_found);
      return new Promise<number>((resolve, reject) => {
        if (in_flight.size >= max_calls)
          throw refusal('nvml_timeout', 'earlier calls hang in the driver; look at dmesg', 'retry');
        run.async(...args, (error: Error | null, result: number) => {
          in_flight.delete(args);
          if (error === null) resolve(result);
          else reject(error);
        });
        in_flight.add(args);
      });
    },
  };
}

/** What a call writes into must outlive it, whoever still waits. */
const in_flight = new Set<readonly Argument[]>();

/** Node waits for its threads before it ends, and would wait for one that hangs in the driver for ever. */
function endAnyway(): void {
  if (in_flight.size > 0) process.kill(process.pid, 'SIGKILL');
}

let koffi: Koffi | undefined;

function loaded(path: string): KoffiLibrary {
  if (koffi === undefined) {
    try {
      koffi = createRequire(import.meta.url)('koffi') as Koffi;
      koffi.config({ async_stack_size: STACK_BYTES });
      process.once('exit', endAnyway);
    } catch (cause) {
      throw refusal('no_ffi', 'the npm package koffi is not there or not for this platform; run npm ci', 'stop', {
        cause,
      });
    }
  }
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
