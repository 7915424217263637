// The gateway's settings: the one place in this process that reads the environment.

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import * as z from 'zod';
import {
  given,
  httpUrl,
  integer,
  logLevel,
  NO_ARGUMENTS,
  namesUser,
  type Settings,
  settingsOf,
  socketPath,
  wholeNumber,
} from '../proto/settings.ts';
import { originOf } from './http/target.ts';
import { otelShape, type TracingConfig, tracingOf } from './telemetry/settings.ts';

// The gateway's environment variables: the meaning of each, its values and its default.

const MiB = 1024 * 1024;
/** A whole number; 0: no limit. */
const limit = (fallback: number) => integer(fallback, 0, 1_000_000);
/** The most that a key's budget may be. */
export const MAX_TOKENS_PER_DAY = 1_000_000_000_000;
const limitPerKey = wholeNumber(0, 1_000_000).optional();
const WITHOUT = (all: string) => `Without it half of \`${all}\`, and no limit where there are no API keys`;
const flag = z
  .enum(['0', '1'])
  .default('0')
  .transform((value) => value === '1');

/** The value of BACKEND_API_KEY, or the contents of BACKEND_API_KEY_FILE. */
export const backendKey = z
  .string()
  .trim()
  .regex(/^[!-~]+$/, 'must be printable ASCII without spaces');

/** As CANARY_EXPECT: any text will do. */
export const ANY_TEXT = '*';

/** The URL of a backend, without a slash at its end. `key`: the setting for its key. */
export const backendUrl = (key: string) =>
  z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL such as http://127.0.0.1:8000/v1' })
    .refine(
      (url) => !/[?#]/.test(url) && !namesUser(url),
      `must have no query and no user name: a key goes into ${key}`,
    )
    .transform((url) => url.replace(/\/+$/, ''));

const own = z.object({
  HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address to listen on. Another than a loopback address needs `API_KEYS_FILE`'),
  PORT: integer(8080, 0, 65_535).describe('The port to listen on; 0: a free one'),
  BACKEND_URL: backendUrl('BACKEND_API_KEY')
    .optional()
    .describe(
      'The OpenAI-compatible backend, such as `http://127.0.0.1:8000/v1`; its path stands where a client writes `/v1`. **Required**, or `BACKENDS_FILE`',
    ),
  BACKENDS_FILE: z
    .string()
    .min(1)
    .optional()
    .describe(
      'In place of `BACKEND_URL`: several backends on this node, in JSON, read again when it changes: `{"backends": [{"url", "name", "models", "weight", "api_key_file"}]}`. Only `url` is required. A request goes to those whose `models` (names) have its model, else to those without `models`, by `weight` (1 to 1000)',
    ),
  BACKEND_API_KEY: backendKey
    .optional()
    .describe('Sent to the backend as `Authorization: Bearer`. A client’s own key never leaves the gateway'),
  BACKEND_API_KEY_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('The same from a file, where secrets are files; not together with `BACKEND_API_KEY`'),
  SIDECAR_SOCKET: socketPath(resolve).describe(
    'The Unix socket that the sidecar listens on. It and its folder must belong to root, to the gateway’s own user or to `SIDECAR_UID`; nobody else may write in the folder',
  ),
  SIDECAR_UID: wholeNumber(0, 0xffff_fffe)
    .optional()
    .describe(
      'The number of the user that the sidecar runs as, where that is another than the gateway’s. The image has it set',
    ),
  API_KEYS_FILE: z
    .string()
    .min(1)
    .optional()
    .describe(
      'API keys, one a line; a line that begins with `#` is a comment. Without it everybody who can connect may ask',
    ),
  MAX_BODY_BYTES: integer(16 * MiB, 1024, 256 * MiB).describe('The largest request body'),
  MAX_ANSWER_BYTES: integer(16 * MiB, 1024, 256 * MiB).describe(
    'The largest answer, whole or streamed, that is kept to be attested',
  ),
  MAX_CONNECTIONS: integer(8192, 1, 1_000_000).describe(
    'Connections open at once, idle ones included, divided among workers; another is closed at once. Fewer where the limit of open files leaves none for the backend',
  ),
  MAX_CONCURRENT_REQUESTS: integer(4096, 1, 1_000_000).describe(
    'Requests served at once, each from when all of its body is here; past it: 503 `overloaded`',
  ),
  MAX_CONCURRENT_PER_KEY: limitPerKey.describe(
    `Requests at once of one API key, from the first line on; 0: no limit. A key’s own \`concurrent=\` comes first. ${WITHOUT('MAX_CONCURRENT_REQUESTS')}`,
  ),
  MAX_REQUESTS_PER_SECOND_PER_KEY: limit(0).describe(
    'Requests in any second of one API key; 0: no limit. A key’s own `rps=` comes first',
  ),
  MAX_TOKENS_PER_DAY_PER_KEY: integer(0, 0, MAX_TOKENS_PER_DAY).describe(
    'Tokens in and out on one day (UTC) of one API key, by the backend’s count; 0: no limit. A key’s own `tokens-per-day=` comes first. Kept in the store where there is one, else until the gateway ends',
  ),
  MAX_HELD_BYTES: integer(160 * MiB, MiB, 1024 * 1024 * MiB).describe(
    'Bodies and answers held in memory for all requests together, those with tee four times, no less than `MAX_BODY_BYTES`; past it: 503 `overloaded`',
  ),
  MAX_HELD_BYTES_PER_KEY: wholeNumber(0, 1024 * 1024 * MiB)
    .optional()
    .describe(
      `Of these, what one API key may have, no less than \`MAX_BODY_BYTES\`; 0: no limit. ${WITHOUT('MAX_HELD_BYTES')}`,
    ),
  MAX_STREAMS: integer(2048, 1, 1_000_000).describe('Streams at once; past it: 503 `overloaded`'),
  MAX_STREAMS_PER_KEY: limitPerKey.describe(
    `Streams at once of one API key; 0: no limit. A key’s own \`streams=\` comes first. ${WITHOUT('MAX_STREAMS')}`,
  ),
  MAX_TEE_PER_KEY: limitPerKey.describe(
    `Requests with tee at once of one API key; 0: no limit. A key’s own \`tee=\` comes first. ${WITHOUT('MAX_ATTESTATIONS_WAITING')}`,
  ),
  MAX_STREAM_BYTES: integer(256 * MiB, 1024, 1024 * 1024 * MiB).describe('The greatest length of a stream'),
  MAX_STREAM_EVENTS: integer(1_000_000, 1, 1_000_000_000).describe('The greatest number of a stream’s events'),
  MAX_ANSWER_MS: integer(3_600_000, 100, 86_400_000).describe('The longest that an answer may take, whole or streamed'),
  WRITE_STALL_MS: integer(60_000, 100, 86_400_000).describe(
    'A client that takes nothing of its answer for so long is let go',
  ),
  MAX_VERIFY_BYTES: integer(16 * MiB, 1024, 64 * MiB).describe('The largest body of the verify endpoint'),
  MAX_VERIFY_CONCURRENT: integer(32, 1, 10_000).describe(
    'Verifications in the queue; past it 503 `overloaded` for whoever has most of them',
  ),
  MAX_VERIFY_PER_SECOND: limit(50).describe('Verifications in any second from one address; 0: no limit'),
  VERIFY_TIMEOUT_MS: integer(30_000, 100, 600_000).describe(
    'The longest that a verification may take, and may wait in the queue',
  ),
  CLIENT_ADDRESS_HEADER: z
    .string()
    .regex(/^[a-z0-9-]{1,64}$/i, 'must be the name of a header')
    .transform((name) => name.toLowerCase())
    .optional()
    .describe('Behind a proxy: the header in which it names the client’s address'),
  BACKEND_TIMEOUT_MS: integer(600_000, 100, 86_400_000).describe(
    'The backend’s longest silence: until its headers, then between two pieces of its answer',
  ),
  SIDECAR_WAIT_MS: integer(15_000, 0, 60_000).describe(
    'How long a tee request waits for a sidecar that is away before it is refused; the default covers the start of a sidecar with `nvtrust`',
  ),
  ATTEST_TIMEOUT_MS: integer(60_000, 100, 3_600_000).describe(
    'From the end of an answer to its attestation, restarts of the sidecar included',
  ),
  MAX_ATTESTATIONS_IN_FLIGHT: integer(2, 1, 1024).describe(
    'Attestations that the sidecar is asked for at once, by all workers together; the others wait in a queue that is fair between keys. A GPU makes one at a time, and 2 keep it busy: more only make other keys wait longer',
  ),
  MAX_ATTESTATIONS_WAITING: integer(4096, 1, 1_000_000).describe(
    'Answers that wait for their attestation, of all workers together; past it the key with most of them gets 503 `overloaded`',
  ),
  BATCH: z
    .enum(['auto', 'off'])
    .default('auto')
    .describe(
      'Whether answers may share a GPU signature where their clients allow it. `off`: each has one of its own, whatever a client allows',
    ),
  BATCH_PER_KEY: flag.describe(
    '`1`: answers share a GPU signature with those of the same API key alone, so that two keys’ proofs have nothing in common',
  ),
  ATTESTATION_TTL_MS: integer(3_600_000, 1_000, 604_800_000).describe(
    'How long an attestation is kept for `GET …/attestation`',
  ),
  ATTESTATION_STORE_BYTES: integer(64 * MiB, MiB, 1024 * 1024 * MiB).describe(
    'The memory that kept attestations may take',
  ),
  ATTESTATION_STORE_URL: z
    .url({ protocol: /^(redis|rediss|valkey|valkeys)$/, error: 'must be a URL such as redis://127.0.0.1:6379' })
    .optional()
    .describe('Valkey or Redis, in which several gateways share kept attestations and rates: `redis://127.0.0.1:6379`'),
  ATTESTATION_STORE_TIMEOUT_MS: integer(500, 10, 60_000).describe('How long that store is waited for'),
  AUDIT_LOG: z
    .string()
    .min(1)
    .transform((file) => resolve(file))
    .optional()
    .describe(
      'A file of JSON lines, one for each POST and DELETE that reached the backend: who, when, which model, tokens, how it was attested; never content. Each line holds the hash of the one before (`countersign audit check`)',
    ),
  AUDIT_LOG_BYTES: integer(64 * MiB, 64 * 1024, 1024 * MiB).describe(
    'The length at which the audit log is rotated, to `FILE.` and the number of its first line',
  ),
  AUDIT_LOG_FILES: integer(64, 0, 1_000_000).describe('Rotated files that are kept, the oldest go; 0: all'),
  CANARY_INTERVAL_MS: integer(300_000, 0, 86_400_000).describe(
    'How often the backend is asked what it must know, at the start and from then on; `/health` and a metric say whether the answer makes sense. 0: never',
  ),
  CANARY_EXPECT: z
    .string()
    .max(64)
    .default('Paris')
    .describe(
      'What the answer must contain, in whatever case, when the capital of France is asked for. `*`: only that it is text, and the same twice',
    ),
  SEALED: z
    .enum(['off', 'allowed', 'required'])
    .default('allowed')
    .describe(
      'Requests that are sealed to a key which the session with the processor names (`POST /ohttp`), so that nothing in between reads prompts and answers. Without such a session there are no keys. `required`: `/v1` serves nothing else, but for `/v1/attestation/session`',
    ),
  ALLOW_SIMULATED: flag.describe('`1`: accept a sidecar whose GPU is simulated'),
  RIM_URL: httpUrl.optional().describe('Another service for reference values than NVIDIA’s, for the verify endpoint'),
  OCSP_URL: httpUrl.optional().describe('Another service for revocation than NVIDIA’s, for the verify endpoint'),
  METRICS_PORT: wholeNumber(0, 65_535)
    .optional()
    .describe(
      'A port of its own for `/metrics`, which is then nowhere else. Without it `/metrics` is on the main port, unless there are API keys',
    ),
  METRICS_HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe(
      'The address of `METRICS_PORT`. What it serves needs no key: keep it from strangers. It is asked for by an address, a name without a dot, or one that `CORS_ORIGINS` names',
    ),
  TLS_CERT_FILE: z.string().min(1).optional().describe('PEM certificate chain; with `TLS_KEY_FILE`: HTTPS'),
  TLS_KEY_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('Its PEM key. Both are read again on SIGHUP and when they change'),
  CORS_ORIGINS: z
    .string()
    .transform((list, context) =>
      list.split(',').map((one) => {
        const text = one.trim();
        const origin = text === '*' ? text : originOf(text);
        if (origin === null)
          context.addIssue(`must be * or origins such as https://app.example, not ${JSON.stringify(text)}`);
        return origin ?? '';
      }),
    )
    .optional()
    .describe(
      'Origins of web pages that may ask, such as `https://app.example`, with commas between, or `*`. By default every one with API keys, this machine’s without',
    ),
  HEADERS_TIMEOUT_MS: integer(15_000, 100, 600_000).describe('How long a client may take to send its headers'),
  REQUEST_TIMEOUT_MS: integer(120_000, 100, 86_400_000).describe(
    'How long a client may take to send its whole request',
  ),
  DRAIN_MS: integer(25_000, 0, 86_400_000).describe('How long running answers may take to end after SIGTERM'),
  WORKERS: integer(1, 1, 64).describe('Processes that serve the port together, one for each core at most'),
  LOG_LEVEL: logLevel.describe(
    'JSON lines on stdout, for people on a terminal. From `info` on, one line a request; never a prompt, a completion or a key',
  ),
});

export { NO_ARGUMENTS };

/** Every variable with its description. docs/configuration.md is made from this. */
export const schema = own.extend(otelShape);

/** Paths of a PEM certificate chain and its key. */
export interface TlsFiles {
  readonly tls_cert_file: string;
  readonly tls_key_file: string;
}

/** Settings by their variables' names in lower case. Settings that belong together are one member. */
export interface GatewayConfig extends Omit<Settings<z.output<typeof own>>, 'backend_api_key_file' | keyof TlsFiles> {
  /** null: plain HTTP. */
  readonly tls: TlsFiles | null;
  /** null: off. */
  readonly tracing: TracingConfig | null;
}

/** The configuration does not allow a start. The message is one line that names the variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** The path of the keys file, for the command that makes keys. */
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
  checkBackends(e);
  if (e.BACKEND_API_KEY !== undefined && e.BACKEND_API_KEY_FILE !== undefined)
    throw new ConfigError('BACKEND_API_KEY and BACKEND_API_KEY_FILE are both set: set one of them');
  const settings = settingsOf(own, e);
  const { tls_cert_file, tls_key_file } = settings;
  // Without API keys all clients are one caller, which may use the whole capacity.
  const per_key = e.API_KEYS_FILE === undefined ? 0 : null;
  return {
    ...settings,
    host: withoutBrackets(e.HOST),
    metrics_host: withoutBrackets(e.METRICS_HOST),
    backend_api_key: e.BACKEND_API_KEY ?? keyFrom(e.BACKEND_API_KEY_FILE),
    max_concurrent_per_key: settings.max_concurrent_per_key ?? per_key,
    max_streams_per_key: settings.max_streams_per_key ?? per_key,
    max_tee_per_key: settings.max_tee_per_key ?? per_key,
    max_held_bytes_per_key: settings.max_held_bytes_per_key ?? per_key,
    tls: tls_cert_file === null || tls_key_file === null ? null : { tls_cert_file, tls_key_file },
    tracing: tracingOf(e),
  };
}

/** One backend by its URL, or several by a file. @throws {ConfigError} */
function checkBackends(e: z.output<typeof own>): void {
  if (e.BACKENDS_FILE === undefined) {
    if (e.BACKEND_URL === undefined) throw new ConfigError('BACKEND_URL is required');
    return;
  }
  if (e.BACKEND_URL !== undefined) throw new ConfigError('BACKEND_URL and BACKENDS_FILE are both set: set one of them');
  for (const name of ['BACKEND_API_KEY', 'BACKEND_API_KEY_FILE'] as const)
    if (e[name] !== undefined)
      throw new ConfigError(`${name} is for BACKEND_URL: in BACKENDS_FILE each backend has its own api_key_file`);
}

/** An IPv6 address without brackets, as sockets take it. */
const withoutBrackets = (host: string): string => host.replace(/^\[|\]$/g, '');

/** Reads the key from a file, the form in which containers get secrets. */
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

// The version of this gateway, from package.json.

export const VERSION = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
