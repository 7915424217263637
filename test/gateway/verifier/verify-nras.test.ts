// The verify endpoint on tokens that NVIDIA's remote service signed: the keys are NVIDIA's, and are asked for when they are needed.
import { expect, test } from 'vitest';
import { createAppraise } from '../../../gateway/verifier/appraise.ts';
import { sha256Hex } from '../../../proto/attestation/raw.ts';
import { rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { NRAS_KEYS_URL } from '../../../verify/service.ts';
import { detached, NRAS, newKey } from '../../verify/token/token-maker.ts';

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
    appraise: (text: string) =>
      appraise({
        body: Buffer.from(text),
        countersignKeys: undefined,
        simulatedRoot: null,
        policy: {},
        endpoint: undefined,
        event: false,
      }),
  };
}
const keys = () => Response.json({ keys: [known.jwk] });

test('one that NVIDIA signed is right', async () => {
  const { appraise, asked } = endpoint(keys);
  const verdict = await appraise(attestation(known));
  expect([verdict.failed.code, verdict.valid, asked]).toEqual([null, true, [NRAS_KEYS_URL]]);
  expect(JSON.parse(verdict.json)).toMatchObject({ level: 'gpu', claims: { token: { signature: 'nvidia-signed' } } });
});

const codesOf = async ({ appraise }: ReturnType<typeof endpoint>, ...names: readonly string[]) =>
  (await Promise.all(names.map((name) => appraise(attestation(newKey(name)))))).map(({ failed }) => failed.code);
const UNAVAILABLE = 'token_key_unavailable';

test('keys are asked for once in half a minute, no matter who asks for what key', async () => {
  const one = endpoint(keys);
  expect(await codesOf(one, 'other', 'third')).toEqual([UNAVAILABLE, UNAVAILABLE]);
  one.later(29_999);
  await codesOf(one, 'other', 'third');
  expect(one.asked).toHaveLength(1);
  one.later(1);
  await codesOf(one, 'other', 'third');
  expect(one.asked).toHaveLength(2);
});

test.each([
  ['an error', () => new Response('', { status: 503 })],
  ['no JSON', () => new Response('<html>')],
  [
    'no connection',
    () => {
      throw new TypeError('fetch failed');
    },
  ],
])(
  'after a failure, %s, they are asked for again in a second, and what is right is right then',
  async (_name, broken) => {
    let answer: () => Response = broken;
    const one = endpoint(() => answer());
    expect(await codesOf(one, 'other', 'third')).toEqual([UNAVAILABLE, UNAVAILABLE]);
    one.later(999);
    expect(await codesOf(one, 'other', 'third')).toEqual([UNAVAILABLE, UNAVAILABLE]);
    expect(one.asked).toHaveLength(1);
    answer = keys;
    one.later(1);
    expect((await one.appraise(attestation(known))).valid).toBe(true);
    expect(one.asked).toHaveLength(2);
    one.later(29_999);
    expect((await one.appraise(attestation(known))).valid).toBe(true);
    expect(one.asked).toHaveLength(2);
  },
);

test('a clock that is set back keeps nothing for longer', async () => {
  const one = endpoint(keys);
  await codesOf(one, 'other');
  one.later(-3_600_000);
  await codesOf(one, 'other');
  expect(one.asked).toHaveLength(2);
});
