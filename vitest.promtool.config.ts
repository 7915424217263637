import { defineConfig } from 'vitest/config';

// `npm run test:promtool`: Prometheus' own tool reads the metrics and the alert rules. Not part of `npm test`: it is built from Go first.
export default defineConfig({
  test: {
    include: ['test/promtool/**/*.promtool.ts'],
    globalSetup: ['test/promtool/setup.ts'],
    testTimeout: 30_000,
  },
});
