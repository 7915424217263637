// GET /v1/{chat/completions,completions}/{id}/attestation: the attestation again, for clients that drop unknown members.
import type { Context, Deps } from '../http/context.ts';
import { Problem } from '../http/problem.ts';

export function attestationById({ store }: Deps) {
  return async (c: Context): Promise<Response> => {
    const kept = await store.find(c.env.owner, c.req.param('id') ?? '');
    if (kept === null)
      throw new Problem('not_found', 'No attestation is kept under this id for this API key.', { param: 'id' });
    if (kept.state === 'pending')
      throw new Problem('attestation_pending', 'The answer is not complete yet.', {
        param: 'id',
        retryAfterSeconds: 1,
      });
    return c.body(kept.json, 200, { 'content-type': 'application/json' });
  };
}
