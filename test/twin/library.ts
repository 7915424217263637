// Builds the stand-in for libnvidia-ml.so.1 with gcc; loaders find it through LD_LIBRARY_PATH.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart } from './missing.ts';

const SOURCE = fileURLToPath(new URL('nvml.c', import.meta.url));

/** @throws {MissingPart} without gcc. */
export function buildLibrary(folder: string): void {
  const flags = ['-std=c11', '-O1', '-Wall', '-Wextra', '-Werror', '-fvisibility=hidden', '-shared', '-fPIC'];
  const gcc = spawnSync('gcc', [...flags, '-o', join(folder, 'libnvidia-ml.so.1'), SOURCE], { encoding: 'utf8' });
  if ((gcc.error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT') throw new MissingPart('gcc');
  if (gcc.status !== 0) throw new Error(`gcc: ${gcc.error?.message ?? gcc.stderr}`);
}
