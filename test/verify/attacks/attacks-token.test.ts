// Attacks by token: forged, replayed, put together from parts. A token that anyone can make never counts as signed.
import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { newKey } from '../../../demo/twin/certificate.ts';
import { makeToken } from '../../../demo/twin/token.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { forge } from '../../../scripts/vectors/forge.ts';
import {
  es384,
  jwks,
  KID,
  NRAS_ISSUER,
  nrasToken,
  nvattestToken,
  type ServiceToken,
  unsigned,
} from '../../../scripts/vectors/tokens.ts';
import { AT, DAY_MS } from '../../../scripts/vectors/world.ts';
import { verifyAttestation } from '../../../verify/index.ts';
import { codeOf, good, options, refused, world } from './attacks.ts';

const nonce = nonceHex(rawOf(WHOLE));
const service = newKey();
const keyed = { ...options, nrasKeys: jwks(service.publicKey) };
/** Not simulated: its root is the caller's own. */
const { simulatedRoot, ...rest } = keyed;
const genuine = { ...rest, roots: { ...options.roots, device: simulatedRoot } };
const nras = (change: Partial<ServiceToken> = {}) =>
  nrasToken({ key: service.key, nonce, devices: [world.a], ...change });
const withToken = (token: string) => ({ ...good, token });
const alone = (token: string) => ({ raw: good.raw, nonce: good.nonce, token });
const payloadOf = (jwt: string) => JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString());
const overallOf = (token: string) => (JSON.parse(token) as [[string, string]])[0][1];
const submoduleOf = (token: string) => (JSON.parse(token) as [unknown, Record<string, string>])[1]['GPU-0'] as string;
const hs256 = (claims: unknown, secret: string) => {
  const input = [{ alg: 'HS256', typ: 'JWT' }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`;
};

async function signatureOf(token: string) {
  const { claims, checks } = await verifyAttestation(withToken(token), keyed);
  return [claims.token?.signature, checks.find(({ name }) => name === 'token_signature')?.status];
}

describe('a token that anyone can make', () => {
  test('with alg none is self-asserted and no signature', async () => {
    expect(await signatureOf(nvattestToken(nonce, [world.a]))).toEqual(['self-asserted', 'skip']);
  });
  test('with HS256 under the published constants is self-asserted and no signature', async () => {
    expect(await signatureOf(makeToken(nonce, [world.a], AT))).toEqual(['self-asserted', 'skip']);
    for (const secret of ['secret', 'notasecret'])
      expect(await signatureOf(hs256({ eat_nonce: nonce }, secret))).toEqual(['self-asserted', 'skip']);
  });
  test('cannot stand without evidence, whatever it says', async () => {
    for (const token of [good.token, nvattestToken(nonce, [world.a]), hs256({ eat_nonce: nonce }, 'secret')])
      await refused('evidence_missing', alone(token), keyed);
  });
  test("in the name of NVIDIA's service is refused: alg none, HS256 under the constants, HS256 under the public key", async () => {
    const claims = payloadOf(overallOf(nras()));
    const pem = service.publicKey.export({ type: 'spki', format: 'pem' }) as string;
    await refused('token_signature_invalid', alone(unsigned(claims)), keyed);
    for (const secret of ['secret', 'notasecret', pem, JSON.stringify(jwks(service.publicKey).keys[0])])
      await refused('token_signature_invalid', alone(hs256(claims, secret)), keyed);
  });
  test.each(['None', 'NONE', 'nOnE', '', 'HS384', 'HS512', 'ES256', 'RS256', 'ES384 ', 'es384'])(
    'with alg %j is refused',
    async (alg) => {
      const header = Buffer.from(JSON.stringify({ alg, kid: KID })).toString('base64url');
      const [, payload, signature] = overallOf(nras()).split('.');
      for (const rest of [`${payload}.`, `${payload}.${signature}`])
        await refused('token_signature_invalid', alone(`${header}.${rest}`), keyed);
    },
  );
});

describe("a token in the shape of NVIDIA's remote service", () => {
  test('passes when all is right, with evidence and without', async () => {
    expect(await codeOf(withToken(nras()), keyed)).toBe('valid');
    expect(await codeOf(alone(nras()), keyed)).toBe('valid');
  });
  test('signed by another key is refused', () =>
    refused('token_signature_invalid', alone(nras({ key: newKey().key })), keyed));
  test('for another nonce is refused', () =>
    refused('token_nonce_mismatch', alone(nras({ nonce: nonceHex('{}') })), keyed));
  test('with an unknown kid is refused', () => refused('token_key_unavailable', alone(nras({ kid: 'other' })), keyed));
  test('with a kid that is a property of every object is refused', async () => {
    for (const kid of ['__proto__', 'constructor', 'toString', '0', 'length'])
      await refused('token_key_unavailable', alone(nras({ kid })), keyed);
  });
  test('expired, or from tomorrow, is refused', async () => {
    await refused('token_expired', alone(nras({ now: new Date(AT.getTime() - DAY_MS) })), keyed);
    await refused('token_expired', alone(nras({ now: new Date(AT.getTime() + DAY_MS) })), keyed);
  });
  test('without an end is refused', () =>
    refused('token_expired', alone(nras({ overall: { exp: undefined } })), keyed));
  test('whose end is a text is refused', () =>
    refused('token_expired', alone(nras({ device: { exp: '9999999999' } })), keyed));
  test('of another issuer is refused', async () => {
    for (const issuer of [
      '',
      'https://nras.attestation.nvidia.com/',
      'https://nras.attestation.nvidia.com.example',
      'countersign',
    ])
      expect(await codeOf(alone(nras({ issuer })), keyed)).not.toBe('valid');
  });
  test('that says no is refused', () =>
    refused('token_result_false', alone(nras({ overall: { 'x-nvidia-overall-att-result': false } })), keyed));
  test('that says yes in another type is refused', async () => {
    for (const yes of ['true', 1, 'false', [], {}])
      await refused('token_result_false', alone(nras({ overall: { 'x-nvidia-overall-att-result': yes } })), keyed);
  });
  // Where the token is all the proof there is, an absent claim is no yes.
  test('that says nothing of the result is no proof', async () => {
    expect(await codeOf(alone(nras({ overall: { 'x-nvidia-overall-att-result': undefined } })), keyed)).not.toBe(
      'valid',
    );
  });
  // NVIDIA said no of two GPUs; the submodule of the good one, taken out of the token, says nothing of it.
  test("of which the good GPU's submodule alone is shown is no proof", async () => {
    const token = nras({ devices: [world.a, world.b], overall: { 'x-nvidia-overall-att-result': false } });
    await refused('token_result_false', alone(token), keyed);
    expect(await codeOf(alone(submoduleOf(token)), keyed)).not.toBe('valid');
  });
  test('is no yes in words either, beside evidence that is right', async () => {
    const no = nras({ devices: [world.a, world.b], overall: { 'x-nvidia-overall-att-result': false } });
    const silent = nras({ overall: { 'x-nvidia-overall-att-result': undefined } });
    for (const token of [submoduleOf(no), silent, overallOf(nras())]) {
      const { claims, proven } = await verifyAttestation(withToken(token), genuine);
      expect(claims.token?.signature).toBe('nvidia-signed');
      expect(proven.join()).not.toContain('said yes');
    }
    expect((await verifyAttestation(withToken(nras()), genuine)).proven.join()).toContain('of the GPU for the hash');
  });
  test('about switches alone is about no GPU', async () => {
    const { level, proven } = await verifyAttestation(alone(nras({ kind: 'SWITCH' })), keyed);
    expect([level, proven]).toEqual(['none', [expect.stringContaining('appraised evidence of the NVSwitch for')]]);
  });
  test('that has debugging on, or no secure boot, is refused', async () => {
    await refused('debug_enabled', alone(nras({ device: { dbgstat: 'enabled' } })), keyed);
    await refused('debug_enabled', alone(nras({ device: { dbgstat: undefined } })), keyed);
    await refused('device_not_confidential', alone(nras({ device: { secboot: false } })), keyed);
  });
  test("under Countersign's key in NVIDIA's name, or the other way round, is refused", async () => {
    const ours = { ...options, countersignKeys: jwks(service.publicKey) };
    await refused('token_key_unavailable', alone(nras()), ours);
    // Without our keys it is nobody's word in particular, and there is no evidence beside it.
    await refused('evidence_missing', alone(nras({ issuer: 'countersign' })), keyed);
  });
});

describe('a token put together from parts', () => {
  test('with the submodule of another is refused', async () => {
    const [one, two] = [nras(), nras({ device: { jti: 'x' } })];
    await refused('token_digest_mismatch', alone(one.replace(submoduleOf(one), submoduleOf(two))), keyed);
    const [mine, other] = [good.token, makeToken(nonce, [world.b], AT)];
    const gpu = /"GPU-0": "([^"]+)"/;
    await refused('token_digest_mismatch', withToken(mine.replace(gpu, gpu.exec(other)?.[0] ?? '')));
  });
  test('with a submodule more or fewer than it names is refused', async () => {
    const [overall, parts] = JSON.parse(nras({ devices: [world.a, world.b] })) as [unknown, Record<string, string>];
    const { 'GPU-0': first, 'GPU-1': second } = parts;
    for (const some of [{ 'GPU-0': first }, { ...parts, 'GPU-2': first }, { 'GPU-0': second, 'GPU-1': first }])
      await refused('token_digest_mismatch', alone(JSON.stringify([overall, some])), keyed);
  });
  test('with a signed whole and an unsigned part is refused', async () => {
    const token = nras();
    const part = submoduleOf(token);
    const forged = unsigned(payloadOf(part));
    expect(await codeOf(alone(token.replace(part, forged)), keyed)).not.toBe('valid');
  });
  test("of A's on B's answer is refused", async () => {
    const b = await forge(world, { parts: OTHER });
    await refused('token_nonce_mismatch', { ...b, token: good.token });
  });
  test('is signed as a whole or self-asserted as a whole: a signed bundle lends nothing to the one beside it', async () => {
    const [outer, { LOCAL_GPU_CLAIMS: local }] = JSON.parse(good.token);
    const both = JSON.stringify([outer, { LOCAL_GPU_CLAIMS: local, REMOTE_GPU_CLAIMS: JSON.parse(nras()) }]);
    await refused('evidence_missing', alone(both), keyed);
  });
  test('with claims or members given twice is refused', async () => {
    const twice = (claims: string) =>
      `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(claims).toString('base64url')}.`;
    await refused('token_malformed', withToken(twice(`{"eat_nonce":"${nonce}","eat_nonce":"${nonce}"}`)));
    await refused('token_malformed', withToken(twice(`{"eat_nonce":"${nonce}","eat\\u005fnonce":"${nonce}"}`)));
    await refused('token_malformed', withToken(twice(`{"eat_nonce":"${nonce}","x":[{"y":{"z":1,"z":2}}]}`)));
    const header = Buffer.from('{"alg":"none","alg":"ES384"}').toString('base64url');
    await refused('token_malformed', withToken(`${header}.${twice(`{"eat_nonce":"${nonce}"}`).split('.')[1]}.`));
    await refused('token_malformed', withToken(good.token.replace('"GPU-0":', `"GPU-0": "x", "GPU-0":`)));
  });
  test('with critical header parameters is refused', async () => {
    const header = Buffer.from(JSON.stringify({ alg: 'ES384', kid: KID, crit: ['b64'], b64: false })).toString(
      'base64url',
    );
    await refused('token_malformed', alone(`${header}.${overallOf(nras()).split('.').slice(1).join('.')}`), keyed);
  });
  test('named by properties of every object is read like any other', async () => {
    for (const claims of [
      { __proto__: null },
      JSON.parse('{"__proto__":{"eat_nonce":"x"}}'),
      { constructor: { prototype: {} } },
    ])
      await refused('token_malformed', withToken(unsigned(claims)));
    const nested = JSON.parse(good.token);
    nested[1] = JSON.parse(`{"__proto__":${JSON.stringify(nested[1].LOCAL_GPU_CLAIMS)}}`);
    expect(await codeOf(withToken(JSON.stringify(nested)))).toBe('valid');
    expect(({} as { eat_nonce?: string }).eat_nonce).toBeUndefined();
  });
  test('in a bare JWT signed by another key is refused', () =>
    refused(
      'token_signature_invalid',
      alone(es384({ eat_nonce: nonce, iss: NRAS_ISSUER, exp: 4102444800 }, newKey().key)),
      keyed,
    ));
});
