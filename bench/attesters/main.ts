// npm run bench -- --sidecar: what the sidecar adds to a GPU's own time, and 200 at once, over the twin of NVML.

import { aligned, type Grid } from '../report/table.ts';
import { describeMachine, machineLine } from '../system/machine.ts';
import { crowd } from './crowd.ts';
import { nativeOverhead } from './native.ts';
import { nvtrustOverhead } from './nvtrust.ts';

export interface AttesterResults {
  readonly date: string;
  readonly skipped: readonly string[];
  readonly grids: readonly Grid[];
}

export async function measureAttesters(say: (line: string) => void): Promise<AttesterResults> {
  const machine = describeMachine();
  console.log(machineLine(machine));
  const grids: Grid[] = [];
  const skipped: string[] = [];
  const sections = { native: nativeOverhead, 'many at once': crowd, nvtrust: nvtrustOverhead };
  for (const [name, measure] of Object.entries(sections)) {
    say(`${name} …`);
    const result = await measure();
    if (result === null || typeof result === 'string') {
      skipped.push(`${name}: this machine lacks ${result ?? 'gcc or koffi'}`);
      console.log(`\nSKIPPED ${skipped.at(-1)}`);
      continue;
    }
    grids.push(result);
    console.log(aligned(result));
  }
  return { date: machine.date, skipped, grids };
}
