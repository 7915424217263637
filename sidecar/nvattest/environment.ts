// What of the sidecar's environment nvattest may see: an allow-list, under the names that it reads.

/** Passed on as they are: where libraries and certificates lie, and the way to the network. */
const PASSED = [
  'PATH',
  'LANG',
  'LC_ALL',
  'TZ',
  'LD_LIBRARY_PATH',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'HTTPS_PROXY',
  'NO_PROXY',
  'NVAT_TLS_CA_CERT',
  'NVAT_TLS_CA_PATH',
  'NVIDIA_VISIBLE_DEVICES',
  'NVIDIA_DRIVER_CAPABILITIES',
] as const;

export type NvattestEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. The service key goes this way: arguments are seen by every user. */
export function nvattestEnvironment(env: Readonly<Record<string, string | undefined>>): NvattestEnvironment {
  const chosen: Record<string, string> = {};
  for (const name of PASSED) {
    const value = env[name];
    if (value !== undefined && value !== '') chosen[name] = value;
  }
  const key = env.NVIDIA_ATTESTATION_SERVICE_KEY;
  if (key !== undefined && key !== '') chosen.NV_ATTESTATION_SERVICE_KEY = key;
  return chosen;
}
