// The suite is bounded to an hour: none begins after 55 minutes. More requests may take longer.
import type { TestProject } from 'vitest/node';
import { REQUESTS } from './settings.ts';

const LAST_START_MS = 55 * 60_000;

declare module 'vitest' {
  interface ProvidedContext {
    /** Unix milliseconds. */
    lastStart_ms: number;
  }
}

export default function setup(project: TestProject): void {
  project.provide('lastStart_ms', REQUESTS.asked ? Number.MAX_SAFE_INTEGER : Date.now() + LAST_START_MS);
}
