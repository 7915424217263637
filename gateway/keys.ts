// API keys: who may ask, compared in constant time.
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { ConfigError } from './config.ts';
import { Problem } from './problem.ts';

/** Whoever asked: attestations are kept for the owner that caused them. Never the key itself. */
export type Owner = string;
export const ANYONE: Owner = 'anyone';

export interface Keys {
  /** @throws {Problem} invalid_api_key */
  authenticate(authorization: string | undefined): Owner;
}

const digest = (key: string): Buffer => createHash('sha256').update(key).digest();

/** Keys from a file, one a line; empty lines and lines that begin with # do not count. null: everybody may ask. @throws {ConfigError} */
export function loadKeys(file: string | null): Keys {
  if (file === null) return { authenticate: () => ANYONE };
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new ConfigError(`API_KEYS_FILE cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'error'}`, {
      cause,
    });
  }
  const keys = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
  if (keys.some((key) => /\s/.test(key)))
    throw new ConfigError('API_KEYS_FILE holds a key with a space in it; a comment needs a line of its own');
  if (keys.length === 0) throw new ConfigError('API_KEYS_FILE holds no key');
  return fromKeys(keys);
}

/** The same from a list. */
export function fromKeys(keys: readonly string[]): Keys {
  const known = keys.map(digest);
  return {
    authenticate(authorization) {
      const key = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
      const given = digest(key ?? '');
      let match = -1;
      for (const [i, one] of known.entries()) if (timingSafeEqual(one, given)) match = i;
      if (key === undefined || match < 0)
        throw new Problem('invalid_api_key', 'Send a valid API key as "Authorization: Bearer KEY".', {
          headers: { 'www-authenticate': 'Bearer' },
        });
      return given.toString('base64url');
    },
  };
}
