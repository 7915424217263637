// What of the sidecar's environment nvattest may see: an allow-list, under the names that it reads.

import { passedOn } from '../environment.ts';

const MORE = ['NVAT_TLS_CA_CERT', 'NVAT_TLS_CA_PATH'] as const;

export type NvattestEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. The service key goes this way: arguments are seen by every user. */
export function nvattestEnvironment(env: Readonly<Record<string, string | undefined>>): NvattestEnvironment {
  const chosen = passedOn(env, MORE);
  const key = env.NVIDIA_ATTESTATION_SERVICE_KEY;
  if (key !== undefined && key !== '') chosen.NV_ATTESTATION_SERVICE_KEY = key;
  return chosen;
}
