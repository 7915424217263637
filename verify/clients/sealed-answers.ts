// What was sent sealed: sealedFetch records each request's body and in which sessions its response may be signed. verifyingFetch looks up
// the body that it sent, so that a wrapper between the two cannot lose the link by making another Response.
import { digest, toHex, utf8 } from '../common/bytes.ts';
import { LruMap } from '../common/lru.ts';
import type { Verified } from '../policy/options.ts';

/** Whether the response is signed in a session that was verified before its request was sealed, or in the next one. */
export type IsInSession = (verified: Pick<Verified, 'attestation'>) => Promise<boolean>;

/** More than there are requests without a response. */
const MAX_SENT = 100_000;
/** By the SHA-256 of the body, which holds a challenge of its own. */
const sent = new LruMap<string, IsInSession>(MAX_SENT);

/** Called before the request is sent: whatever comes back for this body must be of a session. */
export async function willBeSealed(body: Uint8Array<ArrayBuffer>, isInSession: IsInSession): Promise<void> {
  sent.set(toHex(await digest('SHA-256', body)), isInSession);
}

/** null: this body was not sealed, and its response may be signed in any session. */
export async function sessionOf(body: string): Promise<IsInSession | null> {
  return sent.get(toHex(await digest('SHA-256', utf8(body)))) ?? null;
}
