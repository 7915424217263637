// The gateway's settings: the one place in this process that reads the environment.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import * as z from 'zod';
import { NVIDIA_OCSP_URL, NVIDIA_RIM_URL } from '../verify/index.ts';

const MiB = 1024 * 1024;
const integer = (fallback: number, min: number, max: number) =>
  z.coerce.number().int().min(min).max(max).default(fallback);
const flag = z
  .enum(['0', '1'])
  .default('0')
  .transform((value) => value === '1');

const backendKey = z
  .string()
  .trim()
  .regex(/^[!-~]+$/, 'must be printable ASCII without spaces');

const schema = z.object({
  HOST: z.string().min(1).default('127.0.0.1'),
  PORT: integer(8080, 0, 65_535),
  BACKEND_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL such as http://127.0.0.1:8000/v1' })
    .refine(
      (url) => !/[?#]|\/\/[^/]*@/.test(url),
      'must have no query and no user name: a key goes into BACKEND_API_KEY',
    )
    .transform((url) => url.replace(/\/+$/, '')),
  BACKEND_API_KEY: backendKey.optional(),
  BACKEND_API_KEY_FILE: z.string().min(1).optional(),
  SIDECAR_SOCKET: z
    .string()
    .min(1)
    .max(100, 'must be 100 characters or fewer: a Unix socket address has room for 107 bytes')
    .refine((path) => !path.includes(':'), 'must not contain a colon')
    .default('run/sidecar.sock'),
  API_KEYS_FILE: z.string().min(1).optional(),
  MAX_BODY_BYTES: integer(16 * MiB, 1024, 256 * MiB),
  MAX_ANSWER_BYTES: integer(32 * MiB, 1024, 256 * MiB),
  MAX_CONCURRENT_REQUESTS: integer(4096, 1, 1_000_000),
  BACKEND_TIMEOUT_MS: integer(600_000, 100, 86_400_000),
  SIDECAR_WAIT_MS: integer(3_000, 0, 60_000),
  ATTEST_TIMEOUT_MS: integer(60_000, 100, 3_600_000),
  ATTESTATION_TTL_MS: integer(3_600_000, 1_000, 604_800_000),
  ATTESTATION_STORE_BYTES: integer(256 * MiB, MiB, 1024 * 1024 * MiB),
  ALLOW_SIMULATED: flag,
  RIM_URL: z.url({ protocol: /^https?$/ }).default(NVIDIA_RIM_URL),
  OCSP_URL: z.url({ protocol: /^https?$/ }).default(NVIDIA_OCSP_URL),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
});

export interface GatewayConfig {
  readonly host: string;
  readonly port: number;
  /** Without a trailing slash; its path stands where a client writes `/v1`. */
  readonly backend_url: string;
  readonly backend_api_key: string | null;
  /** Absolute path. */
  readonly sidecar_socket: string;
  readonly api_keys_file: string | null;
  readonly max_body_bytes: number;
  /** Largest answer, whole or streamed, that is kept to be attested. */
  readonly max_answer_bytes: number;
  readonly max_concurrent_requests: number;
  /** Longest silence of the backend: until its headers, then between any two pieces of its answer. */
  readonly backend_timeout_ms: number;
  /** How long a tee request waits for a sidecar that is away before it is refused. */
  readonly sidecar_wait_ms: number;
  readonly attest_timeout_ms: number;
  readonly attestation_ttl_ms: number;
  readonly attestation_store_bytes: number;
  readonly allow_simulated: boolean;
  /** Services that the verify endpoint asks for reference values and revocation answers. */
  readonly rim_url: string;
  readonly ocsp_url: string;
  readonly log_level: string;
}

/** The configuration does not allow a start. The message is one line that names the variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/;

/** @throws {ConfigError} */
export function loadConfig(env: NodeJS.ProcessEnv): GatewayConfig {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ''));
  const parsed = schema.safeParse(given);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const name = String(issue?.path[0]);
    throw new ConfigError(name in given ? `${name} ${issue?.message ?? 'is wrong'}` : `${name} is required`);
  }
  const e = parsed.data;
  if (e.API_KEYS_FILE === undefined && !LOOPBACK.test(e.HOST))
    throw new ConfigError(`API_KEYS_FILE is required when HOST (${e.HOST}) is not a loopback address`);
  return {
    host: e.HOST.replace(/^\[|\]$/g, ''),
    port: e.PORT,
    backend_url: e.BACKEND_URL,
    backend_api_key: e.BACKEND_API_KEY ?? keyFrom(e.BACKEND_API_KEY_FILE),
    sidecar_socket: resolve(e.SIDECAR_SOCKET),
    api_keys_file: e.API_KEYS_FILE ?? null,
    max_body_bytes: e.MAX_BODY_BYTES,
    max_answer_bytes: e.MAX_ANSWER_BYTES,
    max_concurrent_requests: e.MAX_CONCURRENT_REQUESTS,
    backend_timeout_ms: e.BACKEND_TIMEOUT_MS,
    sidecar_wait_ms: e.SIDECAR_WAIT_MS,
    attest_timeout_ms: e.ATTEST_TIMEOUT_MS,
    attestation_ttl_ms: e.ATTESTATION_TTL_MS,
    attestation_store_bytes: e.ATTESTATION_STORE_BYTES,
    allow_simulated: e.ALLOW_SIMULATED,
    rim_url: e.RIM_URL,
    ocsp_url: e.OCSP_URL,
    log_level: e.LOG_LEVEL,
  };
}

/** The same as a file, as containers are given secrets. */
function keyFrom(file: string | undefined): string | null {
  if (file === undefined) return null;
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new ConfigError(`BACKEND_API_KEY_FILE cannot be read: ${(cause as NodeJS.ErrnoException).code}`, { cause });
  }
  const key = backendKey.safeParse(text);
  if (!key.success) throw new ConfigError(`BACKEND_API_KEY_FILE ${key.error.issues[0]?.message}`);
  return key.data;
}
