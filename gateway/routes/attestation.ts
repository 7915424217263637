// GET {the request's path}/{id}/attestation: returns a stored attestation, for clients that drop unknown members.
// GET /v1/attestation/bundles/{sha256}: returns a bundle that short attestations name, to everybody.
// GET /v1/attestation/session: returns the current session to everybody, or to API keys a session with the caller's challenge.
import { isDigest } from '../../proto/bytes.ts';
import type { Sidecar, Store } from '../attestation/interfaces.ts';
import { createChallenges, noSession, unavailable, wholeSession } from '../attestation/sessions.ts';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Context } from '../http/context.ts';
import { ANYONE } from '../keys/keys.ts';
import { addressOf } from '../limits/rates.ts';

const JSON_TYPE = { 'content-type': 'application/json' };

export function attestationById({ store }: { readonly store: Store }) {
  return async (c: Context, id = c.req.param('id') ?? ''): Promise<Response> => {
    const kept = await store.find(c.env.owner, id);
    if (kept === null)
      throw new Problem('not_found', 'No attestation is kept under this id for this API key.', { param: 'id' });
    if (kept.state === 'pending')
      throw new Problem('attestation_pending', 'The answer is not complete yet.', {
        param: 'id',
        retryAfterSeconds: 1,
      });
    return c.body(kept.json, 200, JSON_TYPE);
  };
}

/** Its address is its hash, so a copy is good for ever. */
const IMMUTABLE = { ...JSON_TYPE, 'cache-control': 'public, max-age=31536000, immutable' };

export function attestationBundle({ store }: { readonly store: Store }) {
  return async (c: Context): Promise<Response> => {
    const sha256 = c.req.param('sha256');
    if (!isDigest(sha256))
      throw new Problem('invalid_request', 'sha256: must be 64 lowercase hex digits.', { param: 'sha256' });
    const json = await store.findBundle(sha256);
    if (json === null) throw new Problem('not_found', 'No bundle is kept under this hash.', { param: 'sha256' });
    return c.body(json, 200, IMMUTABLE);
  };
}

interface SessionDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
}

export function attestationSession({ sidecar, config }: SessionDeps) {
  const challenges = createChallenges(sidecar, config.attest_timeout_ms);
  return async (c: Context): Promise<Response> => {
    const challenge = c.req.query('challenge');
    if (challenge !== undefined && !isDigest(challenge))
      throw new Problem('invalid_request', 'challenge: must be 64 lowercase hex digits.', { param: 'challenge' });
    await sidecar.ready(config.sidecar_wait_ms);
    if (challenge !== undefined) {
      const { caller, incoming, outgoing } = c.env;
      const address = addressOf(incoming.headers, outgoing.socket, config.client_address_header);
      const owner = caller === ANYONE ? address : caller.owner;
      return c.body(wholeSession(await challenges(challenge, { owner, outgoing }, address)), 200, JSON_TYPE);
    }
    const { session, hello } = sidecar;
    if (session !== null) return c.body(wholeSession(session), 200, JSON_TYPE);
    throw hello?.cpu === null ? noSession() : unavailable('The processor has not signed yet.');
  };
}
