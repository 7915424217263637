// Runs once before the browser tests: makes sure of Chromium, or says by name what is missing and lets them be skipped.
import type { TestProject } from 'vitest/node';
import { writePage } from '../../scripts/build-page.ts';
import { debianProgram, MissingPart } from '../support/debian.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of Debian's Chromium, or what was missing. */
    chromium: { path: string } | { missing: string };
  }
}

export default async function setup(project: TestProject): Promise<void> {
  // A page that was built before would be served in place of the one that is to be tested.
  await writePage();
  try {
    project.provide('chromium', { path: debianProgram('chromium', 'chromium') });
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: the verifier in a real browser: this machine lacks ${error.message}`);
    project.provide('chromium', { missing: error.message });
  }
}
