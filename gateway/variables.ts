// The gateway's environment variables: what each means, which values it may have, and what holds without it.
import { resolve } from 'node:path';
import * as z from 'zod';
import { httpUrl, integer, logLevel, namesUser, socketPath, wholeNumber } from '../proto/setting.ts';
import { NVIDIA_OCSP_URL, NVIDIA_RIM_URL } from '../verify/index.ts';
import { originOf } from './origins.ts';
import { otelShape } from './telemetry/otel.ts';

const MiB = 1024 * 1024;
/** 0: no limit. */
const limit = (fallback: number) => integer(fallback, 0, 1_000_000);
const limitPerKey = wholeNumber(0, 1_000_000).optional();
const WITHOUT = (all: string) => `Without it half of \`${all}\`, and no limit where there are no API keys`;
const flag = z
  .enum(['0', '1'])
  .default('0')
  .transform((value) => value === '1');

/** BACKEND_API_KEY, or what BACKEND_API_KEY_FILE holds. */
export const backendKey = z
  .string()
  .trim()
  .regex(/^[!-~]+$/, 'must be printable ASCII without spaces');

/** Every variable, with what it means: docs/configuration.md is made from this. */
export const schema = z.object({
  HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address to listen on. Another than a loopback address needs `API_KEYS_FILE`'),
  PORT: integer(8080, 0, 65_535).describe('The port to listen on; 0: a free one'),
  BACKEND_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL such as http://127.0.0.1:8000/v1' })
    .refine(
      (url) => !/[?#]/.test(url) && !namesUser(url),
      'must have no query and no user name: a key goes into BACKEND_API_KEY',
    )
    .transform((url) => url.replace(/\/+$/, ''))
    .describe(
      'The OpenAI-compatible backend, such as `http://127.0.0.1:8000/v1`; its path stands where a client writes `/v1`',
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
    'Verifications that wait for their turn; past it 503 `overloaded` for whoever has most of them',
  ),
  MAX_VERIFY_PER_SECOND: limit(50).describe('Verifications in any second from one address; 0: no limit'),
  VERIFY_TIMEOUT_MS: integer(30_000, 100, 600_000).describe(
    'The longest that a verification may take, and may wait for its turn',
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
  SIDECAR_WAIT_MS: integer(3_000, 0, 60_000).describe(
    'How long a tee request waits for a sidecar that is away before it is refused',
  ),
  ATTEST_TIMEOUT_MS: integer(60_000, 100, 3_600_000).describe(
    'From the end of an answer to its attestation, restarts of the sidecar included',
  ),
  MAX_ATTESTATIONS_IN_FLIGHT: integer(2, 1, 1024).describe(
    'Attestations that the sidecar is asked for at once, by all workers together; the others wait for their key’s turn. A GPU makes one at a time, and 2 keep it busy: more only make other keys wait longer',
  ),
  MAX_ATTESTATIONS_WAITING: integer(4096, 1, 1_000_000).describe(
    'Answers that wait for their attestation, of all workers together; past it the key with most of them gets 503 `overloaded`',
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
  ALLOW_SIMULATED: flag.describe('`1`: accept a sidecar whose GPU is simulated'),
  RIM_URL: httpUrl.default(NVIDIA_RIM_URL).describe('Where the verify endpoint gets reference values'),
  OCSP_URL: httpUrl.default(NVIDIA_OCSP_URL).describe('Where the verify endpoint asks for revocation'),
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
  ...otelShape,
  LOG_LEVEL: logLevel.describe(
    'JSON lines on stdout, for people on a terminal. From `info` on, one line a request; never a prompt, a completion or a key',
  ),
});
