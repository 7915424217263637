// Runs once before the engine tests: makes sure of llama-server, or says by name what is missing and lets its tests be skipped.
import type { TestProject } from 'vitest/node';
import { builtServer, MissingPart } from './build.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of llama-server, or what was missing to build it. */
    llamaServer: { path: string } | { missing: string };
  }
}

export default async function setup(project: TestProject): Promise<void> {
  try {
    project.provide('llamaServer', { path: await builtServer() });
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: everything over llama-server: this machine lacks ${error.message}`);
    project.provide('llamaServer', { missing: error.message });
  }
}
