// A launch file as `npm run launch` writes it, of images that there are not.
import { hash } from 'node:crypto';
import { writeLaunch } from '../../proto/attestation/launch.ts';

export const LAUNCH = writeLaunch({
  images: Object.fromEntries(
    ['backend', 'gateway', 'sidecar'].map((name) => [name, `${name}@sha256:${'ab'.repeat(32)}`]),
  ),
  compose_sha256: 'cd'.repeat(32),
  model: { name: 'demo', verity_root: null },
  egress: 'none',
  operator: null,
});
export const LAUNCH_SHA256 = hash('sha256', LAUNCH);
