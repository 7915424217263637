// Collects evidence over a nonce from every GPU: several in parallel, one report at a time from each.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import type { Device } from '../attester.ts';
import { NVML, NvmlError, refusal } from './failure.ts';
import { LIBRARY, openLibrary, PARALLEL_CALLS } from './library.ts';
import { createLock, holding, type Lock, until } from './lock.ts';
import { createNvml, type Nvml } from './nvml.ts';
import { checkMode, type Gpu, openSession, type Session } from './session.ts';

export interface CollectorOptions {
  /** As dlopen takes it; `libnvidia-ml.so.1` by default. */
  readonly library?: string;
  /** NVML calls at a time. Each takes a thread of libuv's pool, which has 4 unless UV_THREADPOOL_SIZE says more; 3 by default. */
  readonly parallel_calls?: number;
  /** For one collection; 30,000 by default. */
  readonly collection_timeout_ms?: number;
  /** In place of the driver's library. */
  readonly nvml?: Nvml;
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
  const calls = createLock(parallel_calls);
  const first = await inTime((signal) => until(openSession(nvml), signal), collection_timeout_ms);
  const opening = createLock();
  const locks: readonly Lock[] = first.gpus.map(() => createLock());
  const chains = new Map<string, string>();
  let session: Session | null = first;

  async function current(signal: AbortSignal): Promise<Session> {
    if (session === null) {
      const opened = await openSession(nvml);
      if (opened.gpus.length !== first.gpus.length || opened.gpus.some(({ uuid }, i) => uuid !== first.gpus[i]?.uuid))
        throw refusal('gpu_lost', 'the GPUs are others than at the start; restart the sidecar');
      chains.clear();
      session = opened;
    } else await holding([calls], () => checkMode(nvml), signal);
    return session;
  }

  async function collecting<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await inTime((timeout) => work(AbortSignal.any([signal, timeout])), collection_timeout_ms);
    } catch (error) {
      if (error instanceof NvmlError && LOST.has(error.nvml_code)) session = null;
      throw error;
    }
  }

  async function chainOf(gpu: Gpu): Promise<string> {
    const known = chains.get(gpu.uuid);
    if (known !== undefined) return known;
    const chain = await nvml.attestationChain(gpu.handle);
    chains.set(gpu.uuid, chain);
    return chain;
  }

  /** All of them, so that which failure is told does not depend on which GPU is fast. */
  async function fromEach<T>(work: (gpu: Gpu) => Promise<T>, signal: AbortSignal): Promise<T[]> {
    const { gpus } = await holding([opening], () => current(signal), signal);
    const results = await Promise.allSettled(
      gpus.map((gpu, i) => holding([...locks.slice(i, i + 1), calls], () => work(gpu), signal)),
    );
    return results.map((result) => {
      if (result.status === 'rejected') throw result.reason;
      return result.value;
    });
  }

  return {
    devices: first.gpus.map(({ arch, model }) => ({ arch, model })),
    driver: first.driver,
    collect(nonce, signal) {
      const bytes = Buffer.from(nonce, 'hex');
      const one = async (gpu: Gpu): Promise<Evidence> => {
        const chain = await chainOf(gpu);
        const { report } = await nvml.report(gpu.handle, bytes);
        const certificate_chain = Buffer.from(chain).toString('base64');
        return { arch: gpu.arch, report: report.toString('base64'), certificate_chain };
      };
      return collecting((limited) => fromEach(one, limited), signal);
    },
    async renewChains(signal) {
      const before = new Map(chains);
      chains.clear();
      await collecting((limited) => fromEach(chainOf, limited), signal);
      return [...chains].some(([uuid, chain]) => before.get(uuid) !== chain);
    },
    async close() {
      const idle = () => [opening, ...locks].every((lock) => lock.free);
      // A driver that is shut down under a running call may crash the process, and one that hangs would keep us.
      if (!idle()) await new Promise((resolve) => setTimeout(resolve, CLOSE_MS));
      if (idle()) await nvml.shutdown().catch(() => undefined);
    },
  };
}

/** Whoever waits gives up after the deadline; what hangs keeps its GPU. */
async function inTime<T>(work: (signal: AbortSignal) => Promise<T>, timeout_ms: number): Promise<T> {
  const timeout = AbortSignal.timeout(timeout_ms);
  try {
    return await work(timeout);
  } catch (error) {
    if (error !== timeout.reason) throw error;
    throw refusal('nvml_timeout', `a GPU did not answer within ${timeout_ms} ms`, 'retry');
  }
}
