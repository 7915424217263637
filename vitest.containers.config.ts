import { defineConfig } from 'vitest/config';

// `npm run test:containers`: the images and compose.yaml on a Docker daemon of its own. Not part of `npm test`: it installs Docker.
export default defineConfig({
  test: {
    include: ['test/containers/**/*.containers.ts'],
    globalSetup: ['test/containers/setup.ts'],
    testTimeout: 180_000,
    hookTimeout: 180_000,
    // Taking everything down takes a while too.
    teardownTimeout: 120_000,
    fileParallelism: false,
  },
});
