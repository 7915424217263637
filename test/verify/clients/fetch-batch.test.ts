// What a verifying fetch asks for: a fresh challenge always, and a signature that may be shared unless it is told otherwise.
import { describe, expect, it } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { type VerifyingFetchOptions, verifyingFetch } from '../../../verify/clients/fetch.ts';
import type { Verified } from '../../../verify/index.ts';
import { refusalIn } from '../attacks/refusal.ts';
import { AT, attest, attestInBatch, type Made, RESPONSE, SECONDS, simulatedRoot } from '../maker.ts';
import { byASwitch } from '../switch-maker.ts';

const URL = 'http://127.0.0.1/v1/chat/completions';
const BODY = '{"model":"m","messages":[{"role":"user","content":"Hi"}]}';

/** Answers whatever it is sent, proven: alone, or as one of `size` under a nonce. `raw`: the request that it signs. */
function server(size: number | null, raw = (sent: string) => sent, signer = async (made: Made) => made) {
  const bodies: string[] = [];
  const fetch: typeof globalThis.fetch = async (_input, init) => {
    const sent = String(init?.body);
    bodies.push(sent);
    const parts = { request: raw(sent), response: RESPONSE, timestamp: SECONDS };
    const attestation = await signer(size === null ? await attest(parts) : await attestInBatch(size, 0, parts));
    const text = withLastMember(RESPONSE, 'attestation', JSON.stringify(attestation));
    return new Response(text, { headers: { 'content-type': 'application/json' } });
  };
  return { bodies, fetch };
}

/** The proof, or the code of the error. */
async function asked(fetch: typeof globalThis.fetch, options: VerifyingFetchOptions, body = BODY) {
  let proof: Verified | null = null;
  const onVerified = (verified: Verified) => {
    proof = verified;
  };
  const send = verifyingFetch({ fetch, simulatedRoot, at: AT, onVerified, ...options });
  const refused = await refusalIn(await send(URL, { method: 'POST', body }));
  return refused ?? (proof as Verified | null);
}

const teeOf = (body: string | undefined) => JSON.parse(body ?? '{}').tee;

describe('a verifying fetch', () => {
  it('allows a shared signature, and challenges each answer anew', async () => {
    const { bodies, fetch } = server(17);
    const one = await asked(fetch, {});
    expect(one).toMatchObject({
      claims: { batch: { tree_size: 17, leaf_index: 0 } },
      exchange: { request: bodies[0] },
    });
    await asked(fetch, {});
    const [first, second] = bodies.map(teeOf);
    for (const tee of [first, second]) {
      expect(Object.keys(tee)).toEqual(['batch', 'challenge']);
      expect(tee.batch).toBe(true);
      expect(Buffer.from(tee.challenge, 'base64url')).toHaveLength(32);
      expect(tee.challenge).toMatch(/^[A-Za-z0-9_-]{43}$/);
    }
    expect(first.challenge).not.toBe(second.challenge);
  });

  it('asks for a signature of its own where it is told to, and takes no other', async () => {
    for (const options of [{ strict: true }, { policy: { maxBatch: 1 } }]) {
      const { bodies, fetch } = server(null);
      expect(await asked(fetch, options)).toMatchObject({ claims: { batch: null } });
      expect(teeOf(bodies[0])).toEqual({ challenge: expect.stringMatching(/^[A-Za-z0-9_-]{43}$/) });
      expect(await asked(server(1).fetch, options)).toMatchObject({ claims: { batch: { tree_size: 1 } } });
      expect(await asked(server(2).fetch, options)).toBe('policy_refused');
    }
    expect(await asked(server(2).fetch, { strict: true, policy: { maxBatch: 2 } })).toMatchObject({ valid: true });
    expect(await asked(server(3).fetch, { policy: { maxBatch: 2 } })).toBe('policy_refused');
  });

  it('takes no answer to an older challenge', async () => {
    const { bodies, fetch } = server(4);
    await asked(fetch, {});
    const replayed = server(4, () => bodies[0] ?? '');
    expect(await asked(replayed.fetch, {})).toBe('request_mismatch');
  });

  it('takes no answer whose signed challenge differs in a letter, or in how it is written', async () => {
    for (const change of [
      (sent: string) => sent.replace(/"challenge":"./, '"challenge":"!'),
      (sent: string) => sent.replace('"challenge"', '"\\u0063hallenge"'),
      (sent: string) => sent.replace('{"batch":true,', '{'),
      (sent: string) => sent.replace(/"tee":.*\}\}$/, '"tee":true}'),
    ])
      expect(await asked(server(4, change).fetch, {})).toBe('request_mismatch');
  });

  it("leaves a caller's own tee as it is", async () => {
    for (const tee of ['true', '{"batch":true}', '{"challenge":"my own challenge"}', 'null']) {
      const { bodies, fetch } = server(null);
      const body = BODY.replace('{', `{"tee":${tee},`);
      expect(await asked(fetch, {}, body)).toMatchObject({ valid: true });
      expect(bodies).toEqual([body]);
    }
  });
});

describe('the least level', () => {
  const genuine = {
    simulatedRoot: undefined,
    roots: { device: simulatedRoot },
    without: { referenceValues: true, revocation: true },
  };
  it('is gpu unless the caller names another, or a simulated root', async () => {
    const { fetch } = server(null, undefined, byASwitch);
    expect(await asked(fetch, genuine)).toBe('policy_refused');
    expect(await asked(server(null).fetch, genuine)).toMatchObject({ level: 'gpu' });
    expect(await asked(fetch, { ...genuine, policy: { minLevel: 'none' } })).toMatchObject({ level: 'none' });
    expect(await asked(server(null).fetch, { policy: { minLevel: 'gpu' } })).toBe('policy_refused');
    expect(await asked(server(null).fetch, {})).toMatchObject({ level: 'none' });
  });
});
