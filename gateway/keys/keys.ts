// API keys: who asks, found in a time that says nothing about the keys there are.
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { Problem } from '../problem.ts';
import { ANYONE, type Caller } from './caller.ts';
import { digestOf, type KeyLine } from './line.ts';

export interface Keys {
  /** @throws {Problem} invalid_api_key */
  authenticate(authorization: string | undefined): Caller;
  close(): void;
}

/** No keys are configured: everybody may ask. */
export const OPEN: Keys = { authenticate: () => ANYONE, close: () => {} };

/** Finds a caller by the SHA-256 of the key. */
export type KeyTable = (digest: Buffer) => Caller | null;

/**
 * The table is keyed by a hash under a secret of this process (all messages have one length, so HMAC would add nothing but
 * ten times the cost): whoever measures how long a look-up takes learns nothing
 * about the digests in it, and a look-up among many keys costs what it does among one.
 */
export function tableOf(lines: readonly KeyLine[]): KeyTable {
  const secret = randomBytes(32).toString('hex');
  const blind = (digest: Buffer) => hash('sha256', secret + digest.toString('hex'), 'base64');
  const callers = new Map(
    lines.map(({ name, digest, limits }) => [
      blind(digest),
      { digest, caller: { owner: digest.toString('base64url'), name, limits } },
    ]),
  );
  return (digest) => {
    const found = callers.get(blind(digest));
    return found !== undefined && timingSafeEqual(found.digest, digest) ? found.caller : null;
  };
}

/** The caller that an `Authorization` header names. @throws {Problem} invalid_api_key */
export function callerOf(table: KeyTable, authorization: string | undefined): Caller {
  const key = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
  const caller = key === undefined ? null : table(digestOf(key));
  if (caller === null)
    throw new Problem('invalid_api_key', 'Send a valid API key as "Authorization: Bearer KEY".', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  return caller;
}
