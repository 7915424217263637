// Checks a watch's history by docs/watch.md and nothing else: no code of ours is imported. `node chain.ts FOLDER`
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export interface Checked {
  readonly entries: number;
  readonly proofs: number;
  readonly last: string;
}

/** @throws {Error} for the first line or file that is wrong. */
export function checkChain(folder: string): Checked {
  const names = readdirSync(join(folder, 'history')).filter((name) => /^\d{8}\.jsonl$/.test(name));
  let number = 0;
  let last = '0'.repeat(64);
  let [entries, proofs] = [0, 0];
  for (const name of names.sort()) {
    let rest = readFileSync(join(folder, 'history', name));
    let isFirst = true;
    while (rest.length > 0) {
      const end = rest.indexOf(0x0a);
      if (end < 0) throw new Error(`${name}: the last line has no end`);
      const line = rest.subarray(0, end);
      rest = rest.subarray(end + 1);
      const entry = JSON.parse(line.toString());
      if (isFirst && Number(name.slice(0, 8)) !== entry.entry) throw new Error(`${name}: begins with ${entry.entry}`);
      isFirst = false;
      const isOldest = entries === 0;
      if (!isOldest && entry.entry !== number + 1) throw new Error(`entry ${number + 1} is missing`);
      if (entry.prev !== last && !(isOldest && entry.entry > 1)) throw new Error(`entry ${entry.entry}: another prev`);
      [number, last] = [entry.entry, sha256(line)];
      entries++;
      for (const path of entry.proofs ?? []) {
        // Rotation removes proofs before entries.
        if (!existsSync(join(folder, path))) continue;
        const [, hash] = /^[a-z]+\/([0-9a-f]{64})\.json$/.exec(path) ?? [];
        if (sha256(readFileSync(join(folder, path))) !== hash) throw new Error(`${path}: another hash`);
        proofs++;
      }
    }
  }
  return { entries, proofs, last };
}

if (import.meta.main) console.log(checkChain(process.argv[2] ?? '.'));
