// The machine as it was found at the start, until a driver loses it; then it is opened again, and must be the same.
import { NscqError } from '../nscq/failure.ts';
import { NSCQ_LIBRARY, openNscq } from '../nscq/library.ts';
import { createNscq, type Nscq } from '../nscq/nscq.ts';
import { NVML, NvmlError, refusal } from './failure.ts';
import { PARALLEL_CALLS } from './ffi.ts';
import { LIBRARY, openLibrary } from './library.ts';
import { holding, type Lock } from './lock.ts';
import { createNvml } from './nvml.ts';
import { checkMode } from './session.ts';
import { type Machine, openMachine } from './sources.ts';

export interface MachineOptions {
  /** As dlopen takes it; `libnvidia-ml.so.1` by default. */
  readonly library?: string;
  /** Calls at a time. Each takes a thread of libuv's pool, which has 4 unless UV_THREADPOOL_SIZE says more; 3 by default. */
  readonly parallel_calls?: number;
  /** The switches' library, opened behind protected PCIe alone; `libnvidia-nscq.so.2` by default. */
  readonly switch_library?: string;
  /** Whether switches can be attested too; where they cannot, a node behind protected PCIe is refused. True by default. */
  readonly switches?: boolean;
}

export interface KeptMachine {
  /** Opens it, for the first time or again. @throws {AttesterError} */
  open(): Promise<Machine>;
  /** As `open` found it, still in the mode that it was in. One at a time. @throws {AttesterError} */
  current(calls: Lock, signal: AbortSignal): Promise<Machine>;
  /** After this error, is it to be opened again? */
  isLost(error: unknown): boolean;
  /** @param idle no call is running: a driver that is closed under one may crash the process. */
  lose(idle: boolean): Promise<void>;
  /** While no call is running. */
  close(): Promise<void>;
}

/** After these the driver no longer knows us, or its devices. */
const LOST: ReadonlySet<number> = new Set([
  NVML.uninitialized,
  NVML.driver_not_loaded,
  NVML.gpu_lost,
  NVML.reset_required,
]);

/** @throws {AttesterError} without the library or koffi. */
export function keepMachine(options: MachineOptions): KeptMachine {
  const { parallel_calls = PARALLEL_CALLS, switches = true, switch_library = NSCQ_LIBRARY } = options;
  const nvml = createNvml(openLibrary(options.library ?? LIBRARY, parallel_calls));
  let nscq: Nscq | null = null;
  let first: Machine | null = null;
  let machine: Machine | null = null;

  async function open(): Promise<Machine> {
    const opened = await openMachine(nvml, () => {
      if (!switches)
        throw refusal('protected_pcie', 'protected PCIe is on, and this attester cannot attest the switches too');
      nscq ??= createNscq(openNscq(switch_library, parallel_calls));
      return nscq;
    });
    first ??= opened;
    if (!sameDevices(opened, first))
      throw refusal('gpu_lost', 'the devices are others than at the start; restart the sidecar');
    machine = opened;
    return opened;
  }

  return {
    open,
    async current(calls, signal) {
      if (machine === null) return open();
      const { protected_pcie } = await holding([calls], () => checkMode(nvml), signal);
      if (protected_pcie !== machine.protected_pcie)
        throw refusal('gpu_lost', 'protected PCIe was switched since the start; restart the sidecar');
      return machine;
    },
    isLost: (error) => error instanceof NscqError || (error instanceof NvmlError && LOST.has(error.nvml_code)),
    async lose(idle) {
      machine = null;
      if (idle) await nscq?.close().catch(() => undefined);
    },
    async close() {
      await nscq?.close().catch(() => undefined);
      await nvml.shutdown().catch(() => undefined);
    },
  };
}

const sameDevices = ({ sources }: Machine, before: Machine) =>
  sources.length === before.sources.length && sources.every(({ id }, i) => id === before.sources[i]?.id);
