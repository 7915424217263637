// NSCQ opened and its switches looked at: what a node behind protected PCIe is attested with, beside its GPUs.
import type { Device } from '../attesters/attester.ts';
import { refusal } from './errors.ts';
import type { Nscq } from './nscq.ts';

export interface NvSwitch extends Device {
  readonly label: string;
}

const LS10 = 2;
const MAX_SWITCHES = 16;

/** @throws {AttesterError} no switch, one that cannot attest, or one that is not locked. */
export async function openSwitches(nscq: Nscq): Promise<readonly NvSwitch[]> {
  await nscq.open();
  try {
    return await look(nscq);
  } catch (error) {
    await nscq.close().catch(() => undefined);
    throw error;
  }
}

async function look(nscq: Nscq): Promise<readonly NvSwitch[]> {
  const labels = await nscq.switches();
  if (labels.length === 0) throw refusal('no_switch', 'protected PCIe is on, and the driver sees no switch');
  if (labels.length > MAX_SWITCHES)
    throw refusal('no_switch', `${labels.length} switches, and ${MAX_SWITCHES} is the most we know`);
  for (const [index, label] of labels.entries()) {
    const architecture = await nscq.architecture(label);
    if (architecture !== LS10)
      throw refusal('unsupported_switch', `switch ${index} (architecture ${architecture}) cannot attest; LS10 can`);
  }
  await checkLocked(nscq, labels);
  return labels.map((label) => ({ arch: 'LS10', model: 'NVSwitch LS10', label }));
}

/** @throws {AttesterError} switch_unlocked: its host could still reroute what the GPUs say to each other. */
export async function checkLocked(nscq: Nscq, labels: readonly string[]): Promise<void> {
  for (const [index, label] of labels.entries())
    if (!(await nscq.locked(label)))
      throw refusal('switch_unlocked', `switch ${index} is not locked in trusted NVLink mode; restart the machine`);
}
