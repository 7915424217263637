import { defineConfig } from 'vitest/config';

// `npm run test:examples`: every program of examples/ as a reader would run it. What installs packages is not part of `npm test`.
export default defineConfig({
  test: {
    include: ['test/examples/**/*.{test,example}.ts'],
    testTimeout: 120_000,
    hookTimeout: 300_000,
    fileParallelism: false,
  },
});
