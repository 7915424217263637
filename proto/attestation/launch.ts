// The launch file: which images run in a confidential guest. The processor's evidence vouches for its SHA-256
// (docs/attestation.md §7.13).
import { isDigest } from '../bytes.ts';
import { isObject, JsonTextError } from '../json.ts';

/** Its text is what {@link writeLaunch} writes. */
export interface Launch {
  /** By service, each `name@sha256:<64 hex>`. */
  readonly images: Readonly<Record<string, string>>;
  /** SHA-256 of the compose file, in hex. */
  readonly compose_sha256: string;
  /** `verity_root`: root hash of the volume that holds the weights, in hex; null where nothing measures them. */
  readonly model: { readonly name: string; readonly verity_root: string | null };
  /** What the services may reach: nothing, or the servers that models are downloaded from. */
  readonly egress: 'none' | 'models';
  /** SHA-256 of the operator's public key, in hex; null where the launch names no operator. */
  readonly operator: string | null;
}

export const EGRESS = ['none', 'models'] as const;
export const MAX_LAUNCH_CHARACTERS = 256 * 1024;
/** Services that every launch file names. */
export const SERVICES = ['gateway', 'sidecar', 'backend'] as const;
const MAX_SERVICES = 32;
const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
const PINNED = /^[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}$/;

/** `login` is always false: no launch file describes an image that allows a login. */
export function writeLaunch({ images, compose_sha256, model, egress, operator }: Launch): string {
  const { name, verity_root } = model;
  const sorted = Object.fromEntries(Object.entries(images).sort(([a], [b]) => (a < b ? -1 : 1)));
  const members = { images: sorted, compose_sha256, model: { name, verity_root }, egress, login: false, operator };
  return JSON.stringify({ version: 1, ...members });
}

/** @throws {JsonTextError} unless `text` is exactly what {@link writeLaunch} writes. */
export function readLaunch(text: string): Launch {
  if (text.length > MAX_LAUNCH_CHARACTERS)
    throw new JsonTextError(`the launch file has more than ${MAX_LAUNCH_CHARACTERS} characters`);
  let launch: Launch;
  try {
    launch = JSON.parse(text) as Launch;
  } catch {
    throw new JsonTextError('the launch file is not JSON');
  }
  const wrong = isObject(launch) ? wrongMember(launch) : 'version';
  if (wrong !== null) throw new JsonTextError(`the launch file's member ${wrong} is not what it must be`);
  if (writeLaunch(launch) !== text)
    throw new JsonTextError('the launch file has other members, another order, white space or another version');
  return launch;
}

/** The first invalid member; null where all are valid. */
export function wrongMember({ images, compose_sha256, model, egress, operator }: Launch): string | null {
  if (!isObject(images)) return 'images';
  const named = Object.entries(images);
  const isImages =
    named.length <= MAX_SERVICES &&
    named.every(([service, image]) => NAME.test(service) && typeof image === 'string' && PINNED.test(image)) &&
    SERVICES.every((service) => Object.hasOwn(images, service));
  if (!isImages) return 'images';
  if (!isDigest(compose_sha256)) return 'compose_sha256';
  const isModel =
    isObject(model) &&
    typeof model.name === 'string' &&
    /^[\x20-\x7e]{1,256}$/.test(model.name) &&
    (model.verity_root === null || isDigest(model.verity_root));
  if (!isModel) return 'model';
  if (!EGRESS.includes(egress)) return 'egress';
  return operator === null || isDigest(operator) ? null : 'operator';
}
