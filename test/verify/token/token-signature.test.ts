// Who signed a token: NVIDIA's service, Countersign, or anyone at all; and what passes for neither.
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { describe, expect, it } from 'vitest';
import type { FailureCode } from '../../../verify/common/checks.ts';
import { NRAS_KEYS_URL, verifyTokenSignature } from '../../../verify/token/signature.ts';
import { parseToken } from '../../../verify/token/token.ts';
import {
  type Alg,
  type Claims,
  detached,
  device,
  hs256,
  jwt,
  NONCE,
  NOW,
  NRAS,
  nested,
  newKey,
  none,
  nvtrust,
} from './token-maker.ts';

type TokenSignatureOptions = Parameters<typeof verifyTokenSignature>[1];

const nvidia = newKey('nv-eat-kid-test-1');
const keys = { keys: [newKey('another').jwk, nvidia.jwk] };
const later = (seconds: number) => new Date(NOW.getTime() + seconds * 1000);
const verify = (token: string, options: Partial<TokenSignatureOptions> = {}) =>
  verifyTokenSignature(parseToken(token), { keys, at: NOW, ...options });
const refused = (token: string, code: FailureCode, options: Partial<TokenSignatureOptions> = {}) =>
  expect(verify(token, options)).rejects.toMatchObject({ name: 'CheckFailure', code });
const nras = (parts: Parameters<typeof detached>[2] = {}, alg: Alg = nvidia.alg) =>
  JSON.stringify(detached(NRAS, alg, parts));

describe('a token of NRAS', () => {
  it('is NVIDIA’s under the key it names', async () => {
    await expect(verify(nras({ devices: [{}, {}] }))).resolves.toEqual({
      signature: 'nvidia-signed',
      detail: "signed by NVIDIA's remote attestation service (ES384)",
    });
    expect(parseToken(nras()).kind).toBe('nras');
  });

  it('is NVIDIA’s inside the Python SDK’s token, as long as no other verifier stands beside it', async () => {
    const remote = detached(NRAS, nvidia.alg);
    await expect(verify(nested({ REMOTE_GPU_CLAIMS: remote }))).resolves.toMatchObject({ signature: 'nvidia-signed' });
    const both = { REMOTE_GPU_CLAIMS: remote, LOCAL_SWITCH_CLAIMS: detached('LOCAL_SWITCH_VERIFIER', hs256('secret')) };
    await expect(verify(nested(both))).resolves.toMatchObject({ signature: 'self-asserted' });
  });

  it('is NVIDIA’s as a bare JWT', async () => {
    await expect(verify(jwt(device(NRAS), nvidia.alg))).resolves.toMatchObject({ signature: 'nvidia-signed' });
  });

  it('is verified as another implementation signs it', async () => {
    const pair = await generateKeyPair('ES384');
    const token = await new SignJWT({ eat_nonce: NONCE, iss: NRAS, nbf: 0, exp: NOW.getTime() })
      .setProtectedHeader({ alg: 'ES384', kid: 'jose' })
      .sign(pair.privateKey);
    const jwk = { ...(await exportJWK(pair.publicKey)), kid: 'jose', alg: 'ES384', use: 'sig' };
    await expect(verify(token, { keys: { keys: [jwk] } })).resolves.toMatchObject({ signature: 'nvidia-signed' });
  });

  it('is refused after its end, before its beginning, and without an end', async () => {
    await expect(verify(nras(), { at: later(3600) })).resolves.toBeDefined();
    await refused(nras(), 'token_expired', { at: later(3661) });
    await refused(nras(), 'token_expired', { at: later(-61) });
    await expect(verify(nras(), { at: later(-59) })).resolves.toBeDefined();
    await refused(nras(), 'token_expired', { at: new Date(Number.NaN) });
    for (const exp of [undefined, null, '9999999999', true]) {
      await refused(nras({ overall: { exp } }), 'token_expired');
      await refused(nras({ devices: [{ exp }] }), 'token_expired');
    }
    await refused(nras({ devices: [{ exp: 1 }] }), 'token_expired');
    await refused(nras({ overall: { nbf: '0' } }), 'token_expired');
  });

  it('is refused under another issuer, in any of its parts', async () => {
    for (const iss of [
      'https://nras.attestation-stg.nvidia.com',
      `${NRAS}/`,
      `${NRAS}.example`,
      'NVAT-LOCAL-VERIFIER',
      '',
      null,
      undefined,
    ]) {
      await refused(nras({ overall: { iss } }), 'token_issuer_unknown');
      await refused(nras({ devices: [{ iss }] }), 'token_issuer_unknown');
      await refused(nras({ overall: { iss }, devices: [{ iss }] }), 'token_issuer_unknown');
    }
  });

  it('is refused under a key that is not NVIDIA’s', async () => {
    const stranger = newKey('nv-eat-kid-test-1');
    await refused(nras({}, stranger.alg), 'token_signature_invalid');
    await refused(nras(), 'token_signature_invalid', { keys: { keys: [stranger.jwk] } });
    await refused(nras({}, newKey('unknown').alg), 'token_key_unavailable');
    await refused(nras({}, { ...nvidia.alg, header: { alg: 'ES384' } }), 'token_key_unavailable');
    await refused(
      nras({}, { ...nvidia.alg, header: { alg: 'ES384', kid: 'x', jwk: stranger.jwk } }),
      'token_key_unavailable',
    );
    const { jwk } = nvidia;
    for (const broken of [
      { ...jwk, crv: 'P-256' },
      { ...jwk, kty: 'oct' },
      { ...jwk, x: 'AAAA' },
      { kid: jwk.kid },
      { ...jwk, y: jwk.x },
    ])
      await refused(nras(), 'token_key_unavailable', { keys: { keys: [broken] } });
    for (const odd of [null, {}, { keys: null }, { keys: 'x' }, { keys: [null] }] as unknown[])
      await refused(nras(), 'token_key_unavailable', { keys: odd as TokenSignatureOptions['keys'] });
  });

  it('is refused where any of its signatures is another', async () => {
    const [[, overall], { 'GPU-0': part = '' }] = detached(NRAS, nvidia.alg);
    const tampered = (text: string) =>
      text
        .replace(/.$/, (last) => (last === 'A' ? 'Q' : 'A'))
        .replace(/\.(.)(?=[^.]*$)/, (_, c: string) => `.${c === 'A' ? 'B' : 'A'}`);
    await refused(JSON.stringify([['JWT', tampered(overall)], { 'GPU-0': part }]), 'token_signature_invalid');
    await refused(JSON.stringify([['JWT', overall], { 'GPU-0': tampered(part) }]), 'token_signature_invalid');
    await refused(
      JSON.stringify([['JWT', overall.replace(/[^.]*$/, '')], { 'GPU-0': part }]),
      'token_signature_invalid',
    );
  });

  it('fetches keys once, where those at hand have not the right one', async () => {
    const asked: string[] = [];
    const fetchKeys = async (url: string) => {
      asked.push(url);
      return keys;
    };
    await expect(verify(nras({ devices: [{}, {}] }), { keys: undefined, fetchKeys })).resolves.toBeDefined();
    expect(asked).toEqual([NRAS_KEYS_URL]);
    await verify(nras(), { fetchKeys });
    expect(asked).toHaveLength(1);
    const failing = () => Promise.reject(new Error('offline'));
    await refused(nras(), 'token_key_unavailable', { keys: { keys: [] }, fetchKeys: failing });
    await verify(nvtrust(), { fetchKeys: failing });
  });
});

describe('a token in NVIDIA’s name without NVIDIA’s signature', () => {
  it.each([
    ['unsigned', none],
    ['under a published constant', hs256('secret')],
    ['under the public key as a secret', hs256(JSON.stringify(nvidia.jwk))],
  ])('is refused: %s', async (_, alg) => {
    await refused(nras({}, alg), 'token_signature_invalid');
    await refused(jwt(device(NRAS), alg), 'token_signature_invalid');
    await refused(nested({ REMOTE_GPU_CLAIMS: detached(NRAS, alg) }), 'token_signature_invalid');
  });

  it('is refused where only some parts are unsigned', async () => {
    const [overall] = detached(NRAS, nvidia.alg);
    const [, parts] = detached('x', none);
    await refused(JSON.stringify([overall, parts]), 'token_signature_invalid');
  });
});

describe('a token that anyone can make', () => {
  it('is self-asserted under the published constants, each in its place', async () => {
    await expect(verify(nvtrust())).resolves.toMatchObject({ signature: 'self-asserted' });
    const local = (alg: Alg) => detached('LOCAL_GPU_VERIFIER', alg);
    await refused(nested({ LOCAL_GPU_CLAIMS: local(hs256('notasecret')) }), 'token_signature_invalid');
    await refused(nested({ LOCAL_GPU_CLAIMS: local(hs256('secret')) }, hs256('secret')), 'token_signature_invalid');
    await refused(nested({ LOCAL_GPU_CLAIMS: local(hs256('another')) }), 'token_signature_invalid');
    await refused(nested({ LOCAL_GPU_CLAIMS: local(hs256('secret')) }, none), 'token_signature_invalid');
    await refused(nested({ LOCAL_GPU_CLAIMS: local(none) }), 'token_signature_invalid');
    await expect(verify(JSON.stringify(local(hs256('secret'))))).resolves.toMatchObject({ signature: 'self-asserted' });
  });

  it('is self-asserted without a signature, and then has none', async () => {
    await expect(verify(JSON.stringify(detached('x', none)))).resolves.toMatchObject({ signature: 'self-asserted' });
    await expect(verify(jwt(device('x'), none))).resolves.toMatchObject({ signature: 'self-asserted' });
    await refused(`${jwt(device('x'), none)}AAAA`, 'token_signature_invalid');
    const printed = (alg: Alg) => JSON.stringify({ detached_eat: detached('x', alg) });
    await expect(verify(printed(none))).resolves.toMatchObject({ signature: 'self-asserted' });
    await refused(printed(hs256('secret')), 'token_signature_invalid');
  });

  it('has an algorithm that is known', async () => {
    for (const alg of ['None', 'NONE', '', 'HS384', 'RS256', 'ES256', 'es384', 'EdDSA']) {
      await refused(jwt(device('x'), { ...none, header: { alg } }), 'token_signature_invalid');
      await refused(JSON.stringify(detached('x', { ...none, header: { alg } })), 'token_signature_invalid');
    }
  });

  it('keeps no time: it proves nothing at any', async () => {
    await expect(verify(nvtrust(), { at: later(1e9) })).resolves.toMatchObject({ signature: 'self-asserted' });
  });
});

describe('a token of Countersign', () => {
  const ours = newKey('ours');
  const countersignKeys = { keys: [ours.jwk] };
  const token = (iss = 'countersign', more: Claims = {}) => JSON.stringify(detached(iss, ours.alg, { overall: more }));

  it('is ours under our keys, and expires', async () => {
    expect(parseToken(token()).kind).toBe('countersign');
    await expect(verify(token(), { countersignKeys })).resolves.toMatchObject({ signature: 'countersign-signed' });
    await refused(token(), 'token_expired', { countersignKeys, at: later(4000) });
  });

  it('is not NVIDIA’s, nor NVIDIA’s ours, whichever keys are at hand', async () => {
    await expect(verify(token(), { keys: countersignKeys })).resolves.toMatchObject({ signature: 'self-asserted' });
    await refused(token(), 'token_key_unavailable', { countersignKeys: { keys: [newKey('another').jwk] } });
    await refused(JSON.stringify(detached(NRAS, ours.alg)), 'token_key_unavailable', { countersignKeys });
    await refused(token(NRAS), 'token_key_unavailable', { countersignKeys });
  });
});
