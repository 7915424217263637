// What there is to know about driver and GPUs, from the best source that answers: NVML, else nvidia-smi and /proc.

import type { ConfidentialMode } from '../driver/nvml.ts';
import { DRIVER_VERSION_FILE, driverVersionIn } from '../driver/versions.ts';
import type { DoctorConfig } from './config.ts';
import type { Host, NvmlFacts } from './host.ts';

export interface Facts {
  readonly source: 'NVML' | 'nvidia-smi' | '/proc' | null;
  readonly driver: string | null;
  readonly gpus: NvmlFacts['gpus'];
  readonly mode: ConfidentialMode | null;
  readonly ready: boolean | null;
  /** Why NVML could not be asked; null when it answered. */
  readonly nvml_error: string | null;
}

export async function gatherFacts(host: Host, config: DoctorConfig): Promise<Facts> {
  const nvml = await host.nvml(config.nvml_library).catch((error: unknown) => messageOf(error));
  if (typeof nvml !== 'string') return { ...nvml, source: 'NVML', nvml_error: null };
  const smi = await askSmi(host);
  if (smi !== null) return { ...smi, source: 'nvidia-smi', nvml_error: nvml };
  const text = await host.readText(DRIVER_VERSION_FILE);
  const driver = text === null ? null : driverVersionIn(text);
  return { source: driver === null ? null : '/proc', driver, gpus: [], mode: null, ready: null, nvml_error: nvml };
}

export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error)).slice(0, 300);

async function askSmi(host: Host): Promise<NvmlFacts | null> {
  const list = await host.run('nvidia-smi', ['--query-gpu=driver_version,name', '--format=csv,noheader']);
  if (list === null || list.exit_code !== 0) return null;
  const rows = list.stdout.split('\n').flatMap((line) => {
    const [, driver, model] = /^\s*([0-9.]+)\s*,\s*(.+?)\s*$/.exec(line) ?? [];
    return driver === undefined || model === undefined ? [] : [{ driver, model }];
  });
  const driver = rows[0]?.driver;
  if (driver === undefined) return null;
  const state = await host.run('nvidia-smi', ['conf-compute', '-q']);
  return {
    driver,
    gpus: rows.map(({ model }) => ({ model, arch: archOf(model) })),
    ...readState(state !== null && state.exit_code === 0 ? state.stdout : ''),
  };
}

/** nvidia-smi names models, not architectures. */
function archOf(model: string): string | null {
  if (/\b(GH?[12]00|H100|H200|H20|H800)\b/.test(model)) return 'HOPPER';
  return /\b(G?B[123]00|RTX PRO [0-9]+ Blackwell)\b/i.test(model) ? 'BLACKWELL' : null;
}

/**
 * `nvidia-smi conf-compute -q`, as drivers 550 to 595 print it: `CC State : ON`, `Multi-GPU Mode : None | Protected PCIe |
 * NVLE`, `CC GPUs Ready State : Ready | Not Ready`, `DevTools Mode : OFF`. Drivers before 550 leave some of them out.
 */
function readState(text: string): { mode: ConfidentialMode | null; ready: boolean | null } {
  const value = (label: string) => new RegExp(`^\\s*${label}\\s*:\\s*(.+?)\\s*$`, 'mi').exec(text)?.[1]?.toLowerCase();
  const confidential = value('CC State');
  if (confidential === undefined) return { mode: null, ready: null };
  const multi = value('Multi-GPU Mode');
  const ready = value('CC GPUs Ready State');
  const mode: ConfidentialMode = {
    // Not told there: what NVML calls "production" cannot be seen this way.
    environment: 'production',
    confidential: confidential === 'on',
    devtools: (value('DevTools Mode') ?? 'off') !== 'off',
    multi_gpu:
      multi === undefined ? null : multi.includes('pcie') ? 'protected_pcie' : multi === 'nvle' ? 'nvle' : 'none',
  };
  return { mode, ready: ready === undefined ? null : ready === 'ready' };
}
