// Writes a folder of weights as a tar stream in which nothing but names and bytes differs, and hashes each file in that very stream.
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { UsageError } from '../../verify/cli/input.ts';
import { type Entry, stampOf } from './folder.ts';

export interface FileDigest {
  readonly path: string;
  readonly size: number;
  /** In hex. */
  readonly sha256: string;
}

const BLOCK = 512;
const READ_BYTES = 1 << 20;

/**
 * POSIX.1-2001 ("pax"): each entry has a header of its own for path and size, so that neither has a limit.
 * @param onFile of each file once all its bytes were given.
 * @throws {UsageError} for a file that changes while it is read.
 */
export async function* tarOf(
  entries: readonly Entry[],
  onFile: (file: FileDigest) => void,
): AsyncGenerator<Buffer, void, undefined> {
  for (const entry of entries) {
    yield headerOf(entry);
    if (entry.isFolder) continue;
    const hash = createHash('sha256');
    for await (const bytes of bytesOf(entry)) {
      hash.update(bytes);
      yield bytes;
    }
    yield Buffer.alloc(-entry.size & (BLOCK - 1));
    onFile({ path: entry.path, size: entry.size, sha256: hash.digest('hex') });
  }
  yield Buffer.alloc(2 * BLOCK);
}

async function* bytesOf({ path, real, size, stamp }: Entry): AsyncGenerator<Buffer, void, undefined> {
  const changed = new UsageError(`${path}: changed while it was read`);
  const file = await open(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
  if (file === null) throw new UsageError(`${path}: cannot be read`);
  try {
    const isSame = async () => stampOf(await file.stat({ bigint: true })) === stamp;
    if (!(await isSame())) throw changed;
    for (let left = size; left > 0; ) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(READ_BYTES, left)));
      if (bytesRead === 0) throw changed;
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    if (!(await isSame())) throw changed;
  } finally {
    await file.close();
  }
}

/** Owner root, no times, and the modes of a folder and a file that everybody may read. */
function headerOf({ path, isFolder, size }: Entry): Buffer {
  const name = path === '' ? './' : `./${path}${isFolder ? '/' : ''}`;
  const records = Buffer.from(record('path', name) + record('size', String(size)));
  const padding = Buffer.alloc(-records.length & (BLOCK - 1));
  const extended = header('PaxHeaders', { type: 'x', mode: '644', size: records.length });
  // The plain header holds what an old program can read of it.
  const plain = header(name.slice(0, 50), {
    type: isFolder ? '5' : '0',
    mode: isFolder ? '755' : '644',
    size: Math.min(size, MAX_OCTAL),
  });
  return Buffer.concat([extended, records, padding, plain]);
}

const MAX_OCTAL = 0o77777777777;

/** `LENGTH KEY=VALUE\n`, whose length counts its own digits. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = Buffer.byteLength(rest);
  let length = bytes;
  while (length !== bytes + String(length).length) length = bytes + String(length).length;
  return length + rest;
}

function header(name: string, { type, mode, size }: { type: string; mode: string; size: number }): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  const put = (text: string, offset: number) => bytes.write(text, offset);
  put(
    Buffer.from(name)
      .subarray(0, 100)
      .toString('latin1')
      .replace(/[^\x20-\x7e]/g, '_'),
    0,
  );
  put(mode.padStart(7, '0'), 100);
  put('0000000', 108);
  put('0000000', 116);
  put(size.toString(8).padStart(11, '0'), 124);
  put('00000000000', 136);
  put('        ', 148);
  put(type, 156);
  put('ustar\x0000', 257);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return bytes;
}
