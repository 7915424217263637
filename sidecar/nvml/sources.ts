// Whatever of the machine gives evidence: its GPUs through NVML and, behind protected PCIe, its switches through NSCQ.
import type { Device } from '../attester.ts';
import type { Nscq } from '../nscq/nscq.ts';
import { checkLocked, openSwitches } from '../nscq/session.ts';
import type { Nvml } from './nvml.ts';
import { openSession } from './session.ts';

export interface Source extends Device {
  /** The same for the same device, whenever it is opened. */
  readonly id: string;
  /** Those of one name are asked one at a time. */
  readonly turn: string;
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
 * @param openNscq called behind protected PCIe alone; throws where switches cannot be attested.
 * @throws {AttesterError} no GPU, no switch where there must be one, or a mode in which their word is worth nothing.
 */
export async function openMachine(nvml: Nvml, openNscq: () => Nscq): Promise<Machine> {
  const { gpus, protected_pcie } = await openSession(nvml);
  const sources: Source[] = gpus.map(({ arch, model, uuid, handle }) => ({
    arch,
    model,
    id: uuid,
    turn: uuid,
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
    turn: 'switches',
    chain: () => nscq.attestationChain(label),
    async report(nonce) {
      await checkLocked(nscq, [label]);
      return nscq.report(label, nonce);
    },
  }));
}
