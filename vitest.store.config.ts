import { defineConfig } from 'vitest/config';

// `npm run test:store`: a real Valkey or Redis server between gateways. Not part of `npm test`: it installs Debian's package.
export default defineConfig({
  test: {
    include: ['test/store/**/*.store.ts'],
    testTimeout: 60_000,
    hookTimeout: 240_000,
    fileParallelism: false,
  },
});
