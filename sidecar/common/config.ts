// The sidecar's settings: the one place in this process that reads the environment.

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import * as z from 'zod';
import {
  ConfigError,
  given,
  httpUrl,
  logLevel,
  parseVariables,
  refuseRemoved,
  type Settings,
  settingsOf,
  socketPath,
} from '../../node/settings.ts';
import { readLaunch } from '../../proto/attestation/launch.ts';
import { JsonTextError } from '../../proto/json.ts';
import type { ProgramEnvironment } from './program.ts';

export { ConfigError };

// The socket that a service manager passes on: sd_listen_fds(3), so that connections queue while the sidecar restarts.

/** The first descriptor that is passed on (SD_LISTEN_FDS_START of sd_listen_fds(3)). */
const FIRST_FD = 3;

/**
 * The descriptor of the listening socket that this process was started with; null when there is none, or it was meant for another process.
 * @throws {Error} one line: more than one socket, or a count that is no number.
 */
export function inheritedSocket(env: Readonly<Record<string, string | undefined>>, pid: number): number | null {
  const { LISTEN_PID, LISTEN_FDS } = env;
  if (LISTEN_PID !== String(pid)) return null;
  if (LISTEN_FDS === undefined || LISTEN_FDS === '0') return null;
  if (LISTEN_FDS !== '1') throw new Error(`LISTEN_FDS is ${LISTEN_FDS}: one socket is expected`);
  return FIRST_FD;
}

/** How Node is started for the sidecar: by default the garbage of 10,000 waiting requests takes 70 MB, with this a quarter to three quarters of it. */
export const NODE_FLAGS = ['--max-semi-space-size=4'] as const;

const ATTESTERS = ['auto', 'nvtrust', 'nvattest', 'native', 'nras', 'simulated'] as const;
export type AttesterName = (typeof ATTESTERS)[number];

const CPU_EVIDENCE = ['off', 'auto', 'required'] as const;
/** The sidecar's own entry in Linux's configfs-tsm, made by root (cpu/tsm-entry.sh). */
export const TSM_ENTRY = '/sys/kernel/config/tsm/report/countersign';
/** Behind Azure's paravisor there is a TPM in place of configfs-tsm. */
export const AZURE_TPM = '/dev/tpmrm0';
/** Intel's own service. Unlike a PCCS, it serves the root's revocation list from another host. */
export const INTEL_PCS_URL = 'https://api.trustedservices.intel.com';

/** Every variable with its description; docs/configuration.md is generated from this. */
export const schema = z.object({
  SIDECAR_SOCKET: socketPath(resolve).describe(
    'The Unix socket to listen on; its folder is made 0750, the socket 0660',
  ),
  ATTESTER: z
    .enum(ATTESTERS, `must be one of ${ATTESTERS.join(', ')}`)
    .default('auto')
    .describe('Who collects and appraises evidence ([list](operate.md#the-machine))'),
  SIGNERS: z
    .enum(['all', 'any'])
    .default('all')
    .describe(
      '`any`: one free GPU signs each nonce, not all; only with `native` or `nras`. The driver serves one at a time',
    ),
  SELF_CHECK: z
    .enum(['0', '1'])
    .default('1')
    .transform((value) => value === '1')
    .describe(
      '`0`: what a GPU signed goes to the gateway unchecked, which checks it in any case; for a socket that only trusted processes reach',
    ),
  CPU_EVIDENCE: z
    .enum(CPU_EVIDENCE)
    .default('off')
    .describe(
      'Whether the processor signs too; `auto`: where it fails, answers go without it; `required`: nothing is attested then',
    ),
  TSM_ENTRY: z
    .string()
    .min(1)
    .default(TSM_ENTRY)
    .describe('The processor’s entry in configfs-tsm, which `countersign-tsm.service` makes'),
  LAUNCH_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('The launch file that `npm run launch` wrote; needs `CPU_EVIDENCE`'),
  KDS_URL: httpUrl.default('https://kdsintf.amd.com').describe('AMD’s service for certificates and revocation lists'),
  PCS_URL: httpUrl.default(INTEL_PCS_URL).describe('Intel’s service for collateral, or a PCCS'),
  NVTRUST_VENV: z
    .string()
    .min(1)
    .default('run/nvtrust-venv')
    .describe('`nvtrust`: the Python environment that its `install.sh` makes'),
  COLLATERAL_DIR: z
    .string()
    .min(1)
    .default('run/collateral')
    .describe('`native`, `CPU_EVIDENCE`: where fetched endorsements are kept across restarts'),
  NRAS_URL: httpUrl.optional().describe('`nras`: a service other than NVIDIA’s'),
  NRAS_SERVICE_KEY_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('A file with the service key that NVIDIA gives its customers'),
  RIM_URL: httpUrl.optional().describe('A service for reference values, in place of NVIDIA’s'),
  OCSP_URL: httpUrl.optional().describe('A service for revocation, in place of NVIDIA’s'),
  LOG_LEVEL: logLevel.describe('JSON lines on stdout; from `info` on one an attestation, never content'),
});

/** Members of the configuration that no variable sets. */
export const LIMITS = {
  /** Requests that may wait for the GPU. */
  attest_queue_max: 1024,
  /** The longest time from a request to its response. */
  attest_deadline_ms: 50_000,
  /** How long running attestations may take after SIGTERM. */
  drain_ms: 5_000,
  /** nvtrust: worker processes kept ready. With two, one is at work and one warm. */
  nvtrust_workers: 2,
  /** Driver calls that may run at once: one less than the threads that Node has for such calls. */
  nvml_parallel_calls: 3,
};

/** Programs and libraries of NVIDIA's, as their packages name them. */
const PROGRAMS = {
  nvml_library: 'libnvidia-ml.so.1',
  nscq_library: 'libnvidia-nscq.so.2',
  /** Found on PATH. */
  nvattest: 'nvattest',
};

const simulated = (option: string): string => `it is the option ${option} of npm start and of demo/twin/main.ts`;

/**
 * Settings that are gone, and what replaces each, or its value now. The sidecar once had a DRAIN_MS of its own; that name is the gateway's,
 * and may be set for both.
 */
export const REMOVED: ReadonlyMap<string, string> = new Map([
  ['ATTEST_QUEUE_MAX', `at most ${LIMITS.attest_queue_max.toLocaleString('en-US')} requests wait for the GPU`],
  ['ATTEST_DEADLINE_MS', `an attestation takes at most ${LIMITS.attest_deadline_ms / 1000} s`],
  ['NVTRUST_WORKERS', `there are ${LIMITS.nvtrust_workers} workers`],
  ['NVML_LIBRARY', `the driver’s ${PROGRAMS.nvml_library} is loaded; LD_LIBRARY_PATH says from where`],
  ['NSCQ_LIBRARY', `the driver’s ${PROGRAMS.nscq_library} is loaded; LD_LIBRARY_PATH says from where`],
  ['UV_THREADPOOL_SIZE', `Node has its 4 threads, and ${LIMITS.nvml_parallel_calls} driver calls run at once`],
  ['NVIDIA_ATTESTATION_SERVICE_KEY', 'write the key into a file, and name it in NRAS_SERVICE_KEY_FILE'],
  ['NVATTEST', `the program ${PROGRAMS.nvattest} is found on PATH`],
  ['GATEWAY_URL', 'it is the option --gateway of the doctor'],
  ['SIMULATED_ROOT_DIR', simulated('--root-dir')],
  ['SIMULATED_GPUS', simulated('--gpus')],
  ['SIMULATED_COLLECTION_MS', simulated('--collection-ms')],
  ['SIMULATED_CPU', simulated('--cpu')],
  ['SIMULATED_CPU_MS', simulated('--cpu-ms')],
]);

type Constants = Readonly<typeof LIMITS & typeof PROGRAMS>;

/** Settings under their variables' names in lower case, with derived values and constants. Folders are absolute paths. */
export interface SidecarConfig extends Settings<z.output<typeof schema>>, Constants {
  /** The socket that systemd already listens on, instead of `sidecar_socket`; null without one. */
  readonly inherited_fd: number | null;
  /** The environment of a worker process, with RIM_URL and OCSP_URL under NVIDIA's names. */
  readonly worker_environment: ProgramEnvironment;
  readonly nvattest_environment: ProgramEnvironment;
}

/** @throws {ConfigError} */
export function loadConfig(env: NodeJS.ProcessEnv, pid = process.pid): SidecarConfig {
  refuseRemoved(env, REMOVED);
  const settings = settingsOf(schema, parseVariables(schema, env));
  if (settings.launch_file !== null && settings.cpu_evidence === 'off')
    throw new ConfigError('LAUNCH_FILE says what a processor vouches for: it needs CPU_EVIDENCE');
  if (settings.signers === 'any' && ['auto', 'nvtrust', 'nvattest'].includes(settings.attester))
    throw new ConfigError(`SIGNERS=any needs ATTESTER=native or nras: with ${settings.attester} every GPU signs`);
  return {
    ...settings,
    ...LIMITS,
    ...PROGRAMS,
    nvtrust_venv: resolve(settings.nvtrust_venv),
    collateral_dir: resolve(settings.collateral_dir),
    tsm_entry: resolve(settings.tsm_entry),
    inherited_fd: inherited(env, pid),
    worker_environment: workerEnvironment(env, settings),
    nvattest_environment: nvattestEnvironment(env),
  };
}

/** The launch file's text; null without one. @throws {ConfigError} */
export async function readLaunchFile({ launch_file }: Pick<SidecarConfig, 'launch_file'>): Promise<string | null> {
  if (launch_file === null) return null;
  try {
    const text = readFileSync(launch_file, 'utf8');
    await readLaunch(text);
    return text;
  } catch (cause) {
    const reason =
      cause instanceof JsonTextError ? cause.message : ((cause as NodeJS.ErrnoException).code ?? 'unknown');
    throw new ConfigError(`LAUNCH_FILE ${launch_file} cannot be used: ${reason}`, { cause });
  }
}

function inherited(env: NodeJS.ProcessEnv, pid: number): number | null {
  try {
    return inheritedSocket(env, pid);
  } catch (cause) {
    throw new ConfigError((cause as Error).message, { cause });
  }
}

// Allow-list of environment variables for child processes (nvattest, workers), under the names that NVIDIA's code reads.

/** Paths of programs, libraries and certificates, locale, proxies, and which GPUs are visible. */
const INHERITED = [
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

/** The variables of {@link INHERITED} and of `more` that are set and not empty. */
function inheritedVariables(env: NodeJS.ProcessEnv, more: readonly string[]): ProgramEnvironment {
  const variables = given(env);
  const names = [...INHERITED, ...more].filter((name) => Object.hasOwn(variables, name));
  return Object.fromEntries(names.map((name) => [name, variables[name] as string]));
}

type ServiceSettings = Pick<Settings<z.output<typeof schema>>, 'rim_url' | 'ocsp_url'>;

/** The environment, because every user can see arguments, with the service key under the name that NVIDIA's program reads. The key is in no error. @throws {ConfigError} */
export function withServiceKey(environment: ProgramEnvironment, name: string, file: string | null): ProgramEnvironment {
  if (file === null) return environment;
  let key: string;
  try {
    key = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new ConfigError(`NRAS_SERVICE_KEY_FILE ${file} cannot be read (${code})`, { cause });
  }
  if (!/^[!-~]{1,4096}$/.test(key)) throw new ConfigError(`NRAS_SERVICE_KEY_FILE ${file} must hold one line, the key`);
  return { ...environment, [name]: key };
}

function nvattestEnvironment(env: NodeJS.ProcessEnv) {
  return {
    ...inheritedVariables(env, ['NVAT_TLS_CA_CERT', 'NVAT_TLS_CA_PATH']),
  };
}

function workerEnvironment(env: NodeJS.ProcessEnv, settings: ServiceSettings): ProgramEnvironment {
  const { rim_url, ocsp_url } = settings;
  return {
    PYTHONUTF8: '1',
    PYTHONDONTWRITEBYTECODE: '1',
    ...inheritedVariables(env, ['HTTP_PROXY']),
    ...(rim_url === null ? {} : { NV_RIM_URL: withPath(rim_url, '/v1/rim/') }),
    ...(ocsp_url === null ? {} : { NV_OCSP_URL: withPath(ocsp_url, '/') }),
  };
}

/** Adds the path that NVIDIA's code expects; our setting may name only the host. */
function withPath(url: string, path: string): string {
  const base = url.replace(/\/+$/, '');
  return base.endsWith(path.replace(/\/+$/, '')) ? `${base}/` : `${base}${path}`;
}
