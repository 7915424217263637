// Genuine evidence, never copied into the project: genuine.json names each file's public source, licence and SHA-256, and
// `npm run make genuine` brings them. They are read in the folder that GENUINE_VECTORS names, else in .cache/genuine, else in ../shared/vectors.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface GenuineVector {
  /** Within the folder: `nvidia/roots/rim-root.pem`. */
  readonly path: string;
  readonly sha256: string;
  readonly licence: string;
  /** Each `repository@commit:path`; without `:path` where that is not known. */
  readonly source: readonly string[];
  /** What makes the file from its one source; none: it is the source. */
  readonly steps?: readonly string[];
  /** Why no program can make it from its sources. */
  readonly by_hand?: string;
}

export const CACHE = fileURLToPath(new URL('../../.cache/genuine', import.meta.url));
export const HOW_TO_BRING = '`npm run make genuine` brings them';

export const genuineVectors = (): GenuineVector[] =>
  JSON.parse(readFileSync(new URL('genuine.json', import.meta.url), 'utf8'));

/** The folder that a variable names; null: none. */
export const NAMED_FOLDER = process.env.GENUINE_VECTORS || null;
const shared = fileURLToPath(new URL('../../../shared/vectors', import.meta.url));
const whole = (folder: string) => genuineVectors().every(({ path }) => existsSync(join(folder, path)));

/** Null where no folder has all of them. */
const folder = (NAMED_FOLDER === null ? [CACHE, shared] : [NAMED_FOLDER]).find(whole) ?? null;

/** False where they are not there: tests that need them are skipped, by name. */
export const vectorsPresent: boolean = folder !== null;
if (!vectorsPresent) console.warn(`SKIPPED: tests over genuine evidence: ${HOW_TO_BRING}`);

/** A file's place by its path within the folder: `nvidia/h100-550.90.07/report.bin`. */
export const vectorPath = (path: string): string => join(folder ?? CACHE, path);

export const vector = (path: string): Buffer => readFileSync(vectorPath(path));
