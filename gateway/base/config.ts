// The gateway's settings, read from the environment.

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import * as z from 'zod';
import {
  ConfigError,
  httpUrl,
  integer,
  logLevel,
  NO_ARGUMENTS,
  namesUser,
  parseVariables,
  refuseRemoved,
  type Settings,
  settingsOf,
  socketPath,
  wholeNumber,
} from '../../node/settings.ts';
import { derivedFrom, LIMITS, type Limits, REMOVED } from './limits.ts';
import { storeAddress } from './store-url.ts';
import { originOf } from './target.ts';

// The environment variables with their meanings, values and defaults.

const MiB = 1024 * 1024;
const flag = z
  .enum(['0', '1'])
  .default('0')
  .transform((value) => value === '1');

/** The value of BACKEND_API_KEY, or the contents of BACKEND_API_KEY_FILE. */
export const backendKey = z
  .string()
  .trim()
  .regex(/^[!-~]+$/, 'must be printable ASCII without spaces');

/** The value of CANARY_EXPECT that accepts any text. */
export const ANY_TEXT = '*';

/** The URL of a backend, without a slash at its end. `key`: the name of the setting for the backend's key. */
export const backendUrl = (key: string) =>
  z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL such as http://127.0.0.1:8000/v1' })
    .refine(
      (url) => !/[?#]/.test(url) && !namesUser(url),
      `must have no query and no user name: a key goes into ${key}`,
    )
    .transform((url) => url.replace(/\/+$/, ''));

/** Every variable with its description. docs/configuration.md is generated from this. */
export const schema = z.object({
  HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address to listen on; beyond loopback it needs `API_KEYS_FILE`'),
  PORT: integer(8080, 0, 65_535).describe('The port to listen on; 0: a free one'),
  REUSE_PORT: flag.describe('`1`: gateways with the same `ATTESTATION_STORE_URL` may share the port'),
  BACKEND_URL: backendUrl('BACKEND_API_KEY')
    .optional()
    .describe('The OpenAI-compatible backend, such as `http://127.0.0.1:8000/v1`. **Required**, or `BACKENDS_FILE`'),
  BACKENDS_FILE: z.string().min(1).optional().describe('Several backends in a JSON file, in place of `BACKEND_URL`'),
  BACKEND_API_KEY: backendKey.optional().describe('The gateway’s own key for the backend'),
  BACKEND_API_KEY_FILE: z.string().min(1).optional().describe('A file with that key, in its place'),
  SIDECAR_SOCKET: socketPath(resolve).describe(
    'The sidecar’s Unix socket; root, the gateway’s user or `SIDECAR_UID` must own it and its folder',
  ),
  SIDECAR_UID: wholeNumber(0, 0xffff_fffe)
    .optional()
    .describe('The sidecar’s user number, if it differs from the gateway’s'),
  API_KEYS_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('API keys, one a line; without it everybody who can connect may ask'),
  MAX_BODY_BYTES: integer(16 * MiB, 1024, 256 * MiB).describe('The largest request body'),
  MAX_ANSWER_BYTES: integer(16 * MiB, 1024, 256 * MiB).describe('The largest answer attested, or searched for `usage`'),
  MAX_CONCURRENT_REQUESTS: integer(4096, 1, 1_000_000).describe('Requests served at once'),
  MAX_HELD_BYTES: integer(160 * MiB, MiB, 1024 * 1024 * MiB).describe(
    'Memory for all bodies and answers together; with tee each counts four times',
  ),
  CLIENT_ADDRESS_HEADER: z
    .string()
    .regex(/^[a-z0-9-]{1,64}$/i, 'must be the name of a header')
    .transform((name) => name.toLowerCase())
    .optional()
    .describe('The header in which your proxy names the client’s address'),
  BACKEND_TIMEOUT_MS: integer(600_000, 100, 86_400_000).describe('The backend’s longest silence'),
  ATTEST_TIMEOUT_MS: integer(60_000, 100, 3_600_000).describe(
    'The longest time from an answer’s end to its attestation',
  ),
  BATCH: z
    .enum(['auto', 'per-key', 'off'])
    .default('auto')
    .describe('`per-key`: only answers to one API key share a GPU signature; `off`: none do'),
  ATTESTATION_TTL_MS: integer(3_600_000, 1_000, 604_800_000).describe(
    'How long an attestation is kept for `GET …/attestation`',
  ),
  ATTESTATION_STORE_BYTES: integer(64 * MiB, MiB, 1024 * 1024 * MiB).describe('Memory for kept attestations'),
  ATTESTATION_STORE_URL: z
    .string()
    .refine((url) => storeAddress(url) !== null, {
      error: 'must be a URL such as redis://127.0.0.1:6379, with the parameters of docs/operate.md',
    })
    .optional()
    .describe(
      'The Valkey or Redis that several gateways share: `redis://127.0.0.1:6379` ([forms](operate.md#several-gateways))',
    ),
  AUDIT_LOG: z
    .string()
    .min(1)
    .transform((file) => resolve(file))
    .optional()
    .describe('The audit log’s file'),
  CANARY_INTERVAL_MS: integer(300_000, 0, 86_400_000).describe(
    'How often the gateway asks the backend a known question; 0: never',
  ),
  CANARY_EXPECT: z
    .string()
    .max(64)
    .default('Paris')
    .describe('What the answer about France’s capital must contain; `*`: any text'),
  CANARY_STOPS: z
    .enum(['tee', 'all', 'none'])
    .default('tee')
    .describe('What a wrong answer stops: requests with tee; `all`: `/health` is 503 too; `none`'),
  SEALED: z
    .enum(['off', 'allowed', 'required'])
    .default('allowed')
    .describe(
      'Sealed requests (`POST /ohttp`); they need a session with the processor. `required`: `/v1` serves only these and the session',
    ),
  SECRETS: z
    .enum(['files', 'sealed'])
    .default('files')
    .describe(
      '`sealed`: API keys, TLS key and the backend’s key come by `countersign secrets send`, once a start; until then only that is served',
    ),
  ALLOW_SIMULATED: flag.describe('`1`: accept a sidecar whose GPU is simulated'),
  RIM_URL: httpUrl.optional().describe('The verify endpoint’s service for reference values, in place of NVIDIA’s'),
  OCSP_URL: httpUrl.optional().describe('The verify endpoint’s service for revocation, in place of NVIDIA’s'),
  METRICS_PORT: wholeNumber(0, 65_535)
    .optional()
    .describe('A port for `/metrics` only; without it the main port serves them, unless there are API keys'),
  METRICS_HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address of `METRICS_PORT`, which needs no key: keep it from strangers'),
  TLS_CERT_FILE: z
    .string()
    .min(1)
    .optional()
    .describe('PEM certificate chain; with `TLS_KEY_FILE` the gateway speaks HTTPS'),
  TLS_KEY_FILE: z.string().min(1).optional().describe('Its PEM key; both are read again when they change'),
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
      'Origins of web pages that may ask, with commas between, or `*`; by default any with API keys, else this machine’s',
    ),
  DRAIN_MS: integer(25_000, 0, 86_400_000).describe('How long running answers may take to end after SIGTERM'),
  DRAIN_GRACE_MS: integer(0, 0, 600_000).describe(
    'How long new connections are served after SIGTERM, while `/health` is 503 already; `DRAIN_MS` comes after it',
  ),
  LOG_LEVEL: logLevel.describe('JSON lines on stdout; from `info` on one a request, never content'),
});

export { ConfigError, NO_ARGUMENTS };

const protocol = z
  .enum(['http/json', 'http/protobuf'], 'must be http/json or http/protobuf: spans are sent over HTTP')
  .optional();

/** OpenTelemetry's variables that decide whether there is tracing. Its libraries read the others (telemetry/tracing.ts). */
const otel = z.object({
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpUrl.optional(),
  OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol,
  OTEL_TRACES_EXPORTER: z.enum(['otlp', 'none'], 'must be otlp or none').optional(),
  OTEL_SDK_DISABLED: z.string().optional(),
});

/** @throws {ConfigError} */
function isTraced(env: NodeJS.ProcessEnv): boolean {
  const e = parseVariables(otel, env);
  if (e.OTEL_TRACES_EXPORTER === 'none' || e.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false;
  return (e.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? e.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined;
}

/** Paths of a PEM certificate chain and its key. */
export interface TlsFiles {
  readonly tls_cert_file: string;
  readonly tls_key_file: string;
}

/** What `countersign secrets send` brought. It is kept in memory only. */
export interface Secrets {
  /** The text of a keys file. */
  readonly api_keys: string | null;
  /** Certificate chain and key, in PEM. */
  readonly tls: { readonly cert: string; readonly key: string } | null;
  readonly backend_api_key: string | null;
  /** A signed release, for everybody to read: JSON with a bundle and a status. */
  readonly release: string | null;
}

/** Settings by their variables' names in lower case. Settings that belong together are one member. */
export interface GatewayConfig
  extends Omit<Settings<z.output<typeof schema>>, 'backend_api_key_file' | keyof TlsFiles>,
    Limits {
  /** null: plain HTTP, or a certificate that comes sealed. */
  readonly tls: TlsFiles | null;
  /** null: with SECRETS=files, and until they have come. */
  readonly received: Secrets | null;
  readonly tracing: boolean;
}

/** Whether requests need an API key. */
export const hasKeys = ({ api_keys_file, received }: Pick<GatewayConfig, 'api_keys_file' | 'received'>): boolean =>
  api_keys_file !== null || (received !== null && received.api_keys !== null);

/** Whether everybody who can connect is on this machine. */
export const isLoopback = (host: string): boolean => LOOPBACK.test(host);

/** The path of the keys file, for `countersign keys`. */
export function keysFileOf(env: NodeJS.ProcessEnv): string | null {
  return env.API_KEYS_FILE === undefined || env.API_KEYS_FILE === '' ? null : env.API_KEYS_FILE;
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/;

/** @throws {ConfigError} */
export function loadConfig(env: NodeJS.ProcessEnv): GatewayConfig {
  refuseRemoved(env, REMOVED);
  const e = parseVariables(schema, env);
  if (e.SECRETS === 'sealed') checkSealed(e);
  else if (e.API_KEYS_FILE === undefined && !isLoopback(e.HOST))
    throw new ConfigError(`API_KEYS_FILE is required when HOST (${e.HOST}) is not a loopback address`);
  if (e.MAX_HELD_BYTES < e.MAX_BODY_BYTES)
    throw new ConfigError(`MAX_HELD_BYTES must not be less than MAX_BODY_BYTES (${e.MAX_BODY_BYTES})`);
  if ((e.TLS_CERT_FILE === undefined) !== (e.TLS_KEY_FILE === undefined))
    throw new ConfigError('TLS_CERT_FILE and TLS_KEY_FILE are set together or not at all');
  if (e.REUSE_PORT && e.ATTESTATION_STORE_URL === undefined)
    throw new ConfigError(
      'REUSE_PORT needs ATTESTATION_STORE_URL: gateways on one port share their state by the store',
    );
  checkBackends(e);
  if (e.BACKEND_API_KEY !== undefined && e.BACKEND_API_KEY_FILE !== undefined)
    throw new ConfigError('BACKEND_API_KEY and BACKEND_API_KEY_FILE are both set: set one of them');
  const settings = settingsOf(schema, e);
  const { tls_cert_file, tls_key_file } = settings;
  return {
    ...settings,
    ...derivedFrom(e.MAX_CONCURRENT_REQUESTS),
    ...LIMITS,
    host: withoutBrackets(e.HOST),
    metrics_host: withoutBrackets(e.METRICS_HOST),
    backend_api_key: e.BACKEND_API_KEY ?? keyFrom(e.BACKEND_API_KEY_FILE),
    tls: tls_cert_file === null || tls_key_file === null ? null : { tls_cert_file, tls_key_file },
    received: null,
    tracing: isTraced(env),
  };
}

/** Settings that say where a secret is, beside which it would be unclear which one counts. */
const PLACES = ['API_KEYS_FILE', 'TLS_CERT_FILE', 'TLS_KEY_FILE', 'BACKEND_API_KEY', 'BACKEND_API_KEY_FILE'] as const;

/** @throws {ConfigError} */
function checkSealed(e: z.output<typeof schema>): void {
  const place = PLACES.find((name) => e[name] !== undefined);
  if (place !== undefined) throw new ConfigError(`${place} and SECRETS=sealed are both set: set one of them`);
  if (e.SEALED === 'off') throw new ConfigError('SECRETS=sealed needs sealed requests, and SEALED is off');
  if (e.REUSE_PORT)
    throw new ConfigError('SECRETS=sealed needs a port of its own: what is sent must reach one gateway');
}

/** Checks that either BACKEND_URL or BACKENDS_FILE is set, the latter without a key. @throws {ConfigError} */
function checkBackends(e: z.output<typeof schema>): void {
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
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;

/** How Node is started for the gateway. `package.json`, the image and the systemd unit repeat these flags; a test compares them. */
export const NODE_FLAGS = [
  // limits/memory.ts counts this heap and its young generation of 3 × 16 MiB. By default V8 derives both from the machine's memory: the young
  // generation would be 3 × 64 MiB from 4 GiB on, and 3 × 32 in the 2 GiB of compose.yaml, which then would not be enough.
  '--max-old-space-size=320',
  '--max-semi-space-size=16',
  // ML-KEM in WebCrypto, which opens sealed requests, is experimental in Node 24: each process would log about seven lines of warnings.
  '--disable-warning=ExperimentalWarning',
] as const;
