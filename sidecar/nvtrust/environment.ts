// What of the sidecar's environment a worker may see: an allow-list, under the names that NVIDIA's code reads.

import { passedOn } from '../environment.ts';

const MORE = ['HTTP_PROXY', 'NVIDIA_ATTESTATION_SERVICE_KEY'] as const;

/** Ours, what NVIDIA's code calls it, and the path that its code expects there: ours may name the service alone. */
const SERVICES = [
  { ours: 'RIM_URL', theirs: 'NV_RIM_URL', path: '/v1/rim/' },
  { ours: 'OCSP_URL', theirs: 'NV_OCSP_URL', path: '/' },
] as const;

export type WorkerEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. */
export function workerEnvironment(env: Readonly<Record<string, string | undefined>>): WorkerEnvironment {
  const chosen: Record<string, string> = { PYTHONUTF8: '1', PYTHONDONTWRITEBYTECODE: '1', ...passedOn(env, MORE) };
  for (const { ours, theirs, path } of SERVICES) {
    const value = env[ours];
    if (value === undefined || value === '') continue;
    const base = value.replace(/\/+$/, '');
    chosen[theirs] = base.endsWith(path.replace(/\/+$/, '')) ? `${base}/` : `${base}${path}`;
  }
  return chosen;
}
