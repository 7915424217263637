import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 20_000,
    hookTimeout: 20_000,
    // Two workers: the suite is meant for small machines, and each file starts servers of its own.
    maxWorkers: 2,
  },
});
