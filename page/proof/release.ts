// The release that a visitor names, with its bundle and status from this gateway or from a file. Loaded where one is named.
import { EncodingError, fromUtf8 } from '../../verify/common/bytes.ts';
import { BodyTooLarge, readLimited } from '../../verify/common/limited.ts';
import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import {
  MAX_RELEASE_BYTES,
  RELEASE_PATH,
  type ReleaseTexts,
  readReleaseDocument,
} from '../../verify/release/document.ts';
import { REPOSITORY, TAG_NAME } from '../../verify/release/release-statement.ts';
import { readTrustedRoot } from '../../verify/release/trusted-root.ts';
import { ask, GatewayError } from '../base/gateway.ts';

/** @param name OWNER/REPO or OWNER/REPO@TAG. @returns null: it is neither. */
export function releaseNamed(name: string): Pick<ReleaseOptions, 'repository' | 'tag'> | null {
  const [repository = '', ...rest] = name.trim().split('@');
  if (!REPOSITORY.test(repository)) return null;
  if (rest.length === 0) return { repository };
  const tag = rest.join('@');
  return TAG_NAME.test(tag) ? { repository, tag } : null;
}

export function isTrustedRoot(text: string): boolean {
  try {
    readTrustedRoot(text);
    return true;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return false;
  }
}

/** In a release.json. @returns null: the text is none. */
export function releaseIn(text: string): ReleaseTexts | null {
  if (text.length > MAX_RELEASE_BYTES) return null;
  try {
    return readReleaseDocument(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return null;
  }
}

const NONE: ReleaseTexts = { bundle: null, status: null };

/** What this gateway shows; where that is none, the check of the release says so. */
export async function servedRelease(): Promise<ReleaseTexts> {
  try {
    return releaseIn(fromUtf8(await readLimited(await ask(RELEASE_PATH), MAX_RELEASE_BYTES))) ?? NONE;
  } catch (error) {
    // A TypeError: the line broke in the middle of it.
    if ([GatewayError, BodyTooLarge, EncodingError, TypeError].some((one) => error instanceof one)) return NONE;
    throw error;
  }
}
