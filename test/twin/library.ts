// Builds the stand-ins for NVIDIA's libraries with gcc; loaders find them through LD_LIBRARY_PATH.
import { spawnSync } from 'node:child_process';
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart } from './missing.ts';

/** As their drivers' packages name them. */
export const NVML_FILE = 'libnvidia-ml.so.1';
export const NSCQ_FILE = 'libnvidia-nscq.so.2';
/** The socket beside them, on which the server answers. */
export const SOCKET_FILE = 'twin.sock';

/** @throws {MissingPart} without gcc. */
export function buildLibrary(folder: string): void {
  build(folder, 'nvml.c', NVML_FILE);
}

/** The switches' library too. Python looks for it under its linker's name. @throws {MissingPart} without gcc. */
export function buildSwitchLibrary(folder: string): void {
  build(folder, 'nscq.c', NSCQ_FILE);
  symlinkSync(NSCQ_FILE, join(folder, 'libnvidia-nscq.so'));
}

function build(folder: string, source: string, library: string): void {
  const flags = ['-std=c11', '-O1', '-Wall', '-Wextra', '-Werror', '-fvisibility=hidden', '-shared', '-fPIC'];
  const files = ['-o', join(folder, library), fileURLToPath(new URL(source, import.meta.url))];
  const gcc = spawnSync('gcc', [...flags, `-Wl,-soname,${library}`, ...files], { encoding: 'utf8' });
  if ((gcc.error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT') throw new MissingPart('gcc');
  if (gcc.status !== 0) throw new Error(`gcc: ${gcc.error?.message ?? gcc.stderr}`);
}
