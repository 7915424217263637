// A folder that keeps fetched documents across restarts, one file for each id. Nothing in it is trusted: the reader of a file verifies
// its contents.
//
// A file is:
//   the magic, and the SHA-256 of all that follows this line in hex, LF
//   the id, LF
//   the contents
import { hash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

interface KeptFilesOptions<Kind extends string> {
  readonly folder: string;
  /** The first bytes of a file, which name its format and version. */
  readonly magic: string;
  /** A file's name begins with one of them. */
  readonly kinds: readonly Kind[];
  /** A larger file is treated as damaged. */
  readonly max_file_bytes: number;
  /** Limit for all files together; the least recently written are removed first. */
  readonly max_bytes?: number;
  readonly max_files?: number;
  /** Called with one line about a failure. No failure here stops an attestation. */
  readonly onFailure: (message: string) => void;
}

export interface KeptFiles<Kind extends string> {
  /** null: it was never kept, or its file was damaged and has been removed. */
  read(kind: Kind, id: string): Promise<Uint8Array | null>;
  /** Replaces an earlier file of this id. */
  write(kind: Kind, id: string, contents: Uint8Array): Promise<void>;
  remove(kind: Kind, id: string): Promise<void>;
}

/** A half-written file of this age was left by a process that was killed. */
const ABANDONED_MS = 60_000;

export function createKeptFiles<Kind extends string>(options: KeptFilesOptions<Kind>): KeptFiles<Kind> {
  const { folder, magic, kinds, max_file_bytes, onFailure } = options;
  const { max_bytes = Number.POSITIVE_INFINITY, max_files = Number.POSITIVE_INFINITY } = options;
  const whole = new RegExp(`^(?:${kinds.join('|')})-[0-9a-f]{64}$`);
  const halfWritten = new RegExp(`^(?:${kinds.join('|')})-[0-9a-f]{64}\\.\\d+\\.tmp$`);
  const path = (kind: Kind, id: string) => join(folder, `${kind}-${hash('sha256', id)}`);
  let lastChange: Promise<unknown> = Promise.resolve();

  /** Runs one change of the folder after the other. */
  function change(work: () => Promise<void>): Promise<void> {
    const done = lastChange.then(work);
    lastChange = done.catch(() => {});
    return done;
  }

  const remove = (file: string) => change(() => rm(file, { force: true })).catch(() => {});

  /** Writes a file atomically: it is complete or absent. */
  async function put(file: string, bytes: Buffer): Promise<void> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const temporary = `${file}.${process.pid}.tmp`;
    const handle = await open(temporary, 'w', 0o600);
    try {
      await handle.writeFile(bytes);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
    await shrink();
  }

  async function shrink(): Promise<void> {
    const ours = (await readdir(folder)).filter((name) => whole.test(name) || halfWritten.test(name));
    const files = await Promise.all(
      ours.map(async (name) => {
        const file = join(folder, name);
        const { size, mtimeMs } = await stat(file).catch(() => ({ size: 0, mtimeMs: 0 }));
        return { file, size, mtimeMs, isWhole: whole.test(name) };
      }),
    );
    const abandoned = files.filter(({ isWhole, mtimeMs }) => !isWhole && mtimeMs < Date.now() - ABANDONED_MS);
    const newestFirst = files.filter(({ isWhole }) => isWhole).sort((a, b) => b.mtimeMs - a.mtimeMs);
    let bytes = 0;
    for (const [i, { file, size }] of newestFirst.entries()) {
      bytes += size;
      if (i >= max_files || bytes > max_bytes) await rm(file, { force: true });
    }
    for (const { file } of abandoned) await rm(file, { force: true });
  }

  return {
    async read(kind, id) {
      const file = path(kind, id);
      try {
        if ((await stat(file)).size > max_file_bytes) throw new Error('too large');
        return unpacked(await readFile(file), magic, id);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
        onFailure(`${file} is damaged (${reasonOf(error)}) and is fetched again`);
        await remove(file);
        return null;
      }
    },
    write: (kind, id, contents) =>
      change(() => put(path(kind, id), packed(magic, id, contents))).catch((error: unknown) =>
        onFailure(`${folder} cannot keep what was fetched (${reasonOf(error)}); it is fetched again after a restart`),
      ),
    remove: (kind, id) => remove(path(kind, id)),
  };
}

function packed(magic: string, id: string, contents: Uint8Array): Buffer {
  const rest = Buffer.concat([Buffer.from(`${id}\n`), contents]);
  return Buffer.concat([Buffer.from(`${magic}${hash('sha256', rest)}\n`), rest]);
}

function unpacked(file: Buffer, magic: string, id: string): Uint8Array {
  const head_bytes = magic.length + 65;
  const rest = file.subarray(head_bytes);
  if (file.toString('latin1', 0, head_bytes) !== `${magic}${hash('sha256', rest)}\n`)
    throw new Error('its checksum is another');
  const name = Buffer.from(`${id}\n`);
  if (!rest.subarray(0, name.length).equals(name)) throw new Error('it is of something else');
  return new Uint8Array(rest.subarray(name.length));
}

const reasonOf = (error: unknown) =>
  (error as NodeJS.ErrnoException).code ?? (error instanceof Error ? error.message : 'unknown');
