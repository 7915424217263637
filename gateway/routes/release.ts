// GET /.well-known/countersign/release: the signed release that this service runs, and the newest status, for clients without a list of their own.
// Nothing here is believed: clients verify both, and a gateway can at most withhold them. With SECRETS=sealed it comes with the secrets.
import { readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Context } from '../http/context.ts';
import { releaseDocument, type SharedDocument, sendDocument } from '../http/document.ts';

/** Beside the file of API keys, which in a confidential VM is the operator's own as well: {"bundle":…,"status":…}. */
const FILE = 'release.json';
const MAX_BYTES = 1024 * 1024;

interface ReleaseDeps {
  readonly config: Pick<GatewayConfig, 'api_keys_file' | 'received'>;
  readonly log: Logger;
}

export function release({ config, log }: ReleaseDeps) {
  const path = config.api_keys_file === null ? null : join(dirname(config.api_keys_file), FILE);
  const sent = config.received?.release ?? null;
  let version = '';
  let document = sent === null ? null : releaseDocument(sent);

  /** Reads the file again when it has changed; one that cannot be used leaves what was read before. */
  async function load(file: string): Promise<SharedDocument | null> {
    const stats = await stat(file, { bigint: true }).catch(() => null);
    const now = stats === null ? '' : [stats.ino, stats.size, stats.mtimeNs].join(' ');
    if (now === version) return document;
    version = now;
    if (stats === null) document = null;
    else if (stats.size > MAX_BYTES) log.warn({ file, max_bytes: MAX_BYTES }, 'the release file is too large');
    else document = (await read(file)) ?? document;
    return document;
  }

  async function read(file: string): Promise<SharedDocument | null> {
    // It may be taken away between the two reads.
    const found = releaseDocument(await readFile(file, 'utf8').catch(() => ''));
    if (found === null) log.warn({ file }, 'the release file is not JSON with a bundle');
    return found;
  }

  return async (c: Context): Promise<Response> => {
    const found = path === null ? document : await load(path);
    if (found === null) throw new Problem('not_found', 'This gateway has no release to show.');
    return sendDocument(c, found);
  };
}
