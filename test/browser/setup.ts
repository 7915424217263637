// Runs once before the browser tests: makes sure of Chromium, or says by name what is missing and lets them be skipped.
import type { TestProject } from 'vitest/node';
import { debianProgram, MissingPart } from '../debian.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of Debian's Chromium, or what was missing. */
    chromium: { path: string } | { missing: string };
  }
}

export default function setup(project: TestProject): void {
  try {
    project.provide('chromium', { path: debianProgram('chromium', 'chromium') });
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: the verifier in a real browser: this machine lacks ${error.message}`);
    project.provide('chromium', { missing: error.message });
  }
}
