// Errors of reading, opening and choosing a key. An error's message never quotes sealed content.

/**
 * - `sealed_malformed`: the bytes do not have the format
 * - `sealed_truncated`: they ended before the message did
 * - `sealed_not_opened`: a chunk was changed, moved, dropped or doubled, or another key sealed it
 * - `sealed_key_unknown`: no key has this identifier with these algorithms
 * - `sealed_too_large`: a limit was reached
 * - `sealed_unsupported`: no key configuration has algorithms that this runtime has
 */
export type SealedErrorCode =
  | 'sealed_malformed'
  | 'sealed_truncated'
  | 'sealed_not_opened'
  | 'sealed_key_unknown'
  | 'sealed_too_large'
  | 'sealed_unsupported';

export class SealedError extends Error {
  override readonly name = 'SealedError';
  readonly code: SealedErrorCode;
  constructor(code: SealedErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export const malformed = (message: string) => new SealedError('sealed_malformed', message);
export const truncated = (what: string) => new SealedError('sealed_truncated', `The bytes end within ${what}.`);
export const tooLarge = (message: string) => new SealedError('sealed_too_large', message);
