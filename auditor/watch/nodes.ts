// nodes.json: what is watched, and what is demanded of each node. Read strictly: a name that there is not is an error.
import { dirname, resolve } from 'node:path';
import { readText, UsageError } from '../../verify/cli/input.ts';
import { readReference, readWeights } from '../../verify/cpu.ts';
import { type CpuReference, LEVELS, type Level } from '../../verify/index.ts';

export interface Node {
  readonly name: string;
  /** Without a slash at its end and without `/v1`. */
  readonly url: string;
  readonly apiKey: string | null;
  readonly model: string;
  /** The least level. */
  readonly level: Level;
  readonly reference: CpuReference | null;
  /** The signed release whose list stands in place of `reference`. */
  readonly release: { readonly repository: string; readonly tag: string | null } | null;
  /** The verity root of the weights that it must have; null: any. */
  readonly weights: string | null;
  /** GPUs and switches as a session lists them, chips as `--chip` takes them; null: those of its first proof. */
  readonly devices: readonly string[] | null;
}

export interface Nodes {
  /** The watch's name: the title of its page, and in each entry of its history. */
  readonly watch: string;
  readonly nodes: readonly Node[];
  /** How many rounds in a row without a proof make a failure. */
  readonly misses: number;
  readonly webhook: string | null;
  /** The path of a Sigstore trusted root for releases, in place of the public one. */
  readonly trusted_root: string | null;
  /** Versions of NVIDIA's driver that the nodes will have. */
  readonly next_drivers: readonly string[];
}

const MAX_NODES = 1_000;
const MAX_MISSES = 100;
const MISSES = 3;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const TITLE = /^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u;
/** OWNER/REPO, or OWNER/REPO@TAG, as GitHub allows them. */
const RELEASE = /^[A-Za-z0-9][A-Za-z0-9-]{0,38}\/[A-Za-z0-9._-]{1,100}(@[A-Za-z0-9][A-Za-z0-9._+-]{0,99})?$/;
const ROOT = /^[0-9a-f]{64}$/;
const DEVICE = /^([0-9a-f]{64}|[0-9a-f]{128}|[0-9a-f]{32})$/;
const DRIVER = /^\d{3}(\.\d{1,4}){1,3}$/;
const KEY = /^[!-~]{1,4096}$/;

/** @throws {UsageError} naming what is wrong. */
export function readNodes(file: string): Nodes {
  const wrong = (what: string) => new UsageError(`${file}: ${what}`);
  let value: unknown;
  try {
    value = JSON.parse(readText(file));
  } catch (error) {
    throw error instanceof UsageError ? error : wrong('not JSON');
  }
  const members = new Members(
    value,
    'it',
    ['watch', 'nodes', 'misses', 'webhook', 'next_drivers', 'trusted_root'],
    wrong,
  );
  const list = members.list('nodes') ?? [];
  if (list.length === 0 || list.length > MAX_NODES) throw wrong(`nodes is not a list of 1 to ${MAX_NODES}`);
  const nodes = list.map((one, i) => readNode(one, `nodes[${i}]`, dirname(file), wrong));
  const twice = nodes.find(({ name }, i) => nodes.findIndex((one) => one.name === name) !== i);
  if (twice !== undefined) throw wrong(`two nodes have the name ${twice.name}`);
  const { misses = MISSES } = value as { misses?: unknown };
  if (!Number.isInteger(misses) || Number(misses) < 1 || Number(misses) > MAX_MISSES)
    throw wrong(`misses is not a number from 1 to ${MAX_MISSES}`);
  return {
    watch: members.text('watch', TITLE),
    nodes,
    misses: Number(misses),
    webhook: members.url('webhook'),
    trusted_root: members.path('trusted_root', dirname(file)),
    next_drivers: members.texts('next_drivers', DRIVER) ?? [],
  };
}

const OF_NODE = ['name', 'url', 'api_key_file', 'model', 'level', 'reference', 'release', 'weights', 'devices'];

type Wrong = (what: string) => UsageError;

function readNode(value: unknown, at: string, folder: string, wrong: Wrong): Node {
  const members = new Members(value, at, OF_NODE, wrong);
  const url = members.url('url');
  if (url === null) throw wrong(`${at}.url is needed`);
  const reference = members.file('reference', folder);
  const release = members.optional('release', RELEASE);
  if (release !== null && reference !== null) throw wrong(`${at} has release and reference: one list at a time`);
  const known = release ?? reference;
  const level = members.optional('level', /^[a-z+]+$/) ?? (known === null ? 'gpu' : 'measured');
  if (!LEVELS.includes(level as Level)) throw wrong(`${at}.level is not one of ${LEVELS.join(', ')}`);
  if (level === 'measured' && known === null) throw wrong(`${at}.level measured needs a reference or a release`);
  const weights = members.optional('weights', /./);
  if (weights !== null && level !== 'measured') throw wrong(`${at}.weights needs the level measured`);
  return {
    name: members.text('name', NAME),
    url: url.replace(/\/+$/, '').replace(/\/v1$/, ''),
    apiKey: keyIn(members.file('api_key_file', folder), `${at}.api_key_file`, wrong),
    model: members.text('model', TITLE),
    level: level as Level,
    reference: reference === null ? null : readAs(readReference, reference, `${at}.reference`, wrong),
    release: release === null ? null : releaseIn(release),
    weights: weights === null ? null : weightsIn(weights, folder, `${at}.weights`, wrong),
    devices: members.texts('devices', DEVICE),
  };
}

/** The key is in no message. */
function keyIn(text: string | null, at: string, wrong: Wrong): string | null {
  if (text === null) return null;
  const key = text.trim();
  if (!KEY.test(key)) throw wrong(`${at}: the file does not hold one key in printable ASCII`);
  return key;
}

function releaseIn(given: string): NonNullable<Node['release']> {
  const [repository = '', tag = null] = given.split('@');
  return { repository, tag };
}

/** @param given a verity root, or the path of weights.json */
function weightsIn(given: string, folder: string, at: string, wrong: Wrong): string {
  return ROOT.test(given) ? given : readAs(readWeights, readText(resolve(folder, given)), at, wrong);
}

function readAs<T>(read: (text: string) => T, text: string, at: string, wrong: Wrong): T {
  try {
    return read(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw wrong(`${at}: ${error.message}`);
  }
}

/** The members of one object. Each reader throws an error that names the member. */
class Members {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #at: string;
  readonly #wrong: Wrong;

  constructor(value: unknown, at: string, names: readonly string[], wrong: Wrong) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong(`${at} is not an object`);
    const other = Object.keys(value).find((name) => !names.includes(name));
    if (other !== undefined)
      throw wrong(`${at} has a member ${JSON.stringify(other)}, and may have ${names.join(', ')}`);
    this.#values = { ...value };
    this.#at = at === 'it' ? '' : `${at}.`;
    this.#wrong = wrong;
  }

  #not(name: string, what: string): UsageError {
    return this.#wrong(`${this.#at}${name} ${what}`);
  }

  optional(name: string, form: RegExp): string | null {
    const value = this.#values[name];
    if (value === undefined) return null;
    if (typeof value !== 'string' || !form.test(value)) throw this.#not(name, `does not have the form ${form.source}`);
    return value;
  }

  text(name: string, form: RegExp): string {
    const value = this.optional(name, form);
    if (value === null) throw this.#not(name, 'is needed');
    return value;
  }

  list(name: string): readonly unknown[] | null {
    const value = this.#values[name];
    if (value === undefined) return null;
    if (!Array.isArray(value)) throw this.#not(name, 'is not a list');
    return value;
  }

  texts(name: string, form: RegExp): readonly string[] | null {
    const list = this.list(name);
    if (list?.every((one): one is string => typeof one === 'string' && form.test(one)) === false)
      throw this.#not(name, `is not a list of texts of the form ${form.source}`);
    return list as readonly string[] | null;
  }

  /** With no user and no password, which would be in messages. */
  url(name: string): string | null {
    const value = this.optional(name, /^https?:\/\/[!-~]+$/);
    if (value === null) return null;
    const parsed = URL.canParse(value) ? new URL(value) : null;
    const { username, password, search = '-', hash } = parsed ?? {};
    if (parsed === null || username !== '' || password !== '' || hash !== '' || (name === 'url' && search !== ''))
      throw this.#not(name, 'is not the http(s) URL of a service');
    return value;
  }

  /** From the folder of nodes.json on. */
  path(name: string, folder: string): string | null {
    const path = this.optional(name, /./);
    return path === null ? null : resolve(folder, path);
  }

  /** The text of the file that is named. @throws {UsageError} */
  file(name: string, folder: string): string | null {
    const path = this.path(name, folder);
    return path === null ? null : readText(path);
  }
}
