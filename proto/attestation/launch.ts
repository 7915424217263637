// The launch file: what runs in a confidential guest. The processor's evidence vouches for its SHA-256 (docs/attestation.md §7.13).
import { isDigest } from '../bytes.ts';
import { isObject, JsonTextError } from '../json.ts';
import { readCompose } from './compose.ts';

/** A volume of weights. */
export interface Weights {
  /** `ORG/MODEL@REVISION` */
  readonly name: string;
  /** Root hash of its dm-verity tree, in hex. */
  readonly verity_root: string;
}

/** The members of a launch file of version 2, which `npm run launch` writes. */
interface LaunchFile {
  /** SHA-256 of the compose file, in hex. */
  readonly compose_sha256: string;
  /** In the order of their names. */
  readonly weights: readonly Weights[];
  /** SHA-256 of the operator's public key, in hex; null where the launch names no operator. */
  readonly operator: string | null;
  /** The text that `docker compose config --format json` printed. */
  readonly compose: string;
}

/** What a launch file says, of either version. */
export interface Launch {
  readonly version: 1 | 2;
  /** By service, each `name@sha256:<64 hex>`. Of version 2 those of the compose file, of version 1 its writer's words. */
  readonly images: Readonly<Record<string, string>>;
  readonly compose_sha256: string;
  /** null: of version 1, which shows no compose file. */
  readonly weights: readonly Weights[] | null;
  /** Those that the backend's command loads; null where there are none. */
  readonly model: Weights | null;
  readonly operator: string | null;
}

export const MAX_LAUNCH_CHARACTERS = 256 * 1024;
const MAX_WEIGHTS = 16;
export const WEIGHTS_NAME = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}@[A-Za-z0-9._-]{1,64}$/;
const VERSION_1_SERVICES = ['gateway', 'sidecar', 'backend'] as const;
const MAX_SERVICES = 32;
const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
const PINNED = /^[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}$/;

/** `login` is always false: no launch file describes an image that allows a login. */
export function writeLaunch({ compose_sha256, weights, operator, compose }: LaunchFile): string {
  const sorted = weights.map(({ name, verity_root }) => ({ name, verity_root })).sort(byName);
  return JSON.stringify({ version: 2, compose_sha256, weights: sorted, login: false, operator, compose });
}

const byName = (a: Weights, b: Weights) => (a.name < b.name ? -1 : 1);

/** @throws {JsonTextError} unless `text` is exactly what {@link writeLaunch} writes, or a launch file of version 1. */
export async function readLaunch(text: string): Promise<Launch> {
  if (text.length > MAX_LAUNCH_CHARACTERS)
    throw new JsonTextError(`the launch file has more than ${MAX_LAUNCH_CHARACTERS} characters`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new JsonTextError('the launch file is not JSON');
  }
  if (!isObject(value)) throw wrong('version');
  if (value.version === 1) return readVersion1(value, text);
  if (value.version !== 2) throw wrong('version');
  return readVersion2(value as unknown as LaunchFile, text);
}

const wrong = (member: string) => new JsonTextError(`the launch file's member ${member} is not what it must be`);

function asWritten(written: string, text: string): void {
  if (written !== text)
    throw new JsonTextError('the launch file has other members, another order, white space or another version');
}

async function readVersion2(file: LaunchFile, text: string): Promise<Launch> {
  const { compose_sha256, weights, operator, compose } = file;
  if (!isDigest(compose_sha256)) throw wrong('compose_sha256');
  if (!isWeights(weights)) throw wrong('weights');
  if (operator !== null && !isDigest(operator)) throw wrong('operator');
  if (typeof compose !== 'string') throw wrong('compose');
  asWritten(writeLaunch(file), text);
  const { images, roots, model } = readCompose(compose);
  if ((await sha256(compose)) !== compose_sha256)
    throw new JsonTextError("the launch file's compose_sha256 is not that of its compose file");
  const other =
    weights.find(({ verity_root }) => !roots.includes(verity_root)) ??
    (roots.length === weights.length ? undefined : 'more');
  if (other !== undefined)
    throw new JsonTextError(
      other === 'more'
        ? 'the compose file mounts weights that the launch file does not name'
        : 'the launch file names weights that its compose file does not mount',
    );
  const loaded = weights.find(({ verity_root }) => verity_root === model) ?? null;
  return { version: 2, images, compose_sha256, weights, model: loaded, operator };
}

/** Names and roots are each written once. */
function isWeights(weights: unknown): weights is readonly Weights[] {
  if (!Array.isArray(weights) || weights.length > MAX_WEIGHTS) return false;
  const isEach = weights.every(
    (one) => isObject(one) && typeof one.name === 'string' && WEIGHTS_NAME.test(one.name) && isDigest(one.verity_root),
  );
  return (
    isEach && ['name', 'verity_root'].every((of) => new Set(weights.map((one) => one[of])).size === weights.length)
  );
}

async function sha256(ascii: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(ascii)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function readVersion1(value: Record<string, unknown>, text: string): Launch {
  const { images, compose_sha256, model, egress, operator } = value;
  if (!isImages(images)) throw wrong('images');
  if (!isDigest(compose_sha256)) throw wrong('compose_sha256');
  const isModel =
    isObject(model) &&
    typeof model.name === 'string' &&
    /^[\x20-\x7e]{1,256}$/.test(model.name) &&
    (model.verity_root === null || isDigest(model.verity_root));
  if (!isModel) throw wrong('model');
  if (egress !== 'none' && egress !== 'models') throw wrong('egress');
  if (operator !== null && !isDigest(operator)) throw wrong('operator');
  const { name, verity_root } = model;
  const sorted = Object.fromEntries(Object.entries(images).sort(([a], [b]) => (a < b ? -1 : 1)));
  const members = { images: sorted, compose_sha256, model: { name, verity_root }, egress, login: false, operator };
  asWritten(JSON.stringify({ version: 1, ...members }), text);
  return { version: 1, images, compose_sha256, weights: null, model: null, operator };
}

function isImages(images: unknown): images is Readonly<Record<string, string>> {
  if (!isObject(images)) return false;
  const named = Object.entries(images);
  return (
    named.length <= MAX_SERVICES &&
    named.every(([service, image]) => NAME.test(service) && typeof image === 'string' && PINNED.test(image)) &&
    VERSION_1_SERVICES.every((service) => Object.hasOwn(images, service))
  );
}
