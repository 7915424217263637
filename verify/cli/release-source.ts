// `--release`: from OWNER/REPO@TAG to the texts of a bundle and a status, from a gateway, a folder or the release's assets on GitHub.
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EncodingError, fromUtf8 } from '../common/bytes.ts';
import { BodyTooLarge, readLimited } from '../common/limited.ts';
import type { ReleaseOptions } from '../common/release-options.ts';
import { MAX_RELEASE_BYTES, RELEASE_PATH, type ReleaseTexts, readReleaseDocument } from '../release/document.ts';
import { PROJECT } from '../release/project.ts';
import { readTrustedRoot } from '../release/trusted-root.ts';
import type { Arguments } from './args.ts';
import { readText, UsageError, unusable } from './input.ts';

/** In a folder of `countersign collateral`, and beside a gateway's keys. */
const FILE = 'release.json';
const BUNDLE_ASSET = 'release.sigstore.json';
const STATUS_ASSET = 'release-status.sigstore.json';
/** The release on GitHub that has nothing but the newest status. */
const STATUS_TAG = 'release-status';
const TIMEOUT_MS = 30_000;

const NONE: ReleaseTexts = { bundle: null, status: null };

/** The option `release` of the verifier. @throws {UsageError} */
export async function releaseOptions(args: Arguments, notify: (url: string) => void): Promise<ReleaseOptions | null> {
  const { release, trustedRoot } = args;
  if (release === null) return null;
  const { tag } = release;
  const repository = release.repository ?? PROJECT?.repository;
  if (repository === undefined)
    throw new UsageError('--release: the project has no public repository yet; name one: --release OWNER/REPO');
  const root = trustedRoot === null ? {} : { trustedRoot: readRoot(trustedRoot) };
  return { ...(await texts(args, repository, tag, notify)), repository, ...(tag === null ? {} : { tag }), ...root };
}

/** Keeps what was found for `--collateral DIR`. @throws {UsageError} */
export function keepRelease({ bundle, status = null }: ReleaseOptions, dir: string): string {
  const path = join(dir, FILE);
  try {
    writeFileSync(path, `{"bundle":${bundle},"status":${status}}\n`);
  } catch (error) {
    throw unusable(path, error);
  }
  return path;
}

async function texts(args: Arguments, repository: string, tag: string | null, notify: (url: string) => void) {
  const { gateway, offline, collateral } = args;
  if (gateway !== null && !offline) {
    const served = await fetched(gateway.replace(/(\/v1)?\/*$/, '') + RELEASE_PATH, notify);
    if (served !== null) return partsOf(served, gateway);
  }
  const file = collateral === null ? null : join(collateral, FILE);
  if (file !== null && existsSync(file)) return partsOf(readText(file), file);
  if (offline) return NONE;
  const releases = `https://github.com/${repository}/releases`;
  const assets = tag === null ? `${releases}/latest/download` : `${releases}/download/${encodeURIComponent(tag)}`;
  return {
    bundle: await fetched(`${assets}/${BUNDLE_ASSET}`, notify),
    status: await fetched(`${releases}/download/${STATUS_TAG}/${STATUS_ASSET}`, notify),
  };
}

/** Null: it is not to be had there. @throws {UsageError} */
async function fetched(url: string, notify: (url: string) => void): Promise<string | null> {
  notify(url);
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) return fromUtf8(await readLimited(response, MAX_RELEASE_BYTES));
    await response.body?.cancel();
    return null;
  } catch (error) {
    if (error instanceof BodyTooLarge) throw new UsageError(`${url}: ${error.message}`);
    if (error instanceof EncodingError) throw new UsageError(`${url}: not a text in UTF-8`);
    return null;
  }
}

/** @throws {UsageError} */
function partsOf(text: string, from: string): ReleaseTexts {
  try {
    return readReleaseDocument(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`${from}: ${error.message}`);
  }
}

/** @throws {UsageError} */
function readRoot(file: string): string {
  const text = readText(file);
  try {
    readTrustedRoot(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`--trusted-root ${file}: ${error.message}`);
  }
  return text;
}
