// Keeps the usage of a gateway without a store in a file beside its audit log, so that a restart does not forget what was spent.
import { readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import * as z from 'zod';
import { ConfigError } from '../base/config.ts';
import { createMemoryBook, type KeptRecord, type UsageBook } from './usage.ts';

const WRITE_MS = 1_000;
/** Writing takes at most this part of the time. */
const MAX_LOAD = 1 / 20;

const count = z.int().nonnegative();
const fileSchema = z.array(
  z.object({
    key: z.string(),
    day: z.string(),
    model: z.string(),
    amounts: z.object({
      requests: count,
      attested: count,
      input_tokens: count,
      output_tokens: count,
      gpu_us: count,
    }),
  }),
);

/** A process that is killed loses the usage of a second. @throws {ConfigError} for a file that cannot be read */
export function openFileBook(file: string, log: Logger): UsageBook {
  const book = createMemoryBook(Date.now, read(file));
  let written = book.changes;
  let failing = false;
  let timer = setTimeout(tick, WRITE_MS).unref();
  let writing: Promise<void> = Promise.resolve();

  async function write(): Promise<void> {
    const { changes } = book;
    if (changes === written) return;
    try {
      const beside = `${file}.new`;
      await writeFile(beside, JSON.stringify(book.all()), { mode: 0o600 });
      await rename(beside, file);
      written = changes;
      failing = false;
    } catch (error) {
      if (!failing) log.error({ code: (error as NodeJS.ErrnoException).code }, 'the usage of keys cannot be written');
      failing = true;
    }
  }

  function tick(): void {
    const began_ms = performance.now();
    writing = write().finally(() => {
      const ms = performance.now() - began_ms;
      timer = setTimeout(tick, Math.max(WRITE_MS, ms / MAX_LOAD)).unref();
    });
  }

  return {
    ...book,
    async close() {
      await writing;
      clearTimeout(timer);
      await write();
    },
  };
}

function read(file: string): KeptRecord[] {
  try {
    return fileSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return [];
    throw new ConfigError(
      `the usage of keys beside AUDIT_LOG cannot be read: ${code ?? 'it is not what was written'}`,
      {
        cause,
      },
    );
  }
}
