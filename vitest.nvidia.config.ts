import { defineConfig } from 'vitest/config';

// `npm run test:nvidia`: NVIDIA's own verifier over the genuine evidence, beside ours. Not part of `npm test`: it installs from PyPI.
export default defineConfig({
  test: {
    include: ['test/nvidia/**/*.nvidia.ts'],
    globalSetup: ['test/nvidia/setup.ts'],
    testTimeout: 180_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
