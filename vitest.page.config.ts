import { defineConfig } from 'vitest/config';

// `npm run test:page`: the page in a real Chromium, on a gateway of its own. Not part of `npm test`: it may install the browser.
export default defineConfig({
  test: {
    include: ['test/page/**/*.page.ts'],
    globalSetup: ['test/browser/setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
