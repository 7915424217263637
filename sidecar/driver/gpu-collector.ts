// Collects evidence over a nonce from every device: all are asked at once, one report at a time from each GPU, and from all switches
// together. The driver serves one GPU after the other, so their times add up.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { Device } from '../common/attester.ts';
import { createLock, holding, until } from '../common/lock.ts';
import { refusal } from './errors.ts';
import { keepMachine, type Machine, type MachineOptions, type Source } from './machine.ts';

interface CollectorOptions extends MachineOptions {
  /** The timeout of one collection; 30,000 by default. */
  readonly collection_timeout_ms?: number;
}

/** How the devices are reached: through the driver's libraries, or through a given collector. */
export type DeviceOptions = CollectorOptions | { readonly collector: Collector };

export interface Collector {
  readonly devices: readonly Device[];
  /**
   * @param device the index of the only one that shall sign; every device by default.
   * @throws {AttesterError} @throws what `signal` was aborted with.
   */
  collect(nonce: Nonce, signal: AbortSignal, device?: number): Promise<Evidence[]>;
  /** Reads the chain of every device again: a device that was reset has another leaf. True when a chain has changed. */
  renewChains(signal: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
}

const CLOSE_MS = 500;

/** @throws {AttesterError} when this machine cannot attest. */
export async function createCollector(options: CollectorOptions): Promise<Collector> {
  const { parallel_calls, collection_timeout_ms = 30_000 } = options;
  const kept = keepMachine(options);
  const first = await inTime((signal) => until(kept.open(), signal), collection_timeout_ms);
  const calls = createLock(parallel_calls);
  const opening = createLock();
  const locks = new Map(first.sources.map(({ lock }) => [lock, createLock()]));
  const lockOf = ({ lock }: Source) => locks.get(lock) ?? createLock();
  const idle = () => [opening, ...locks.values()].every((lock) => lock.free);
  const chains = new Map<string, string>();
  let known: Machine = first;

  async function current(signal: AbortSignal): Promise<Machine> {
    const machine = await kept.current(calls, signal);
    // The machine was opened again: a device that was reset may have other certificates.
    if (machine !== known) chains.clear();
    known = machine;
    return machine;
  }

  async function collecting<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await inTime((timeout) => work(AbortSignal.any([signal, timeout])), collection_timeout_ms);
    } catch (error) {
      if (kept.isLost(error)) await kept.lose(idle());
      throw error;
    }
  }

  async function chainOf(source: Source): Promise<string> {
    const cached = chains.get(source.id);
    if (cached !== undefined) return cached;
    const chain = await source.chain();
    chains.set(source.id, chain);
    return chain;
  }

  /** Waits for all devices, so that the failure that is thrown does not depend on which device is fast. */
  async function fromEach<T>(work: (source: Source) => Promise<T>, signal: AbortSignal, device?: number): Promise<T[]> {
    const { sources } = await holding([opening], () => current(signal), signal);
    const results = await Promise.allSettled(
      sources
        .filter((_, i) => device === undefined || i === device)
        .map((source) => holding([lockOf(source), calls], () => work(source), signal)),
    );
    return results.map((result) => {
      if (result.status === 'rejected') throw result.reason;
      return result.value;
    });
  }

  return {
    devices: first.sources.map(({ arch, model }) => ({ arch, model })),
    collect(nonce, signal, device) {
      const bytes = Buffer.from(nonce, 'hex');
      const one = async (source: Source): Promise<Evidence> => {
        const certificate_chain = Buffer.from(await chainOf(source)).toString('base64');
        const report = Buffer.from(await source.report(bytes)).toString('base64');
        return { arch: source.arch, report, certificate_chain };
      };
      return collecting((limited) => fromEach(one, limited, device), signal);
    },
    async renewChains(signal) {
      const before = new Map(chains);
      chains.clear();
      await collecting((limited) => fromEach(chainOf, limited), signal);
      return [...chains].some(([id, chain]) => before.get(id) !== chain);
    },
    async close() {
      // A driver that is shut down during a call may crash the process, and waiting for a call that hangs would keep it from ending.
      if (!idle()) await new Promise((resolve) => setTimeout(resolve, CLOSE_MS));
      if (idle()) await kept.close();
    },
  };
}

/** Stops waiting after the deadline. Work that hangs keeps its lock. */
async function inTime<T>(work: (signal: AbortSignal) => Promise<T>, timeout_ms: number): Promise<T> {
  const timeout = AbortSignal.timeout(timeout_ms);
  try {
    return await work(timeout);
  } catch (error) {
    if (error !== timeout.reason) throw error;
    throw refusal('nvml_timeout', `a device did not answer within ${timeout_ms} ms`, 'retry');
  }
}
