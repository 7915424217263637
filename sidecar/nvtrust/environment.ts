// What of the sidecar's environment a worker may see: an allow-list, under the names that NVIDIA's code reads.

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
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'NVIDIA_VISIBLE_DEVICES',
  'NVIDIA_DRIVER_CAPABILITIES',
  'NVIDIA_ATTESTATION_SERVICE_KEY',
] as const;

/** Ours, and what NVIDIA's code calls it. */
const RENAMED = { RIM_URL: 'NV_RIM_URL', OCSP_URL: 'NV_OCSP_URL' } as const;

export type WorkerEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. */
export function workerEnvironment(env: Readonly<Record<string, string | undefined>>): WorkerEnvironment {
  const chosen: Record<string, string> = { PYTHONUTF8: '1', PYTHONDONTWRITEBYTECODE: '1' };
  for (const name of PASSED) {
    const value = env[name];
    if (value !== undefined && value !== '') chosen[name] = value;
  }
  for (const [ours, theirs] of Object.entries(RENAMED)) {
    const value = env[ours];
    if (value !== undefined && value !== '') chosen[theirs] = value;
  }
  return chosen;
}
