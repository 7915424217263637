// Answers that came sealed: the fetch that opened one says in which sessions it may be signed, and the verifying fetch asks.
import type { Verified } from '../policy/options.ts';

/** Whether the answer is signed in a session that was verified before its request was sealed, or in the one after it. */
export type IsInSession = (verified: Pick<Verified, 'attestation'>) => Promise<boolean>;

const sessions = new WeakMap<Response, IsInSession>();

export const cameSealed = (response: Response, isInSession: IsInSession): void =>
  void sessions.set(response, isInSession);

/** null: it did not come sealed, and may be signed in any session. */
export const sessionOf = (response: Response): IsInSession | null => sessions.get(response) ?? null;
