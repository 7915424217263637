import { defineConfig } from 'vitest/config';

// `npm run test:engines`: a real llama-server behind the gateway. Not part of `npm test`: its first run builds llama.cpp.
export default defineConfig({
  test: {
    include: ['test/engines/**/*.engine.ts'],
    globalSetup: ['test/engines/setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
