// The gateway's settings: the one place in this process that reads the environment.
import { readFileSync } from 'node:fs';
import { given, NO_ARGUMENTS } from '../proto/setting.ts';
import { type TracingConfig, tracingOf } from './telemetry/otel.ts';
import { backendKey, schema } from './variables.ts';

export { NO_ARGUMENTS };

/** Paths of a PEM certificate chain and its key. */
export interface TlsFiles {
  readonly cert_file: string;
  readonly key_file: string;
}

export interface GatewayConfig {
  readonly host: string;
  readonly port: number;
  /** Without a trailing slash; its path stands where a client writes `/v1`. */
  readonly backend_url: string;
  readonly backend_api_key: string | null;
  /** Absolute path. */
  readonly sidecar_socket: string;
  /** null: the socket must be root's or this process's user's. */
  readonly sidecar_uid: number | null;
  readonly api_keys_file: string | null;
  readonly max_body_bytes: number;
  /** Largest answer, whole or streamed, that is kept to be attested. */
  readonly max_answer_bytes: number;
  readonly max_connections: number;
  readonly max_concurrent_requests: number;
  /** Per key, 0: no limit, null: half of what there is for all; a key's own line in the keys file goes before. */
  readonly max_concurrent_per_key: number | null;
  readonly max_requests_per_second_per_key: number;
  readonly max_streams_per_key: number | null;
  readonly max_tee_per_key: number | null;
  readonly max_held_bytes_per_key: number | null;
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
  /** Attestations that the sidecar is asked for at once, by all workers together; those beyond wait here, each key in its turn. */
  readonly max_attestations_in_flight: number;
  /** How many may wait, of all workers together. */
  readonly max_attestations_waiting: number;
  readonly attestation_ttl_ms: number;
  readonly attestation_store_bytes: number;
  /** null: attestations are kept, and requests counted, in this process. May hold a password. */
  readonly attestation_store_url: string | null;
  readonly attestation_store_timeout_ms: number;
  readonly allow_simulated: boolean;
  /** Services that the verify endpoint asks for reference values and revocation answers. */
  readonly rim_url: string;
  readonly ocsp_url: string;
  /** null: plain HTTP. */
  readonly tls: TlsFiles | null;
  /** Origins of web pages that may ask, `*` for all; null: see gateway/origins.ts. */
  readonly cors_origins: readonly string[] | null;
  /** How long a client may take to send its headers, and its whole request. */
  readonly headers_timeout_ms: number;
  readonly request_timeout_ms: number;
  /** How long running answers may take to end after SIGTERM. */
  readonly drain_ms: number;
  readonly workers: number;
  /** null: /metrics is on the main port, unless there are API keys. */
  readonly metrics_port: number | null;
  readonly metrics_host: string;
  /** null: off. */
  readonly tracing: TracingConfig | null;
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
  const variables = given(env);
  const parsed = schema.safeParse(variables);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const name = String(issue?.path[0]);
    const absent = issue?.code === 'invalid_type' && !(name in variables);
    throw new ConfigError(absent ? `${name} is required` : `${name} ${issue?.message ?? 'is wrong'}`);
  }
  const e = parsed.data;
  if (e.API_KEYS_FILE === undefined && !LOOPBACK.test(e.HOST))
    throw new ConfigError(`API_KEYS_FILE is required when HOST (${e.HOST}) is not a loopback address`);
  if (e.MAX_HELD_BYTES < e.MAX_BODY_BYTES)
    throw new ConfigError(`MAX_HELD_BYTES must not be less than MAX_BODY_BYTES (${e.MAX_BODY_BYTES})`);
  if (e.MAX_HELD_BYTES_PER_KEY && e.MAX_HELD_BYTES_PER_KEY < e.MAX_BODY_BYTES)
    throw new ConfigError(`MAX_HELD_BYTES_PER_KEY must not be less than MAX_BODY_BYTES (${e.MAX_BODY_BYTES})`);
  if ((e.TLS_CERT_FILE === undefined) !== (e.TLS_KEY_FILE === undefined))
    throw new ConfigError('TLS_CERT_FILE and TLS_KEY_FILE are set together or not at all');
  if (e.BACKEND_API_KEY !== undefined && e.BACKEND_API_KEY_FILE !== undefined)
    throw new ConfigError('BACKEND_API_KEY and BACKEND_API_KEY_FILE are both set: set one of them');
  // Without keys everybody is one caller, who may have all there is.
  const per_key = e.API_KEYS_FILE === undefined ? 0 : null;
  return {
    host: e.HOST.replace(/^\[|\]$/g, ''),
    port: e.PORT,
    backend_url: e.BACKEND_URL,
    backend_api_key: e.BACKEND_API_KEY ?? keyFrom(e.BACKEND_API_KEY_FILE),
    sidecar_socket: e.SIDECAR_SOCKET,
    sidecar_uid: e.SIDECAR_UID ?? null,
    api_keys_file: e.API_KEYS_FILE ?? null,
    max_body_bytes: e.MAX_BODY_BYTES,
    max_answer_bytes: e.MAX_ANSWER_BYTES,
    max_connections: e.MAX_CONNECTIONS,
    max_concurrent_requests: e.MAX_CONCURRENT_REQUESTS,
    max_concurrent_per_key: e.MAX_CONCURRENT_PER_KEY ?? per_key,
    max_requests_per_second_per_key: e.MAX_REQUESTS_PER_SECOND_PER_KEY,
    max_held_bytes: e.MAX_HELD_BYTES,
    max_streams: e.MAX_STREAMS,
    max_streams_per_key: e.MAX_STREAMS_PER_KEY ?? per_key,
    max_tee_per_key: e.MAX_TEE_PER_KEY ?? per_key,
    max_held_bytes_per_key: e.MAX_HELD_BYTES_PER_KEY ?? per_key,
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
    max_attestations_waiting: e.MAX_ATTESTATIONS_WAITING,
    attestation_ttl_ms: e.ATTESTATION_TTL_MS,
    attestation_store_bytes: e.ATTESTATION_STORE_BYTES,
    attestation_store_url: e.ATTESTATION_STORE_URL ?? null,
    attestation_store_timeout_ms: e.ATTESTATION_STORE_TIMEOUT_MS,
    allow_simulated: e.ALLOW_SIMULATED,
    rim_url: e.RIM_URL,
    ocsp_url: e.OCSP_URL,
    tls:
      e.TLS_CERT_FILE === undefined || e.TLS_KEY_FILE === undefined
        ? null
        : { cert_file: e.TLS_CERT_FILE, key_file: e.TLS_KEY_FILE },
    cors_origins: e.CORS_ORIGINS ?? null,
    headers_timeout_ms: e.HEADERS_TIMEOUT_MS,
    request_timeout_ms: e.REQUEST_TIMEOUT_MS,
    drain_ms: e.DRAIN_MS,
    workers: e.WORKERS,
    metrics_port: e.METRICS_PORT ?? null,
    metrics_host: e.METRICS_HOST.replace(/^\[|\]$/g, ''),
    tracing: tracingOf(e),
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
