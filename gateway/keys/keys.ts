// API keys: who asks, found in a time that says nothing about the keys there are.
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { topLevelMembers } from '../../proto/json.ts';
import { Problem } from '../http/problem.ts';

// Who asks: the owner of what is kept for them, the name that logs may hold, and what this key may do.

/** Whoever asked: attestations are kept for the owner that caused them. A digest of the key, never the key itself. */
export type Owner = string;

/** What one key may do. null: the gateway's default for all keys. 0: no limit. */
export interface KeyLimits {
  /** Requests in any second. */
  readonly rps: number | null;
  /** Requests at once. */
  readonly concurrent: number | null;
  /** Streams at once. */
  readonly streams: number | null;
  /** Requests with tee at once, those that wait for their attestation included. */
  readonly tee: number | null;
  /** null: every model that the backend has. */
  readonly models: ReadonlySet<string> | null;
  /** It may use the routes that manage the backend. */
  readonly admin: boolean;
}

export interface Caller {
  readonly owner: Owner;
  /** Unique, and no secret: what logs, metrics and limits know the key by. */
  readonly name: string;
  readonly limits: KeyLimits;
}

export const NO_LIMITS: KeyLimits = {
  rps: null,
  concurrent: null,
  streams: null,
  tee: null,
  models: null,
  admin: false,
};

/** Everybody, where no keys are configured: whoever is on the machine, which is theirs to manage. */
export const ANYONE: Caller = { owner: 'anyone', name: 'anyone', limits: { ...NO_LIMITS, admin: true } };

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
 * SHA-256, and no slow hash: a key that `countersign keys add` made has 256 random bits, which nobody finds by trying,
 * and a slow hash on every request would be a way to overload the gateway.
 */
export function digestOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

export interface Keys {
  /** @throws {Problem} invalid_api_key */
  authenticate(authorization: string | undefined): Caller;
  close(): void;
}

/** No keys are configured: everybody may ask. */
export const OPEN: Keys = { authenticate: () => ANYONE, close: () => {} };

/** Finds a caller by the SHA-256 of the key. */
type KeyTable = (digest: Buffer) => Caller | null;

/**
 * The table is keyed by a hash under a secret of this process (all messages have one length, so HMAC would add nothing but
 * ten times the cost): whoever measures how long a look-up takes learns nothing
 * about the digests in it, and a look-up among many keys costs what it does among one.
 */
export function tableOf(lines: readonly KeyLine[]): KeyTable {
  const secret = randomBytes(32).toString('hex');
  const blind = (digest: Buffer) => hash('sha256', secret + digest.toString('hex'), 'base64');
  const callers = new Map(
    lines.map(({ name, digest, limits }) => [
      blind(digest),
      { digest, caller: { owner: digest.toString('base64url'), name, limits } },
    ]),
  );
  return (digest) => {
    const found = callers.get(blind(digest));
    return found !== undefined && timingSafeEqual(found.digest, digest) ? found.caller : null;
  };
}

/** The caller that an `Authorization` header names. @throws {Problem} invalid_api_key */
export function callerOf(table: KeyTable, authorization: string | undefined): Caller {
  const key = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
  const caller = key === undefined ? null : table(digestOf(key));
  if (caller === null)
    throw new Problem('invalid_api_key', 'Send a valid API key as "Authorization: Bearer KEY".', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  return caller;
}

// Which models a key may ask for. A key without a list is not looked at.

/** Of what a client has written, in a message to it. */
const MAX_SHOWN = 128;

/** Go's encoding/json and others read names in any case: two of them are one there, and a parser takes the first or the last. */
function checkNames(names: readonly string[]): void {
  const seen = new Set<string>();
  for (const name of names) {
    const one = folded(name);
    if (seen.has(one) || (one === folded('model') && name !== 'model')) {
      const shown = name.slice(0, MAX_SHOWN);
      const message = `${shown}: this API key's requests name each member once, in whatever case, and model in lower case.`;
      throw new Problem('invalid_request', message, { param: shown });
    }
    seen.add(one);
  }
}

/** What Unicode's case folding, simple or full, makes equal is equal here; a few names more are too (ß and ss), and nobody has them. */
const folded = (name: string) => name.toLowerCase().toUpperCase();

/**
 * OpenAI's own words: a model that a key may not use is not told from one that there is not.
 * @param text the body that `value` was parsed from
 * @throws {Problem} model_not_found; invalid_request where it is not clear which model the backend would take.
 */
export function checkModel({ limits: { models } }: Caller, text: string, value: unknown): void {
  if (models === null) return;
  const model = (value as { model?: unknown } | null)?.model;
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  const names = isObject ? topLevelMembers(text).map(({ key }) => key) : [];
  checkNames(names);
  if (typeof model !== 'string' || !names.includes('model'))
    throw new Problem('invalid_request', 'model: this API key must name one model.', { param: 'model' });
  if (!models.has(model)) throw noSuchModel(model);
}

/**
 * What else a key with a list may ask for: the list itself, one of its models, and JSON bodies that name one.
 * @throws {Problem} permission_denied, model_not_found
 */
export function checkPath({ limits: { models } }: Caller, method: string, path: string, json: boolean): void {
  if (models === null || (method === 'POST' && json)) return;
  const [, one] = /^\/models(?:\/(.*))?$/.exec(path.split('?', 1)[0] ?? '') ?? [null, null];
  if (method !== 'GET' || one === null)
    throw new Problem('permission_denied', 'This API key is for some models only, and this request names none.');
  if (one !== undefined && one !== '' && !models.has(decodeURIComponent(one)))
    throw noSuchModel(decodeURIComponent(one));
}

function noSuchModel(model: string): Problem {
  const name = model.slice(0, MAX_SHOWN);
  return new Problem('model_not_found', `The model \`${name}\` does not exist or you do not have access to it.`);
}

// Routes of a backend that change it or show its inside: for admin keys alone. The gateway has one key for the backend, often
// its most powerful one, and a client's path would reach all that the backend lets that key do.

/** What may stand before a route's own name: a backend may have the same one under each. */
const PREFIXES = new Set(['v1', 'v2', 'api', 'openai']);

/** Commands, which are verbs where what everybody may use is a noun: vLLM's load_lora_adapter, SGLang's update_weights_from_disk. */
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
  // OpenAI and LiteLLM: accounts, and what is made for all of them
  ...['organization', 'projects', 'fine_tuning', 'fine-tunes', 'admin', 'config', 'credentials', 'cache', 'global'],
  ...['key', 'user', 'team', 'customer', 'budget', 'spend'],
]);

/** At the end of a route that is a noun: TabbyAPI's /v1/model/load, llama-server's /models/unload. */
const VERBS = new Set(['load', 'unload', 'switch', 'download', 'apply', 'new', 'update', 'delete']);
/** OpenAI's and the servers' list of models: to be read. */
const MODELS = new Set(['model', 'models']);

/** What one may delete of one's own, by its id, as OpenAI's clients do. */
const DELETABLE = /^(files|responses|conversations|chat\/completions|threads|assistants|vector_stores|containers)\/./;

/**
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
  // A model may be called as it likes, in one segment: what is listed beside the models is not.
  return method === 'POST' || (rest.length === 1 && rest[0] === 'sse');
}

/** As the most lenient server reads them: decoded, in any case, without empty ones and without parameters. */
function segmentsOf(path: string): string[] {
  const decoded = decodeURIComponent(path.split('?', 1)[0] ?? '');
  const segments = decoded
    .toLowerCase()
    .split('/')
    .map((segment) => (segment.split(';', 1)[0] as string).trim())
    .filter((segment) => segment !== '');
  const first = segments.findIndex((segment) => !PREFIXES.has(segment));
  return first < 0 ? [] : segments.slice(first);
}
