// Tokens in the other shapes that NVIDIA's verifiers return: signed by a service's key (ES384), or by nobody (alg none).
import { createHash, type KeyObject, sign } from 'node:crypto';
import { TWIN } from '../../demo/twin/identity.ts';
import type { Device } from '../../demo/twin/pki.ts';
import { AT } from './world.ts';

export const NRAS_ISSUER = 'https://nras.attestation.nvidia.com';

type Claims = Readonly<Record<string, unknown>>;

export interface ServiceToken {
  readonly key: KeyObject;
  readonly kid?: string;
  readonly issuer?: string;
  readonly nonce: string;
  readonly devices: readonly Device[];
  /** Of what the submodules are named. */
  readonly kind?: 'GPU' | 'SWITCH';
  readonly now?: Date;
  readonly overall?: Claims;
  readonly device?: Claims;
}

export const KID = 'countersign-test-key-1';

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

export function es384(claims: Claims, key: KeyObject, kid: string = KID): string {
  const input = `${encode({ kid, alg: 'ES384' })}.${encode(claims)}`;
  return `${input}.${sign('sha384', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
}

export const unsigned = (claims: Claims): string => `${encode({ alg: 'none' })}.${encode(claims)}.`;

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

export function deviceClaims(device: Device, nonce: string): Claims {
  return {
    measres: 'success',
    secboot: true,
    dbgstat: 'disabled',
    hwmodel: device.hwmodel,
    ueid: device.ueid,
    oemid: TWIN.manufacturer_id,
    eat_nonce: nonce,
    'x-nvidia-gpu-driver-version': TWIN.driver_version,
    'x-nvidia-gpu-vbios-version': TWIN.vbios_version,
    'x-nvidia-gpu-attestation-report-signature-verified': true,
  };
}

function times(now: Date): Claims {
  const iat = Math.floor(now.getTime() / 1000);
  return { iat, nbf: iat, exp: iat + 3600 };
}

const overallClaims = (nonce: string, submods: Claims): Claims => ({
  sub: 'NVIDIA-PLATFORM-ATTESTATION',
  'x-nvidia-ver': '3.0',
  'x-nvidia-overall-att-result': true,
  submods,
  eat_nonce: nonce,
});

/** `[["JWT", overall], {"GPU-0": jwt, …}]`, as NVIDIA's remote service returns it. */
export function nrasToken(token: ServiceToken): string {
  const { key, kid = KID, issuer: iss = NRAS_ISSUER, nonce, kind = 'GPU', now = AT } = token;
  const parts = token.devices.map((device, i) => {
    const claims = { ...deviceClaims(device, nonce), iss, ...times(now), ...token.device };
    return [`${kind}-${i}`, es384(claims, key, kid)] as const;
  });
  const submods = Object.fromEntries(parts.map(([name, jwt]) => [name, ['DIGEST', ['SHA-256', sha256(jwt)]]]));
  const overall = { ...overallClaims(nonce, submods), iss, ...times(now), ...token.overall };
  return JSON.stringify([['JWT', es384(overall, key, kid)], Object.fromEntries(parts)]);
}

/** nvattest's detached EAT: signed by nobody. */
export function nvattestToken(nonce: string, devices: readonly Device[], change: Claims = {}): string {
  const iss = 'SIMULATED-NVAT-LOCAL-VERIFIER';
  const parts = devices.map((device, i) => {
    const claims = { ...deviceClaims(device, nonce), ...times(AT), iss, ...change };
    return [`GPU-${i}`, unsigned(claims)] as const;
  });
  const submods = Object.fromEntries(parts.map(([name, jwt]) => [name, ['DIGEST', ['SHA256', sha256(jwt)]]]));
  const overall = unsigned({ ...overallClaims(nonce, submods), iss, ...times(AT) });
  return JSON.stringify({ detached_eat: [['JWT', overall], Object.fromEntries(parts)], result_code: 0 });
}

export function jwks(key: KeyObject, kid: string = KID): { keys: Record<string, string>[] } {
  const { x = '', y = '' } = key.export({ format: 'jwk' });
  return { keys: [{ kty: 'EC', crv: 'P-384', kid, x, y, alg: 'ES384', use: 'sig' }] };
}
