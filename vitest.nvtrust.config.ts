import { defineConfig } from 'vitest/config';

// `npm run test:nvtrust`: NVIDIA's own Python SDK over a simulated GPU. Not part of `npm test`: its first run installs the SDK.
export default defineConfig({
  test: {
    include: ['test/**/*.nvtrust.ts'],
    globalSetup: ['test/twin/setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
