// Genuine attestation data, read in place and never copied here: see ../shared/vectors/README.md.
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = new URL('../../../shared/vectors/', import.meta.url);

/** False where the folder is not there: tests that need it are skipped, by name. */
export const vectorsPresent: boolean = existsSync(folder);
if (!vectorsPresent)
  console.warn(`SKIPPED: tests over genuine attestation data: ${fileURLToPath(folder)} is not there`);

/** `path` within the folder: 'nvidia/h100-550.90.07/report.bin'. */
export function vector(path: string): Buffer {
  return readFileSync(new URL(path, folder));
}
