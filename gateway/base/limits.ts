// What the gateway is bounded by and no operator has to choose, and the settings that once chose it.

const MiB = 1024 * 1024;

/** Members of the configuration that no variable sets. */
export const LIMITS = {
  /** The longest stream. */
  max_stream_bytes: 256 * MiB,
  /** The most events of a stream. */
  max_stream_events: 1_000_000,
  /** The longest time for a response of the backend. */
  max_answer_ms: 3_600_000,
  /** How long a client may read nothing of its response. */
  write_stall_ms: 60_000,
  /** The largest body of the verify endpoint. */
  max_verify_bytes: 16 * MiB,
  /** Verifications in the queue. */
  max_verify_concurrent: 32,
  /** Verifications a second from one address; 0: no limit. */
  max_verify_per_second: 50,
  /** The longest verification, and the longest wait before it. */
  verify_timeout_ms: 30_000,
  /** How long a request with tee waits for a sidecar that is away: a real one needs as long to start. */
  sidecar_wait_ms: 20_000,
  /** Attestations asked of a sidecar that signs one nonce at a time: one is signed, the next is there. Each further signer takes one more. */
  max_attestations_in_flight: 2,
  /** Responses that wait for their attestation. */
  max_attestations_waiting: 4096,
  /** How long to wait for the attestation store. */
  attestation_store_timeout_ms: 500,
  /** The size at which the audit log goes on in a new file. */
  audit_log_bytes: 64 * MiB,
  /** Full files of the audit log to keep; 0: all. */
  audit_log_files: 64,
  /** How long a client may take to send its headers. */
  headers_timeout_ms: 15_000,
  /** How long a client may take to send its whole request. */
  request_timeout_ms: 120_000,
};

/** Members of the configuration that follow from MAX_CONCURRENT_REQUESTS. */
export const derivedFrom = (max_concurrent_requests: number) => ({
  /** Open connections, idle ones included. */
  max_connections: 2 * max_concurrent_requests,
  /** Streams at once. */
  max_streams: Math.ceil(max_concurrent_requests / 2),
});

export type Limits = Readonly<typeof LIMITS & ReturnType<typeof derivedFrom>>;

const grouped = (value: number): string => value.toLocaleString('en-US');
const mib = (bytes: number): string => `${bytes / MiB} MiB`;
const seconds = (ms: number): string => `${ms / 1000} s`;
const ofEveryKey = (setting: string): string =>
  `a line "* ${setting}" in the file that API_KEYS_FILE names says it for every key`;

/** Settings that are gone, and what replaces each, or its value now. */
export const REMOVED: ReadonlyMap<string, string> = new Map([
  [
    'WORKERS',
    'start a second gateway with the same ATTESTATION_STORE_URL, on the same port (REUSE_PORT=1) or behind a balancer',
  ],
  ['MAX_CONNECTIONS', 'it is twice MAX_CONCURRENT_REQUESTS'],
  ['MAX_STREAMS', 'it is half of MAX_CONCURRENT_REQUESTS'],
  ['MAX_CONCURRENT_PER_KEY', ofEveryKey('concurrent=10')],
  ['MAX_REQUESTS_PER_SECOND_PER_KEY', ofEveryKey('rps=5')],
  ['MAX_TOKENS_PER_DAY_PER_KEY', ofEveryKey('tokens-per-day=100000')],
  ['MAX_HELD_BYTES_PER_KEY', ofEveryKey('held-bytes=33554432')],
  ['MAX_STREAMS_PER_KEY', ofEveryKey('streams=4')],
  ['MAX_TEE_PER_KEY', ofEveryKey('tee=2')],
  ['BATCH_PER_KEY', 'BATCH=per-key replaces it'],
  ['MAX_STREAM_BYTES', `a stream has at most ${mib(LIMITS.max_stream_bytes)}`],
  ['MAX_STREAM_EVENTS', `a stream has at most ${grouped(LIMITS.max_stream_events)} events`],
  ['MAX_ANSWER_MS', `an answer takes at most ${seconds(LIMITS.max_answer_ms)}`],
  ['WRITE_STALL_MS', `a client may read nothing of its answer for ${seconds(LIMITS.write_stall_ms)}`],
  ['MAX_VERIFY_BYTES', `a body of the verify endpoint has at most ${mib(LIMITS.max_verify_bytes)}`],
  ['MAX_VERIFY_CONCURRENT', `at most ${LIMITS.max_verify_concurrent} verifications wait`],
  ['MAX_VERIFY_PER_SECOND', `one address has ${LIMITS.max_verify_per_second} verifications a second`],
  ['VERIFY_TIMEOUT_MS', `a verification takes at most ${seconds(LIMITS.verify_timeout_ms)}`],
  ['SIDECAR_WAIT_MS', `a request with tee waits ${seconds(LIMITS.sidecar_wait_ms)} for a sidecar that is away`],
  [
    'MAX_ATTESTATIONS_IN_FLIGHT',
    `it is ${LIMITS.max_attestations_in_flight}, and with SIGNERS=any one more than there are GPUs`,
  ],
  [
    'MAX_ATTESTATIONS_WAITING',
    `at most ${grouped(LIMITS.max_attestations_waiting)} answers wait for their attestation`,
  ],
  ['ATTESTATION_STORE_TIMEOUT_MS', `the store has ${LIMITS.attestation_store_timeout_ms} ms to answer`],
  ['AUDIT_LOG_BYTES', `the audit log goes on in a new file at ${mib(LIMITS.audit_log_bytes)}`],
  ['AUDIT_LOG_FILES', `${LIMITS.audit_log_files} full files of the audit log are kept`],
  ['HEADERS_TIMEOUT_MS', `a client has ${seconds(LIMITS.headers_timeout_ms)} to send its headers`],
  ['REQUEST_TIMEOUT_MS', `a client has ${seconds(LIMITS.request_timeout_ms)} to send its whole request`],
]);
