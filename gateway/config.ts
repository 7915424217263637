// The gateway's settings: the one place in this process that reads the environment.
import { resolve } from 'node:path';
import * as z from 'zod';
import { NVIDIA_OCSP_URL, NVIDIA_RIM_URL } from '../verify/index.ts';

const MiB = 1024 * 1024;
const integer = (fallback: number, min: number, max: number) =>
  z.coerce.number().int().min(min).max(max).default(fallback);
/** 0: no limit. */
const limit = (fallback: number, max = 1_000_000) => integer(fallback, 0, max);
const flag = z
  .enum(['0', '1'])
  .default('0')
  .transform((value) => value === '1');

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
  BACKEND_API_KEY: z
    .string()
    .trim()
    .regex(/^[!-~]+$/, 'must be printable ASCII without spaces')
    .optional(),
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
  MAX_CONCURRENT_PER_KEY: limit(0),
  MAX_REQUESTS_PER_SECOND_PER_KEY: limit(0),
  MAX_HELD_BYTES: integer(512 * MiB, MiB, 1024 * 1024 * MiB),
  MAX_STREAMS: integer(4096, 1, 1_000_000),
  MAX_STREAMS_PER_KEY: limit(0),
  MAX_TEE_PER_KEY: limit(0),
  MAX_STREAM_BYTES: integer(256 * MiB, 1024, 1024 * 1024 * MiB),
  MAX_STREAM_EVENTS: integer(1_000_000, 1, 1_000_000_000),
  MAX_ANSWER_MS: integer(3_600_000, 100, 86_400_000),
  WRITE_STALL_MS: integer(60_000, 100, 86_400_000),
  MAX_VERIFY_BYTES: integer(16 * MiB, 1024, 64 * MiB),
  MAX_VERIFY_CONCURRENT: integer(32, 1, 10_000),
  MAX_VERIFY_PER_SECOND: limit(50),
  VERIFY_TIMEOUT_MS: integer(30_000, 100, 600_000),
  CLIENT_ADDRESS_HEADER: z
    .string()
    .regex(/^[a-z0-9-]{1,64}$/i, 'must be the name of a header')
    .transform((name) => name.toLowerCase())
    .optional(),
  BACKEND_TIMEOUT_MS: integer(600_000, 100, 86_400_000),
  SIDECAR_WAIT_MS: integer(3_000, 0, 60_000),
  ATTEST_TIMEOUT_MS: integer(60_000, 100, 3_600_000),
  MAX_ATTESTATIONS_IN_FLIGHT: integer(16, 1, 1024),
  ATTESTATION_TTL_MS: integer(3_600_000, 1_000, 604_800_000),
  ATTESTATION_STORE_BYTES: integer(256 * MiB, MiB, 1024 * 1024 * MiB),
  ATTESTATION_STORE_URL: z
    .url({ protocol: /^(redis|rediss|valkey|valkeys)$/, error: 'must be a URL such as redis://127.0.0.1:6379' })
    .optional(),
  ATTESTATION_STORE_TIMEOUT_MS: integer(500, 10, 60_000),
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
  /** Per key, 0: no limit; a key's own line in the keys file goes before. */
  readonly max_concurrent_per_key: number;
  readonly max_requests_per_second_per_key: number;
  readonly max_streams_per_key: number;
  readonly max_tee_per_key: number;
  /** Requests, and answers that are to be attested, of all exchanges that run. */
  readonly max_held_bytes: number;
  readonly max_streams: number;
  readonly max_stream_bytes: number;
  readonly max_stream_events: number;
  /** From the request to the backend to the end of its answer. */
  readonly max_answer_ms: number;
  /** How long a client may take not one byte of what waits for it. */
  readonly write_stall_ms: number;
  readonly max_verify_bytes: number;
  readonly max_verify_concurrent: number;
  /** Per client address; 0: no limit. */
  readonly max_verify_per_second: number;
  readonly verify_timeout_ms: number;
  /** The header in which a proxy in front names the client; null: the connection's own address. */
  readonly client_address_header: string | null;
  /** Longest silence of the backend: until its headers, then between any two pieces of its answer. */
  readonly backend_timeout_ms: number;
  /** How long a tee request waits for a sidecar that is away before it is refused. */
  readonly sidecar_wait_ms: number;
  readonly attest_timeout_ms: number;
  /** Attestations that the sidecar is asked for at once; those beyond wait here, each key in its turn. */
  readonly max_attestations_in_flight: number;
  readonly attestation_ttl_ms: number;
  readonly attestation_store_bytes: number;
  /** null: attestations are kept, and requests counted, in this process. May hold a password. */
  readonly attestation_store_url: string | null;
  readonly attestation_store_timeout_ms: number;
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

/** The keys file, for the command that makes keys. */
export function keysFileOf(env: NodeJS.ProcessEnv): string | null {
  return env.API_KEYS_FILE === undefined || env.API_KEYS_FILE === '' ? null : env.API_KEYS_FILE;
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
    backend_api_key: e.BACKEND_API_KEY ?? null,
    sidecar_socket: resolve(e.SIDECAR_SOCKET),
    api_keys_file: e.API_KEYS_FILE ?? null,
    max_body_bytes: e.MAX_BODY_BYTES,
    max_answer_bytes: e.MAX_ANSWER_BYTES,
    max_concurrent_requests: e.MAX_CONCURRENT_REQUESTS,
    max_concurrent_per_key: e.MAX_CONCURRENT_PER_KEY,
    max_requests_per_second_per_key: e.MAX_REQUESTS_PER_SECOND_PER_KEY,
    max_held_bytes: e.MAX_HELD_BYTES,
    max_streams: e.MAX_STREAMS,
    max_streams_per_key: e.MAX_STREAMS_PER_KEY,
    max_tee_per_key: e.MAX_TEE_PER_KEY,
    max_stream_bytes: e.MAX_STREAM_BYTES,
    max_stream_events: e.MAX_STREAM_EVENTS,
    max_answer_ms: e.MAX_ANSWER_MS,
    write_stall_ms: e.WRITE_STALL_MS,
    max_verify_bytes: e.MAX_VERIFY_BYTES,
    max_verify_concurrent: e.MAX_VERIFY_CONCURRENT,
    max_verify_per_second: e.MAX_VERIFY_PER_SECOND,
    verify_timeout_ms: e.VERIFY_TIMEOUT_MS,
    client_address_header: e.CLIENT_ADDRESS_HEADER ?? null,
    backend_timeout_ms: e.BACKEND_TIMEOUT_MS,
    sidecar_wait_ms: e.SIDECAR_WAIT_MS,
    attest_timeout_ms: e.ATTEST_TIMEOUT_MS,
    max_attestations_in_flight: e.MAX_ATTESTATIONS_IN_FLIGHT,
    attestation_ttl_ms: e.ATTESTATION_TTL_MS,
    attestation_store_bytes: e.ATTESTATION_STORE_BYTES,
    attestation_store_url: e.ATTESTATION_STORE_URL ?? null,
    attestation_store_timeout_ms: e.ATTESTATION_STORE_TIMEOUT_MS,
    allow_simulated: e.ALLOW_SIMULATED,
    rim_url: e.RIM_URL,
    ocsp_url: e.OCSP_URL,
    log_level: e.LOG_LEVEL,
  };
}
