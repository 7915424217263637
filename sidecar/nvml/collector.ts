// Collects evidence over a nonce from every device: GPUs in parallel, one report at a time from each; switches beside them.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import type { Device } from '../attester.ts';
import { NscqError } from '../nscq/failure.ts';
import { NSCQ_LIBRARY, openNscq } from '../nscq/library.ts';
import { createNscq, type Nscq } from '../nscq/nscq.ts';
import { NVML, NvmlError, refusal } from './failure.ts';
import { PARALLEL_CALLS } from './ffi.ts';
import { LIBRARY, openLibrary } from './library.ts';
import { createLock, holding, until } from './lock.ts';
import { createNvml, type Nvml } from './nvml.ts';
import { checkMode } from './session.ts';
import { type Machine, openMachine, type Source } from './sources.ts';

export interface CollectorOptions {
  /** As dlopen takes it; `libnvidia-ml.so.1` by default. */
  readonly library?: string;
  /** NVML calls at a time. Each takes a thread of libuv's pool, which has 4 unless UV_THREADPOOL_SIZE says more; 3 by default. */
  readonly parallel_calls?: number;
  /** For one collection; 30,000 by default. */
  readonly collection_timeout_ms?: number;
  /** In place of the driver's library. */
  readonly nvml?: Nvml;
  /** The switches' library, opened behind protected PCIe alone; `libnvidia-nscq.so.2` by default. */
  readonly switch_library?: string;
  /** Whether switches can be attested too; where they cannot, a node behind protected PCIe is refused. True by default. */
  readonly switches?: boolean;
}

export interface Collector {
  readonly devices: readonly Device[];
  readonly driver: string;
  /** @throws {AttesterError} @throws what `signal` was aborted with. */
  collect(nonce: Nonce, signal: AbortSignal): Promise<Evidence[]>;
  /** A GPU that was reset has another leaf: asks each again. True when one is not what it was. */
  renewChains(signal: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
}

/** After these the driver no longer knows us, or its devices. */
const LOST: ReadonlySet<number> = new Set([
  NVML.uninitialized,
  NVML.driver_not_loaded,
  NVML.gpu_lost,
  NVML.reset_required,
]);
const CLOSE_MS = 500;

/** @throws {AttesterError} when this machine cannot attest. */
export async function createCollector(options: CollectorOptions = {}): Promise<Collector> {
  const { parallel_calls = PARALLEL_CALLS, collection_timeout_ms = 30_000 } = options;
  const nvml = options.nvml ?? createNvml(openLibrary(options.library ?? LIBRARY, parallel_calls));
  const { switches = true, switch_library = NSCQ_LIBRARY } = options;
  let nscq: Nscq | null = null;
  const open = () =>
    openMachine(nvml, () => {
      if (!switches)
        throw refusal('protected_pcie', 'protected PCIe is on, and this attester cannot attest the switches too');
      nscq ??= createNscq(openNscq(switch_library, parallel_calls));
      return nscq;
    });
  const calls = createLock(parallel_calls);
  const first = await inTime((signal) => until(open(), signal), collection_timeout_ms);
  const opening = createLock();
  const turns = new Map(first.sources.map(({ turn }) => [turn, createLock()]));
  const chains = new Map<string, string>();
  let machine: Machine | null = first;

  async function current(signal: AbortSignal): Promise<Machine> {
    if (machine === null) {
      const opened = await open();
      if (
        opened.sources.length !== first.sources.length ||
        opened.sources.some(({ id }, i) => id !== first.sources[i]?.id)
      )
        throw refusal('gpu_lost', 'the devices are others than at the start; restart the sidecar');
      chains.clear();
      machine = opened;
    } else {
      const { protected_pcie } = await holding([calls], () => checkMode(nvml), signal);
      if (protected_pcie !== machine.protected_pcie)
        throw refusal('gpu_lost', 'protected PCIe was switched since the start; restart the sidecar');
    }
    return machine;
  }

  async function collecting<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await inTime((timeout) => work(AbortSignal.any([signal, timeout])), collection_timeout_ms);
    } catch (error) {
      if (error instanceof NscqError || (error instanceof NvmlError && LOST.has(error.nvml_code))) await lose();
      throw error;
    }
  }

  // A driver that is shut down under a running call may crash the process, and one that hangs would keep us.
  const idle = () => [opening, ...turns.values()].every((lock) => lock.free);
  const turnOf = ({ turn }: Source) => turns.get(turn) ?? createLock();

  /** To be opened again at the next request. */
  async function lose(): Promise<void> {
    machine = null;
    if (idle()) await nscq?.close().catch(() => undefined);
  }

  async function chainOf(source: Source): Promise<string> {
    const known = chains.get(source.id);
    if (known !== undefined) return known;
    const chain = await source.chain();
    chains.set(source.id, chain);
    return chain;
  }

  /** All of them, so that which failure is told does not depend on which device is fast. */
  async function fromEach<T>(work: (source: Source) => Promise<T>, signal: AbortSignal): Promise<T[]> {
    const { sources } = await holding([opening], () => current(signal), signal);
    const results = await Promise.allSettled(
      sources.map((source) => holding([turnOf(source), calls], () => work(source), signal)),
    );
    return results.map((result) => {
      if (result.status === 'rejected') throw result.reason;
      return result.value;
    });
  }

  return {
    devices: first.sources.map(({ arch, model }) => ({ arch, model })),
    driver: first.driver,
    collect(nonce, signal) {
      const bytes = Buffer.from(nonce, 'hex');
      const one = async (source: Source): Promise<Evidence> => {
        const certificate_chain = Buffer.from(await chainOf(source)).toString('base64');
        const report = Buffer.from(await source.report(bytes)).toString('base64');
        return { arch: source.arch, report, certificate_chain };
      };
      return collecting((limited) => fromEach(one, limited), signal);
    },
    async renewChains(signal) {
      const before = new Map(chains);
      chains.clear();
      await collecting((limited) => fromEach(chainOf, limited), signal);
      return [...chains].some(([id, chain]) => before.get(id) !== chain);
    },
    async close() {
      if (!idle()) await new Promise((resolve) => setTimeout(resolve, CLOSE_MS));
      if (!idle()) return;
      await nscq?.close().catch(() => undefined);
      await nvml.shutdown().catch(() => undefined);
    },
  };
}

/** Whoever waits gives up after the deadline; what hangs keeps its turn. */
async function inTime<T>(work: (signal: AbortSignal) => Promise<T>, timeout_ms: number): Promise<T> {
  const timeout = AbortSignal.timeout(timeout_ms);
  try {
    return await work(timeout);
  } catch (error) {
    if (error !== timeout.reason) throw error;
    throw refusal('nvml_timeout', `a device did not answer within ${timeout_ms} ms`, 'retry');
  }
}
