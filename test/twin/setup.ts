// Runs once before the nvtrust tests: makes sure of NVIDIA's SDK and of gcc, or says by name what is missing.
import type { TestProject } from 'vitest/node';
import { temporaryFolder } from '../support/harness.ts';
import { buildLibrary } from './library.ts';
import { MissingPart } from './missing.ts';
import { sdkVenv } from './venv.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** What this machine lacks for the twin; null: nothing. */
    twinLacks: string | null;
  }
}

export default function setup(project: TestProject): void {
  const folder = temporaryFolder();
  try {
    buildLibrary(folder.path);
    sdkVenv();
    project.provide('twinLacks', null);
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: everything over NVIDIA's own verifier: this machine lacks ${error.message}`);
    project.provide('twinLacks', error.message);
  } finally {
    folder.remove();
  }
}
