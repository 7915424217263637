// Runs once before the side-by-side run: makes sure of its tools, or says by name what is missing and lets it be skipped.
import type { TestProject } from 'vitest/node';
import { MissingPart } from '../support/debian.ts';
import { nvidiaTools } from './tools.ts';
import type { Tools } from './verifier.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** How to run NVIDIA's Python verifier, or what was missing. */
    nvidiaTools: Tools | { missing: string };
  }
}

export default function setup(project: TestProject): void {
  try {
    project.provide('nvidiaTools', nvidiaTools());
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: NVIDIA's own verifier side by side: this machine lacks ${error.message}`);
    project.provide('nvidiaTools', { missing: error.message });
  }
}
