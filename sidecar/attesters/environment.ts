// What of the sidecar's environment a process that it starts may see: an allow-list.

/** Where programs, libraries and certificates lie, the way to the network, and which GPUs there are. */
const COMMON = [
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
  'NVIDIA_VISIBLE_DEVICES',
  'NVIDIA_DRIVER_CAPABILITIES',
] as const;

/** Those that are set, and not empty, of the common names and of `more`. */
function inheritedVariables(
  env: Readonly<Record<string, string | undefined>>,
  more: readonly string[],
): Record<string, string> {
  const chosen: Record<string, string> = {};
  for (const name of [...COMMON, ...more]) {
    const value = env[name];
    if (value !== undefined && value !== '') chosen[name] = value;
  }
  return chosen;
}

// What of the sidecar's environment nvattest may see: an allow-list, under the names that it reads.

const NVATTEST_NAMES = ['NVAT_TLS_CA_CERT', 'NVAT_TLS_CA_PATH'] as const;

export type NvattestEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. The service key goes this way: arguments are seen by every user. */
export function nvattestEnvironment(env: Readonly<Record<string, string | undefined>>): NvattestEnvironment {
  const chosen = inheritedVariables(env, NVATTEST_NAMES);
  const key = env.NVIDIA_ATTESTATION_SERVICE_KEY;
  if (key !== undefined && key !== '') chosen.NV_ATTESTATION_SERVICE_KEY = key;
  return chosen;
}

// What of the sidecar's environment a worker may see: an allow-list, under the names that NVIDIA's code reads.

const WORKER_NAMES = ['HTTP_PROXY', 'NVIDIA_ATTESTATION_SERVICE_KEY'] as const;

/** Ours, what NVIDIA's code calls it, and the path that its code expects there: ours may name the service alone. */
const SERVICES = [
  { ours: 'RIM_URL', theirs: 'NV_RIM_URL', path: '/v1/rim/' },
  { ours: 'OCSP_URL', theirs: 'NV_OCSP_URL', path: '/' },
] as const;

export type WorkerEnvironment = Readonly<Record<string, string>>;

/** For `config.ts`, which alone reads the environment. */
export function workerEnvironment(env: Readonly<Record<string, string | undefined>>): WorkerEnvironment {
  const chosen: Record<string, string> = {
    PYTHONUTF8: '1',
    PYTHONDONTWRITEBYTECODE: '1',
    ...inheritedVariables(env, WORKER_NAMES),
  };
  for (const { ours, theirs, path } of SERVICES) {
    const value = env[ours];
    if (value === undefined || value === '') continue;
    const base = value.replace(/\/+$/, '');
    chosen[theirs] = base.endsWith(path.replace(/\/+$/, '')) ? `${base}/` : `${base}${path}`;
  }
  return chosen;
}
