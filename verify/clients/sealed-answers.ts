// Responses that came sealed: sealedFetch records in which sessions each may be signed, and verifyingFetch looks it up.
import type { Verified } from '../policy/options.ts';

/** Whether the response is signed in a session that was verified before its request was sealed, or in the next one. */
export type IsInSession = (verified: Pick<Verified, 'attestation'>) => Promise<boolean>;

const sessions = new WeakMap<Response, IsInSession>();

export const cameSealed = (response: Response, isInSession: IsInSession): void =>
  void sessions.set(response, isInSession);

/** null: the response did not come sealed, and may be signed in any session. */
export const sessionOf = (response: Response): IsInSession | null => sessions.get(response) ?? null;
