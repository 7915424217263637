// A folder that keeps reference values and revocation answers across restarts. What it gives back is not yet trusted.
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

export type Kind = 'rim' | 'ocsp';

export interface StoreOptions {
  readonly folder: string;
  /** Of all files together; the ones not written for longest go first. 64 MiB by default. */
  readonly max_bytes?: number;
  /** Told what went wrong, in one line: nothing here stops an attestation. */
  readonly onTrouble?: (message: string) => void;
}

export interface Store {
  /** null: it was never kept, or what lies there is damaged and now gone. */
  read(kind: Kind, id: string): Promise<Uint8Array | null>;
  write(kind: Kind, id: string, bytes: Uint8Array): Promise<void>;
  remove(kind: Kind, id: string): Promise<void>;
}

const DEFAULT_MAX_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 2 * 1024 * 1024;
/** A file is this, the SHA-256 of its id and contents in hex, a line feed; the id, a line feed; the contents. */
const MAGIC = 'countersign collateral 1 ';
const NAME = /^(rim|ocsp)-[0-9a-f]{64}$/;

export function createStore({ folder, max_bytes = DEFAULT_MAX_BYTES, onTrouble = () => {} }: StoreOptions): Store {
  const path = (kind: Kind, id: string) => join(folder, `${kind}-${sha256(id)}`);
  const drop = (file: string) => rm(file, { force: true }).catch(() => undefined);
  let turn: Promise<unknown> = Promise.resolve();

  async function put(file: string, bytes: Uint8Array): Promise<void> {
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
    await shrink(folder, max_bytes);
  }

  return {
    async read(kind, id) {
      const file = path(kind, id);
      try {
        if ((await stat(file)).size > MAX_FILE_BYTES) throw new Error('too large');
        return unpacked(await readFile(file), id);
      } catch (error) {
        if (!isAbsent(error)) {
          onTrouble(`${file} is damaged (${reason(error)}) and is fetched again`);
          await drop(file);
        }
        return null;
      }
    },
    write(kind, id, bytes) {
      const file = path(kind, id);
      const done = turn.then(() => put(file, packed(id, bytes)));
      turn = done.catch((error: unknown) => {
        onTrouble(`${folder} cannot keep what was fetched (${reason(error)}); it is fetched again after a restart`);
      });
      return turn.then(() => undefined);
    },
    remove: async (kind, id) => void (await drop(path(kind, id))),
  };
}

/** Oldest first, until the rest fits; and what a killed process left half written. */
async function shrink(folder: string, max_bytes: number): Promise<void> {
  const files = await Promise.all(
    (await readdir(folder)).map(async (name) => {
      const file = join(folder, name);
      const { size, mtimeMs } = await stat(file).catch(() => ({ size: 0, mtimeMs: 0 }));
      return {
        file,
        size,
        mtimeMs,
        ours: NAME.test(name),
        left: name.endsWith('.tmp') && mtimeMs < Date.now() - 60_000,
      };
    }),
  );
  for (const { file } of files.filter(({ left }) => left)) await rm(file, { force: true });
  const kept = files.filter(({ ours }) => ours).sort((a, b) => a.mtimeMs - b.mtimeMs);
  let total = kept.reduce((sum, { size }) => sum + size, 0);
  for (const { file, size } of kept) {
    if (total <= max_bytes) return;
    await rm(file, { force: true });
    total -= size;
  }
}

const sha256 = (...parts: readonly (string | Uint8Array)[]): string => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
};

function packed(id: string, bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${MAGIC}${sha256(id, '\n', bytes)}\n${id}\n`), bytes]);
}

function unpacked(file: Buffer, id: string): Uint8Array {
  const [head, name] = file.toString('latin1', 0, MAGIC.length + 65 + id.length + 1).split('\n');
  const bytes = new Uint8Array(file.subarray(MAGIC.length + 65 + id.length + 1));
  if (name !== id || head !== MAGIC + sha256(id, '\n', bytes)) throw new Error('its checksum is another');
  return bytes;
}

const isAbsent = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ENOENT';
const reason = (error: unknown) =>
  (error as NodeJS.ErrnoException).code ?? (error instanceof Error ? error.message : 'unknown');
