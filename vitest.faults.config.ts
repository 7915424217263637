import { defineConfig } from 'vitest/config';

// `npm run test:faults`: the service as processes, and everything that can happen to them. Linux only. Not part of `npm test`: it takes minutes.
export default defineConfig({
  test: {
    include: ['test/faults/**/*.faults.ts'],
    reporters: ['default', './test/faults/reporter.ts'],
    globalSetup: ['./test/faults/bound.ts'],
    testTimeout: 100_000,
    hookTimeout: 20_000,
    fileParallelism: false,
  },
});
