// The key that NVIDIA gives to those who use its service: read from a file each time, so that it can be exchanged in place.
import { readFile } from 'node:fs/promises';
import { refused } from './failure.ts';

/** The value of the Authorization header; null without a file. The key itself is in no error. @throws {AttesterError} */
export async function readAuthorization(file: string | undefined): Promise<string | null> {
  if (file === undefined) return null;
  let key: string;
  try {
    key = (await readFile(file, 'utf8')).trim();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    throw refused('service_key', `NRAS_SERVICE_KEY_FILE ${file} cannot be read (${code})`, { cause });
  }
  if (!/^[!-~]{1,4096}$/.test(key))
    throw refused('service_key', `NRAS_SERVICE_KEY_FILE ${file} must hold one line, the key`);
  return `Bearer ${key}`;
}
