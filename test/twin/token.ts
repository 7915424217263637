// Tokens as the simulated GPU writes them, with what a test or a vector changes.
import { claimsOf, type TokenClaims, tokenOf } from '../../demo/twin/token.ts';

/** By default the token passes every check. */
export interface TokenOptions {
  /** False writes a token whose appraisal failed. */
  readonly result?: boolean;
  /** Merged into the claims of every device, before the digest is taken. */
  readonly claims?: TokenClaims;
}

export function makeToken(
  nonce: string,
  subjects: readonly Parameters<typeof claimsOf>[0][],
  now: Date,
  { result = true, claims = {} }: TokenOptions = {},
): string {
  const of = (subject: (typeof subjects)[number]): TokenClaims => {
    const passed = claimsOf(subject, nonce);
    const { secboot: _secboot, dbgstat: _dbgstat, ...others } = passed;
    return { ...(result ? passed : { ...others, measres: 'fail' }), ...claims };
  };
  return tokenOf(nonce, subjects.map(of), result, now);
}
