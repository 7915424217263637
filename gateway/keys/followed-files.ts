// Follows configuration files: a changed file is loaded again within two seconds.
import { type BigIntStats, readFileSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';

/**
 * Files are polled by their paths: this sees a rename and a swapped symbolic link (Kubernetes), which fs.watch does not. A changed file is
 * read at the second poll that finds it the same, as it may still be being written at the first.
 */
const POLL_MS = 900;

/** Reads a file as text, and follows it from then on. @throws {NodeJS.ErrnoException}, with EFBIG for a file over `max_bytes` */
export type ReadFollowed = (path: string, max_bytes?: number) => string;

/**
 * Calls `load` now, and again when a file that its last call read has changed and then rested. Errors of the first call are thrown; `load` handles later
 * ones itself. @returns a function that stops following.
 */
export function followFiles(load: (read: ReadFollowed) => void, poll_ms = POLL_MS): () => void {
  let versions = new Map<string, string>();
  const run = () => {
    const seen = new Map<string, string>();
    versions = seen;
    load((path, max_bytes = Number.POSITIVE_INFINITY) => {
      // The version is taken before the file is read, so that a change in between is seen.
      const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
      seen.set(path, versionOf(stats));
      if (stats !== undefined && stats.size > max_bytes)
        throw Object.assign(new Error(`larger than ${max_bytes} bytes`), { code: 'EFBIG' });
      return readFileSync(path, 'utf8');
    });
  };
  run();
  let last = '';
  let polling = false;
  const poll = async () => {
    const paths = [...versions.keys()];
    const found = await Promise.all(paths.map((path) => stat(path, { bigint: true }).catch(() => undefined)));
    const now = found.map(versionOf).join();
    if (now === last && now !== [...versions.values()].join()) run();
    last = now;
  };
  const timer = setInterval(() => {
    if (polling) return;
    polling = true;
    void poll().finally(() => {
      polling = false;
    });
  }, poll_ms).unref();
  return () => clearInterval(timer);
}

/** Identifies the file and its state. */
function versionOf(stats: BigIntStats | undefined): string {
  return stats === undefined ? 'absent' : [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join(' ');
}
