// Volumes of weights, made by the command line with Debian 13's programs.
import { join } from 'node:path';
import { startProcess } from '../support/process.ts';
import type { Named } from './guest.ts';

export interface Made extends Named {
  /** Data and tree. */
  readonly disks: readonly [data: string, tree: string];
}

/** @param bin the programs' folder. */
export async function countersignWeights(bin: string, ...args: string[]) {
  const child = startProcess('bin/countersign.js', ['weights', ...args], { PATH: `${bin}:${process.env.PATH}` });
  return { code: (await child.exited).code, output: child.output() };
}

export async function makeWeights(bin: string, source: string, out: string, name: string): Promise<Made> {
  const { code, output } = await countersignWeights(bin, source, '--name', name, '-o', out);
  if (code !== 0 || !/^[0-9a-f]{64}\n$/.test(output))
    throw new Error(`countersign weights ended with ${code}: ${output}`);
  return { name, verity_root: output.trim(), disks: [join(out, 'weights.erofs'), join(out, 'weights.verity')] };
}
