// API keys: finds the caller of a request, in a time that reveals nothing about the keys.

import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../base/problem.ts';
import { withoutQuery } from '../base/target.ts';

// The caller: the owner of attestations, the key's name for logs, and the key's limits.

/** The owner of attestations: a digest of the API key, never the key itself. */
export type Owner = string;

/** The limits of one key. null: its line says nothing, and the line `*` or the gateway's default applies. 0: no limit. */
export interface KeyLimits {
  /** Requests in any second. */
  readonly rps: number | null;
  /** Requests at once. */
  readonly concurrent: number | null;
  /** Streams at once. */
  readonly streams: number | null;
  /** Requests with tee at once, those that wait for their attestation included. */
  readonly tee: number | null;
  /** LLM tokens in and out of one day (UTC). */
  readonly tokens_per_day: number | null;
  /** Bytes of requests and responses in the gateway at once. */
  readonly held_bytes: number | null;
  /** null: every model that the backend has. */
  readonly models: ReadonlySet<string> | null;
  /** The key may use the routes that manage the backend. */
  readonly admin: boolean;
}

export interface Caller {
  readonly owner: Owner;
  /** Unique and not secret: the name of the key in logs, metrics and limits. */
  readonly name: string;
  readonly limits: KeyLimits;
}

export const NO_LIMITS: KeyLimits = {
  rps: null,
  concurrent: null,
  streams: null,
  tee: null,
  tokens_per_day: null,
  held_bytes: null,
  models: null,
  admin: false,
};

/** The one caller where no keys are configured. Every client is then on this machine, may manage the backend and use the whole capacity. */
export const ANYONE: Caller = {
  owner: 'anyone',
  name: 'anyone',
  limits: {
    rps: 0,
    concurrent: 0,
    streams: 0,
    tee: 0,
    tokens_per_day: 0,
    held_bytes: 0,
    models: null,
    admin: true,
  },
};

/** The limits of a key, with those of the line `*` where its own line says nothing. */
function withDefaults(own: KeyLimits, defaults: KeyLimits): KeyLimits {
  return {
    rps: own.rps ?? defaults.rps,
    concurrent: own.concurrent ?? defaults.concurrent,
    streams: own.streams ?? defaults.streams,
    tee: own.tee ?? defaults.tee,
    tokens_per_day: own.tokens_per_day ?? defaults.tokens_per_day,
    held_bytes: own.held_bytes ?? defaults.held_bytes,
    models: own.models,
    admin: own.admin,
  };
}

/** One key as the file holds it. */
export interface KeyLine {
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  readonly limits: KeyLimits;
  /** The file holds the key itself and not its hash. */
  readonly plain: boolean;
}

/**
 * SHA-256, and not a slow hash: a key from `countersign keys add` has 256 random bits, which cannot be guessed, and a slow hash on every
 * request would be a way to overload the gateway.
 */
export function digestOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

/** What a keys file holds. */
export interface ParsedKeys {
  readonly keys: readonly KeyLine[];
  /** Of the line `*`; null without one. */
  readonly defaults: KeyLimits | null;
}

export interface Keys {
  /** @throws {Problem} invalid_api_key */
  authenticate(headers: IncomingHttpHeaders): Caller;
  /** The path of the keys file; null: there is none. */
  readonly file: string | null;
  /** Uses these keys at once, which the file holds now. */
  use(parsed: ParsedKeys): void;
  close(): void;
}

/** A gateway without a keys file: every request is admitted. */
export const OPEN: Keys = { authenticate: () => ANYONE, file: null, use: () => {}, close: () => {} };

/** Finds a caller by the SHA-256 of the key. */
type KeyTable = (digest: Buffer) => Caller | null;

/**
 * The table is keyed by a hash under a secret of this process: the time of a look-up reveals nothing about the digests, and does not grow
 * with the number of keys. HMAC would add nothing, because all messages have one length, and would cost ten times as much.
 * @param defaults the limits of the line `*`
 */
export function tableOf(lines: readonly KeyLine[], defaults = NO_LIMITS): KeyTable {
  const secret = randomBytes(32).toString('hex');
  const blind = (digest: Buffer) => hash('sha256', secret + digest.toString('hex'), 'base64');
  const callers = new Map(
    lines.map(({ name, digest, limits }) => [
      blind(digest),
      { digest, caller: { owner: digest.toString('base64url'), name, limits: withDefaults(limits, defaults) } },
    ]),
  );
  return (digest) => {
    const found = callers.get(blind(digest));
    return found !== undefined && timingSafeEqual(found.digest, digest) ? found.caller : null;
  };
}

/** The client's key: `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's clients send it. */
export function keyIn(headers: IncomingHttpHeaders): string | undefined {
  const { authorization } = headers;
  if (authorization !== undefined) return /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  const key = headers['x-api-key'];
  return typeof key === 'string' ? key : undefined;
}

/** The caller that the request's key names. @throws {Problem} invalid_api_key */
export function callerOf(table: KeyTable, headers: IncomingHttpHeaders): Caller {
  const key = keyIn(headers);
  const caller = key === undefined ? null : table(digestOf(key));
  if (caller === null)
    throw new Problem('invalid_api_key', 'Send a valid API key as "Authorization: Bearer KEY".', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  return caller;
}

// Management: routes that change the backend or show its internals are only for admin keys. The gateway has one key for the backend, often
// its most powerful one, and without this check clients could reach all that this key allows.

/** Segments that may come before a route's name: a backend may have the same route under each. */
const PREFIXES = new Set(['v1', 'v2', 'api', 'openai']);

/** Verbs that begin a management route's name, as in vLLM's load_lora_adapter and SGLang's update_weights_from_disk. */
const COMMANDS =
  /^(load|unload|start|stop|update|set|get|reset|init|destroy|flush|clear|dump|freeze|scale|is|configure|release|resume|pause|continue|abort|send|open|close|attach|detach|wake)_/;

const MANAGEMENT = new Set([
  // vLLM, https://docs.vllm.ai/en/stable/serving/online_serving.html, and its development mode
  ...['sleep', 'wake_up', 'pause', 'resume', 'collective_rpc', 'server_info', 'load', 'metrics'],
  // SGLang, its http_server.py
  ...[
    'loads',
    'hicache',
    'slow_down',
    'weights_checker',
    'model_info',
    'dumper',
    'remote_instance_transfer_engine_info',
  ],
  // llama-server, https://github.com/ggml-org/llama.cpp/tree/master/tools/server
  ...['slots', 'props', 'lora-adapters', 'tools', 'cors-proxy'],
  // LMDeploy, its api_server and its proxy
  ...['wakeup', 'terminate', 'distserve', 'nodes'],
  // TGI
  ...['info'],
  // text-generation-webui, TabbyAPI, Aphrodite
  ...['internal', 'lora', 'loras', 'download', 'auth', 'template', 'templates', 'sampling', 'soft_prompt'],
  // Ollama, LocalAI
  ...['pull', 'push', 'create', 'copy', 'delete', 'blobs', 'ps', 'backend', 'backends', 'system'],
  // OpenAI and LiteLLM: accounts, and settings for all of them
  ...['organization', 'projects', 'fine_tuning', 'fine-tunes', 'admin', 'config', 'credentials', 'cache', 'global'],
  ...['key', 'user', 'team', 'customer', 'budget', 'spend'],
]);

/** A POST whose path ends with one of these verbs manages the backend, as TabbyAPI's /v1/model/load does. */
const VERBS = new Set(['load', 'unload', 'switch', 'download', 'apply', 'new', 'update', 'delete']);
/** The list of models of OpenAI and other servers, which clients may read. */
const MODELS = new Set(['model', 'models']);

/** Objects that a client may delete by their ids, as OpenAI's clients do. */
const DELETABLE = /^(files|responses|conversations|chat\/completions|threads|assistants|vector_stores|containers)\/./;

/**
 * Rejects management routes for keys without `admin`.
 * @param path of the backend, with its query
 * @throws {Problem} permission_denied
 */
export function checkRoute({ limits: { admin } }: Caller, method: string, path: string): void {
  if (admin || !isManagement(method, path)) return;
  throw new Problem(
    'permission_denied',
    'This route manages the backend. It is for admin keys, which "countersign keys add NAME --admin" makes.',
  );
}

function isManagement(method: string, path: string): boolean {
  const segments = segmentsOf(path);
  const [name = '', ...rest] = segments;
  if (COMMANDS.test(name) || MANAGEMENT.has(name)) return true;
  if (method === 'DELETE') return !DELETABLE.test(segments.join('/'));
  if (!MODELS.has(name)) return method === 'POST' && VERBS.has(rest.at(-1) ?? '');
  // A single segment after the list's name is a model of any name but `sse`, which is a management route.
  return method === 'POST' || (rest.length === 1 && rest[0] === 'sse');
}

/** Splits a path as the most lenient server reads it: decoded, in lower case, without empty segments and without parameters. */
function segmentsOf(path: string): string[] {
  const decoded = decodeURIComponent(withoutQuery(path));
  const segments = decoded
    .toLowerCase()
    .split('/')
    .map((segment) => (segment.split(';', 1)[0] as string).trim())
    .filter((segment) => segment !== '');
  const first = segments.findIndex((segment) => !PREFIXES.has(segment));
  return first < 0 ? [] : segments.slice(first);
}
