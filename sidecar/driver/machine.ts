// The machine with its devices, opened at the start. When a driver loses them, it is opened again and must have the same devices.
import type { Device } from '../common/attester.ts';
import { holding, type Lock } from '../common/lock.ts';
import { NscqError, NVML, NvmlError, refusal } from './errors.ts';
import { checkLocked, createNscq, type Nscq, openNscq, openSwitches } from './nscq.ts';
import { checkMode, createNvml, type Nvml, openLibrary, openSession } from './nvml.ts';

// The sources of evidence: GPUs through NVML and, behind protected PCIe, switches through NSCQ.

export interface Source extends Device {
  /** Stays the same when the device is opened again. */
  readonly id: string;
  /** Sources with the same lock make their reports one after the other. */
  readonly lock: string;
  /** PEM, leaf first. */
  chain(): Promise<string>;
  /** @param nonce 32 bytes. */
  report(nonce: Uint8Array): Promise<Uint8Array>;
}

export interface Machine {
  readonly protected_pcie: boolean;
  readonly sources: readonly Source[];
}

/**
 * @param openNscq called only behind protected PCIe; throws where switches cannot be attested.
 * @throws {AttesterError} no GPU, no switch where there must be one, or a mode in which their reports prove nothing.
 */
async function openMachine(nvml: Nvml, openNscq: () => Nscq): Promise<Machine> {
  const { gpus, protected_pcie } = await openSession(nvml);
  const sources: Source[] = gpus.map(({ arch, model, uuid, handle }) => ({
    arch,
    model,
    id: uuid,
    lock: uuid,
    chain: () => nvml.attestationChain(handle),
    report: (nonce) => nvml.report(handle, nonce),
  }));
  if (!protected_pcie) return { protected_pcie, sources };
  try {
    return { protected_pcie, sources: [...sources, ...(await switches(openNscq()))] };
  } catch (error) {
    await nvml.shutdown().catch(() => undefined);
    throw error;
  }
}

async function switches(nscq: Nscq): Promise<Source[]> {
  return (await openSwitches(nscq)).map(({ arch, model, label }) => ({
    arch,
    model,
    id: label,
    lock: 'switches',
    chain: () => nscq.attestationChain(label),
    async report(nonce) {
      await checkLocked(nscq, [label]);
      return nscq.report(label, nonce);
    },
  }));
}

export interface MachineOptions {
  /** As dlopen takes it. */
  readonly library: string;
  /** Concurrent calls. Each takes a thread of libuv's pool, of which one must be left for everything else. */
  readonly parallel_calls: number;
  /** The switches' library, opened only behind protected PCIe. */
  readonly switch_library: string;
  /** Whether switches can be attested too; where they cannot, a node behind protected PCIe is refused. True by default. */
  readonly switches?: boolean;
}

interface KeptMachine {
  /** Opens the machine, for the first time or again. @throws {AttesterError} */
  open(): Promise<Machine>;
  /** The open machine, after a check that its mode has not changed. To be called one at a time. @throws {AttesterError} */
  current(calls: Lock, signal: AbortSignal): Promise<Machine>;
  /** Whether the machine must be opened again after this error. */
  isLost(error: unknown): boolean;
  /** @param idle no call is running: a driver that is closed during a call may crash the process. */
  lose(idle: boolean): Promise<void>;
  /** To be called while no driver call is running. */
  close(): Promise<void>;
}

/** The codes after which the driver has lost our session, or its devices. */
const LOST: ReadonlySet<number> = new Set([
  NVML.uninitialized,
  NVML.driver_not_loaded,
  NVML.gpu_lost,
  NVML.reset_required,
]);

/** @throws {AttesterError} without the library or koffi. */
export function keepMachine(options: MachineOptions): KeptMachine {
  const { library, parallel_calls, switch_library, switches = true } = options;
  const nvml = createNvml(openLibrary(library, parallel_calls));
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
