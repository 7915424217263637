// The verify endpoint on tokens that NVIDIA's remote service signed: the keys are NVIDIA's, and are asked for when they are needed.
import { expect, test } from 'vitest';
import { createAppraise } from '../../gateway/verifier/appraise.ts';
import { sha256Hex } from '../../proto/raw.ts';
import { rawOf, WHOLE } from '../../scripts/vectors/exchange.ts';
import { NRAS_KEYS_URL } from '../../verify/index.ts';
import { detached, NRAS, newKey } from '../verify/token-maker.ts';

const known = newKey('known');
const raw = rawOf(WHOLE);
const nonce = await sha256Hex(raw);
const iat = Math.floor(Date.now() / 1000);
const times = { iat, nbf: iat, exp: iat + 3600, eat_nonce: nonce };
const attestation = (key: typeof known) =>
  JSON.stringify({
    raw,
    nonce,
    token: JSON.stringify(detached(NRAS, key.alg, { overall: times, devices: [times] })),
  });

function endpoint(answer: () => Response) {
  const asked: string[] = [];
  let now_ms = 0;
  const fetch = (async (url: string) => {
    asked.push(url);
    return answer();
  }) as unknown as typeof globalThis.fetch;
  const appraise = createAppraise({ rim_url: 'https://rim', ocsp_url: 'https://ocsp' }, fetch, () => now_ms);
  return {
    asked,
    later(ms: number) {
      now_ms += ms;
    },
    appraise: (text: string) => appraise({ body: Buffer.from(text), countersignKeys: undefined, simulatedRoot: null }),
  };
}
const keys = () => Response.json({ keys: [known.jwk] });

test('one that NVIDIA signed is right', async () => {
  const { appraise, asked } = endpoint(keys);
  const verdict = await appraise(attestation(known));
  expect([verdict.failed.code, verdict.valid, asked]).toEqual([null, true, [NRAS_KEYS_URL]]);
  expect(JSON.parse(verdict.json)).toMatchObject({ level: 'gpu', claims: { token: { signature: 'nvidia-signed' } } });
});

test('keys are asked for once in half a minute, whoever asks for what key, and whatever comes', async () => {
  for (const answer of [keys, () => new Response('', { status: 503 })]) {
    const { appraise, asked, later } = endpoint(answer);
    const codes = async () =>
      (await Promise.all([newKey('other'), newKey('third')].map((key) => appraise(attestation(key))))).map(
        ({ failed }) => failed.code,
      );
    expect(await codes()).toEqual(['token_key_unavailable', 'token_key_unavailable']);
    later(29_999);
    await codes();
    expect(asked).toHaveLength(1);
    later(1);
    await codes();
    expect(asked).toHaveLength(2);
  }
});
