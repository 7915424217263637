// What a service shows of its release, and what is kept of one beside stored answers: {"bundle":…,"status":…}.
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import type { ReleaseOptions } from '../common/release-options.ts';

/** Where a service shows it. */
export const RELEASE_PATH = '/.well-known/countersign/release';
/** Two bundles of the largest size. */
export const MAX_RELEASE_BYTES = 1024 * 1024 + 4096;

export type ReleaseTexts = Pick<ReleaseOptions, 'bundle'> & { readonly status: string | null };

/** @throws {TypeError} for a text that is none; its message follows where the text is from. */
export function readReleaseDocument(text: string): ReleaseTexts {
  let value: unknown;
  try {
    value = parseStrict(text);
  } catch (error) {
    if (!(error instanceof JsonTextError || error instanceof SyntaxError)) throw error;
    throw new TypeError('the release there is not JSON, or names a member twice');
  }
  if (!isObject(value) || !isObject(value.bundle)) throw new TypeError("there is no release's bundle in it");
  const { bundle, status = null } = value;
  return { bundle: JSON.stringify(bundle), status: status === null ? null : JSON.stringify(status) };
}
