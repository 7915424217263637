// The options of a simulated machine: what it pretends to be. It imports nothing slow, because the launcher reads them before its first line.
import { resolve } from 'node:path';
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';

export interface TwinOptions {
  readonly gpus: number;
  /** How long a GPU's report takes. */
  readonly collection_ms: number;
  readonly cpu: 'SEV_SNP' | 'TDX';
  /** How long the processor's report takes. */
  readonly cpu_ms: number;
  /** The folder of the test root, whose certificate is `root.pem`. */
  readonly root_dir: string;
}

/** An option that does not exist, or a wrong value. The message is one line. */
export class OptionError extends Error {
  override readonly name = 'OptionError';
}

export const TWIN_OPTIONS = {
  gpus: { type: 'string', default: '1' },
  'collection-ms': { type: 'string', default: '0' },
  cpu: { type: 'string', default: 'SEV_SNP' },
  'cpu-ms': { type: 'string', default: '0' },
  'root-dir': { type: 'string', default: 'run/simulated-root' },
} as const satisfies ParseArgsOptionsConfig;

const MAX_MS = 600_000;

/** @throws {OptionError} */
export function readTwinOptions(args: readonly string[]): TwinOptions {
  const values = parsed(args);
  const { cpu, 'root-dir': root_dir } = values;
  if (cpu !== 'SEV_SNP' && cpu !== 'TDX') throw new OptionError('--cpu is SEV_SNP or TDX');
  if (root_dir === '') throw new OptionError('--root-dir names a folder');
  return {
    gpus: wholeNumber('gpus', values.gpus, 1, 16),
    collection_ms: wholeNumber('collection-ms', values['collection-ms'], 0, MAX_MS),
    cpu,
    cpu_ms: wholeNumber('cpu-ms', values['cpu-ms'], 0, MAX_MS),
    root_dir: resolve(root_dir),
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: TWIN_OPTIONS }).values;
  } catch {
    const names = Object.keys(TWIN_OPTIONS).map((name) => `--${name}`);
    throw new OptionError(`the options of the simulated machine are ${names.join(', ')}, each with a value`);
  }
}

function wholeNumber(name: keyof typeof TWIN_OPTIONS, text: string, min: number, max: number): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max)) throw new OptionError(`--${name} is a whole number from ${min} to ${max}`);
  return value;
}
