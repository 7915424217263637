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
export function passedOn(
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
