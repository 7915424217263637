import { defineConfig } from 'vitest/config';

// `npm run test:deploy`: the systemd units under a systemd of their own, the Kubernetes manifests against its schemas.
// Not part of `npm test`: its first run fetches kustomize, kubeconform and Kubernetes' API description.
export default defineConfig({
  test: {
    include: ['test/deploy/**/*.deploy.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
