// Makes tokens of every shape, whole or with one thing wrong, and signs them with whatever it is told to.
import { createHash, createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { nvtrustDigestText } from '../../../verify/token/digests.ts';

export const NRAS = 'https://nras.attestation.nvidia.com';
export const NONCE = 'ab'.repeat(32);
export const NOW = new Date('2026-01-01T00:00:00Z');
const now = NOW.getTime() / 1000;
export const TIMES = { iat: now, nbf: now, exp: now + 3600, jti: 'a' };

export type Claims = Readonly<Record<string, unknown>>;
/** From a signing input to a signature. */
export interface Alg {
  readonly header: Claims;
  readonly sign: (input: string) => Buffer;
}

export const hs256 = (secret: string): Alg => ({
  header: { alg: 'HS256', typ: 'JWT' },
  sign: (input) => createHmac('sha256', secret).update(input).digest(),
});
export const none: Alg = { header: { alg: 'none' }, sign: () => Buffer.alloc(0) };
export const es384 = (key: KeyObject, kid: string): Alg => ({
  header: { kid, alg: 'ES384' },
  sign: (input) => sign('sha384', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' }),
});

export function newKey(kid: string) {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const { x, y } = publicKey.export({ format: 'jwk' });
  return { alg: es384(privateKey, kid), jwk: { kty: 'EC', crv: 'P-384', kid, x, y } };
}

export function jwt(claims: Claims | string, alg: Alg): string {
  const payload = typeof claims === 'string' ? claims : JSON.stringify(claims);
  const input = [JSON.stringify(alg.header), payload].map((part) => Buffer.from(part).toString('base64url')).join('.');
  return `${input}.${alg.sign(input).toString('base64url')}`;
}

export const device = (iss: string, more: Claims = {}): Claims => ({
  measres: 'success',
  'x-nvidia-gpu-driver-version': '550.90.07',
  'x-nvidia-gpu-vbios-version': '96.00.9F.00.01',
  secboot: true,
  dbgstat: 'disabled',
  eat_nonce: NONCE,
  hwmodel: 'GH100 A01 GSP BROM',
  ueid: '1',
  iss,
  ...TIMES,
  ...more,
});

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** The digest that the verifier which signs so would take. */
export function digestOf(part: string): string {
  const [header = '', payload = ''] = part.split('.').map((text) => Buffer.from(text, 'base64url').toString());
  return sha256(header.includes('HS256') ? nvtrustDigestText(payload) : part);
}

/** A detached EAT as a value, not yet JSON text. */
export type Detached = [['JWT', string], Record<string, string>];

export function detached(
  iss: string,
  alg: Alg,
  parts: { overall?: Claims; devices?: readonly Claims[] } = {},
): Detached {
  const devices = (parts.devices ?? [{}]).map((claims, i) => [`GPU-${i}`, jwt(device(iss, claims), alg)] as const);
  const submods = Object.fromEntries(devices.map(([name, part]) => [name, ['DIGEST', ['SHA-256', digestOf(part)]]]));
  const overall = {
    sub: 'NVIDIA-PLATFORM-ATTESTATION',
    iss,
    'x-nvidia-ver': '3.0',
    'x-nvidia-overall-att-result': true,
    submods,
    eat_nonce: NONCE,
    ...TIMES,
    ...parts.overall,
  };
  return [['JWT', jwt(overall, alg)], Object.fromEntries(devices)];
}

/** The Python SDK's token around what its verifiers returned. */
export function nested(verifiers: Readonly<Record<string, unknown>>, alg = hs256('notasecret')): string {
  return JSON.stringify([['JWT', jwt({ iss: 'NV-Attestation-SDK', ...TIMES }, alg)], verifiers]);
}

export const nvtrust = (parts: Parameters<typeof detached>[2] = {}): string =>
  nested({ LOCAL_GPU_CLAIMS: detached('LOCAL_GPU_VERIFIER', hs256('secret'), parts) });
