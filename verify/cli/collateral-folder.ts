// Reference values and OCSP responses for the CLI: from folders and files, from the network, or both.
import { accessSync, constants, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromBase64 } from '../common/bytes.ts';
import { type Collateral, type CollateralOptions, createCollateral } from '../gpu/collateral.ts';
import type { Arguments } from './args.ts';
import { readBytes, UsageError, unusable } from './input.ts';

const RIM_FOLDER = 'rim';
const OCSP_FOLDER = 'ocsp';
const MAX_FILES = 1024;

/** @throws {UsageError} when a folder or a file cannot be read. */
export function collateralFor(args: Arguments, notify = onFetch): Collateral {
  const rims: Uint8Array[] = [];
  const ocsp: Uint8Array[] = args.ocsp.map((file) => derOrBase64(readBytes(file)));
  if (args.rimDir !== null) rims.push(...filesIn(args.rimDir));
  if (args.collateral !== null) {
    rims.push(...filesIn(join(args.collateral, RIM_FOLDER)));
    ocsp.push(...filesIn(join(args.collateral, OCSP_FOLDER)).map(derOrBase64));
  }
  return createCollateral({ rims, ocsp, ...network(args, notify) });
}

/**
 * Collateral that is fetched and saved in `dir`, for a later `--offline --collateral DIR`.
 * @throws {UsageError} when `dir` cannot be made or written to.
 */
export function fetchingInto(dir: string, args: Arguments, onKept: (path: string) => void): Collateral {
  for (const folder of [RIM_FOLDER, OCSP_FOLDER].map((name) => join(dir, name)))
    attempt(folder, () => {
      mkdirSync(folder, { recursive: true });
      accessSync(folder, constants.W_OK);
    });
  return createCollateral({
    ...network(args, onFetch),
    onFetched(kind, id, bytes) {
      const name = kind === 'rim' ? `${id.replace(/[^A-Za-z0-9._-]/g, '_')}.xml` : `${id.slice(-40)}.der`;
      const path = join(dir, kind === 'rim' ? RIM_FOLDER : OCSP_FOLDER, name);
      writeFileSync(path, bytes);
      onKept(path);
    },
  });
}

function network(args: Arguments, notify: (url: string) => void): CollateralOptions {
  return {
    ...(args.offline ? {} : { fetch: globalThis.fetch, onFetch: notify }),
    ...(args.rimUrl === null ? {} : { rim_url: args.rimUrl }),
    ...(args.ocspUrl === null ? {} : { ocsp_url: args.ocspUrl }),
  };
}

function filesIn(dir: string): Uint8Array[] {
  const names = attempt(dir, () => readdirSync(dir));
  if (names.length > MAX_FILES) throw new UsageError(`${dir}: more than ${MAX_FILES} files`);
  return names
    .map((name) => join(dir, name))
    .filter((path) => attempt(path, () => statSync(path).isFile()))
    .map(readBytes);
}

function attempt<T>(path: string, use: () => T): T {
  try {
    return use();
  } catch (error) {
    throw unusable(path, error);
  }
}

/** Files hold OCSP responses as DER, or as base64 of it. */
function derOrBase64(bytes: Uint8Array): Uint8Array {
  if (bytes[0] === 0x30) return bytes;
  try {
    return fromBase64(new TextDecoder().decode(bytes).replace(/\s+/g, ''));
  } catch {
    return bytes;
  }
}

/** Prints one changing line on a terminal, and elsewhere a line for each URL. */
export function onFetch(url: string): void {
  const { stderr } = process;
  if (stderr.isTTY) stderr.write(`\r\u001b[Kfetching ${url} …`);
  else stderr.write(`fetching ${url} …\n`);
}

/** Ends the line that onFetch writes. */
export function fetched(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
}
