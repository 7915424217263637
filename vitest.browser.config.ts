import { defineConfig } from 'vitest/config';

// `npm run test:browser`: the verifier's bundle, and how EventSource reads streams, in a real Chromium. Not part of `npm test`: it may install the browser.
export default defineConfig({
  test: {
    include: ['test/browser/**/*.browser.ts', 'test/decoders/**/*.browser.ts'],
    globalSetup: ['test/browser/setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
