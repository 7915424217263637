// The proofs that entries rest on: answers, bundles and sessions as they came, each in a file that is named by its SHA-256.
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { notWritten, sha256 } from './history.ts';

export const KINDS = ['answers', 'bundles', 'sessions'] as const;
export type Kind = (typeof KINDS)[number];

/** What a node sent, exactly. */
export interface Received {
  readonly kind: Kind;
  readonly bytes: Uint8Array;
}

export interface Proofs {
  readonly bytes: number;
  /** @returns its path in the folder. @throws {UsageError} where it cannot be written. */
  keep(received: Received): string;
  /** Whether a file that an entry names is still there. */
  has(path: string): boolean;
  /** Removes those that were not used for the longest time, until at most this many bytes are left. */
  drop(max_bytes: number): void;
}

/** @throws {UsageError} */
export function openProofs(folder: string): Proofs {
  /** From the longest unused to the newest. */
  const sizes = new Map<string, number>();
  let total = 0;
  const found = KINDS.flatMap((kind) => {
    mkdirSync(join(folder, kind), { recursive: true });
    return readdirSync(join(folder, kind)).map((name) => `${kind}/${name}`);
  });
  const dated = found.map((path) => ({ path, ...statOf(join(folder, path)) })).sort((a, b) => a.used_ms - b.used_ms);
  for (const { path, size } of dated) {
    // What was being written when a watch ended.
    if (!path.endsWith('.json')) rmSync(join(folder, path), { force: true });
    else add(path, size);
  }

  function add(path: string, size: number): void {
    total += size - (sizes.get(path) ?? 0);
    sizes.delete(path);
    sizes.set(path, size);
  }

  return {
    get bytes() {
      return total;
    },
    has: (path) => sizes.has(path),
    keep({ kind, bytes }) {
      const path = `${kind}/${sha256(bytes)}.json`;
      const file = join(folder, path);
      if (sizes.has(path)) utimesSync(file, new Date(), new Date());
      else writeWhole(file, bytes);
      add(path, bytes.length);
      return path;
    },
    drop(max_bytes) {
      for (const [path, size] of sizes) {
        if (total <= max_bytes) return;
        rmSync(join(folder, path), { force: true });
        sizes.delete(path);
        total -= size;
      }
    },
  };
}

function statOf(file: string): { size: number; used_ms: number } {
  const { size = 0, mtimeMs: used_ms = 0 } = statSync(file, { throwIfNoEntry: false }) ?? {};
  return { size, used_ms };
}

/** A reader sees the whole file, or the one before. @throws {UsageError} */
export function writeWhole(file: string, bytes: Uint8Array): void {
  const partial = `${file}.partial`;
  try {
    const opened = openSync(partial, 'w');
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(opened, bytes, done);
      fsyncSync(opened);
    } finally {
      closeSync(opened);
    }
    renameSync(partial, file);
  } catch (error) {
    rmSync(partial, { force: true });
    throw notWritten(file, error);
  }
}
