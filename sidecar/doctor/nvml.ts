// What NVML says of the machine, through the native attester's binding, which is loaded only here and may be absent.
import { NVML, NvmlError } from '../nvml/failure.ts';
import { ARCHITECTURES } from '../nvml/session.ts';
import type { ConfidentialMode } from '../nvml/structures.ts';

export interface NvmlFacts {
  readonly driver: string;
  readonly gpus: readonly { readonly model: string; readonly arch: string | null }[];
  /** null: this driver or GPU knows no confidential computing. */
  readonly mode: ConfidentialMode | null;
  /** null: it does not say. */
  readonly ready: boolean | null;
}

const MAX_GPUS = 64;
const DEADLINE_MS = 5_000;

/** @throws {Error} without the binding, without the library, without a driver, or when a call hangs. */
export async function readNvml(library: string): Promise<NvmlFacts> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`NVML did not answer within ${DEADLINE_MS} ms`)), DEADLINE_MS);
  });
  try {
    return await Promise.race([ask(library), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function ask(library: string): Promise<NvmlFacts> {
  const [{ openLibrary }, { createNvml }] = await Promise.all([
    import('../nvml/library.ts'),
    import('../nvml/nvml.ts'),
  ]);
  const nvml = createNvml(openLibrary(library, 1));
  await nvml.init();
  try {
    const count = Math.min(await nvml.count(), MAX_GPUS);
    const gpus: NvmlFacts['gpus'][number][] = [];
    for (let index = 0; index < count; index++) {
      const handle = await nvml.handle(index);
      const arch = ARCHITECTURES[await nvml.architecture(handle)] ?? null;
      gpus.push({ model: await nvml.name(handle), arch });
    }
    const mode = await nvml.mode().catch((error: unknown) => {
      if (isUnsupported(error)) return null;
      throw error;
    });
    const ready = await nvml.ready().catch(() => null);
    return { driver: await nvml.driverVersion(), gpus, mode, ready };
  } finally {
    await nvml.shutdown().catch(() => undefined);
  }
}

const isUnsupported = (error: unknown) =>
  error instanceof NvmlError && (error.nvml_code === NVML.not_supported || error.nvml_code === NVML.function_not_found);
