// Writes the attestation token: a detached EAT bundle (RFC 9711 §5) in the shape and with the claim names of NVIDIA's services, under our
// issuer.
import { createHash, generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto';
import { promisify } from 'node:util';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import type { DeviceClaims } from '../../../verify/index.ts';
import type { EndorsementExpiry } from '../../../verify/service.ts';

// The key that signs this process's attestation tokens: ES384, made at start, never written anywhere. Its public half is in `hello`.

/** A JWK, as the gateway needs it: RFC 7517, RFC 7518 §6.2. */
export interface PublicKey {
  readonly kty: 'EC';

  readonly crv: 'P-384';
  readonly x: string;
  readonly y: string;
  readonly kid: string;
  readonly alg: 'ES384';
  readonly use: 'sig';
}

interface TokenKey {
  readonly public: PublicKey;
  /** RFC 7515 compact serialization of the claims. */
  sign(claims: object): Promise<string>;
}

/** A device whose every check passed. */
export interface DeviceAppraisal {
  readonly claims: DeviceClaims;
  /** When the first certificate of each chain expires. */
  readonly expires: EndorsementExpiry;
  /** The report's firmware is the one that the leaf names; false: reports of this driver do not name it. */
  readonly fwid_checked: boolean;
}

const signAsync = promisify<string, Uint8Array, { key: KeyObject; dsaEncoding: 'ieee-p1363' }, Buffer>(sign);

export function makeTokenKey(): TokenKey {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const kid = thumbprint(x, y);
  const header = base64url({ alg: 'ES384', typ: 'JWT', kid });
  return {
    public: { kty: 'EC', crv: 'P-384', x, y, kid, alg: 'ES384', use: 'sig' },
    async sign(claims) {
      const input = `${header}.${base64url(claims)}`;
      const signature = await signAsync('sha384', Buffer.from(input), { key: privateKey, dsaEncoding: 'ieee-p1363' });
      return `${input}.${signature.toString('base64url')}`;
    },
  };
}

/** RFC 7638: the key's required members, in this order. */
function thumbprint(x: string, y: string): string {
  return createHash('sha256')
    .update(JSON.stringify({ crv: 'P-384', kty: 'EC', x, y }))
    .digest('base64url');
}

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

// A token's claims about one device whose every check passed, under NVIDIA's names (version 3.0).

/** NVIDIA's private enterprise number, as its own tokens give it. */
const OEM_ID = '5703';

/** Each `true` is a check of verify/ that passed: a device that fails one has no claims and no token. */
function deviceClaims(device: DeviceAppraisal): Record<string, unknown> {
  const { claims } = device;
  return {
    'x-nvidia-device-type': claims.kind === 'switch' ? 'nvswitch' : 'gpu',
    measres: 'success',
    secboot: true,
    dbgstat: 'disabled',
    hwmodel: claims.model,
    ueid: claims.ueid,
    oemid: OEM_ID,
    ...(claims.kind === 'switch' ? switchClaims(device) : gpuClaims(device)),
  };
}

function gpuClaims({ claims, expires, fwid_checked }: DeviceAppraisal): Record<string, unknown> {
  return {
    'x-nvidia-gpu-claims-version': '3.0',
    ...reportClaims('x-nvidia-gpu', expires.device, fwid_checked),
    'x-nvidia-gpu-driver-version': claims.driver,
    'x-nvidia-gpu-vbios-version': claims.vbios,
    ...(expires.driver === null ? {} : rim('x-nvidia-gpu-driver-rim', expires.driver)),
    ...rim('x-nvidia-gpu-vbios-rim', expires.vbios),
    'x-nvidia-gpu-vbios-index-no-conflict': true,
    'x-nvidia-mismatch-measurement-records': null,
  };
}

function switchClaims({ claims, expires, fwid_checked }: DeviceAppraisal): Record<string, unknown> {
  return {
    ...reportClaims('x-nvidia-switch', expires.device, fwid_checked),
    'x-nvidia-switch-bios-version': claims.vbios,
    ...rim('x-nvidia-switch-bios-rim', expires.vbios),
  };
}

function reportClaims(prefix: string, expires: Date, fwid_checked: boolean): Record<string, unknown> {
  const report = `${prefix}-attestation-report`;
  return {
    [`${prefix}-arch-check`]: true,
    [`${report}-parsed`]: true,
    [`${report}-nonce-match`]: true,
    [`${report}-signature-verified`]: true,
    [`${report}-cert-chain`]: chain(expires),
    // Left out for drivers, and switches, whose reports do not name their firmware.
    ...(fwid_checked ? { [`${report}-cert-chain-fwid-match`]: true } : {}),
  };
}

function rim(prefix: string, expires: Date): Record<string, unknown> {
  return {
    [`${prefix}-fetched`]: true,
    [`${prefix}-schema-validated`]: true,
    [`${prefix}-cert-chain`]: chain(expires),
    [`${prefix}-signature-verified`]: true,
    [`${prefix}-version-match`]: true,
    [`${prefix}-measurements-available`]: true,
  };
}

function chain(expires: Date): Record<string, unknown> {
  return {
    'x-nvidia-cert-status': 'valid',
    'x-nvidia-cert-ocsp-status': 'good',
    'x-nvidia-cert-expiration-date': expires.toISOString().replace('.000Z', 'Z'),
    'x-nvidia-cert-revocation-reason': null,
  };
}

/** verify/ recognises this attester's tokens by it. */
const ISSUER = 'countersign-native';
/** As in NVIDIA's tokens. */
const LIFETIME_SECONDS = 3600;

/** `[["JWT", overall], {"GPU-0": device, …, "SWITCH-0": …}]` as JSON text; the overall JWT names each device's by its SHA-256. */
export async function makeToken(
  nonce: Nonce,
  devices: readonly DeviceAppraisal[],
  now: Date,
  key: TokenKey,
): Promise<string> {
  const iat = Math.floor(now.getTime() / 1000);
  const common = () => ({
    iss: ISSUER,
    iat,
    nbf: iat,
    exp: iat + LIFETIME_SECONDS,
    jti: randomUUID(),
    eat_nonce: nonce,
  });
  const kinds = devices.map(({ claims }) => claims.kind.toUpperCase());
  const parts = await Promise.all(
    devices.map(async (device, i) => {
      const jwt = await key.sign({ ...deviceClaims(device), ...common() });
      return { name: `${kinds[i]}-${numberOf(kinds, i)}`, jwt, digest: createHash('sha256').update(jwt).digest('hex') };
    }),
  );
  const overall = await key.sign({
    sub: 'NVIDIA-PLATFORM-ATTESTATION',
    'x-nvidia-ver': '3.0',
    'x-nvidia-overall-att-result': true,
    submods: Object.fromEntries(parts.map(({ name, digest }) => [name, ['DIGEST', ['SHA-256', digest]]])),
    ...common(),
  });
  return JSON.stringify([['JWT', overall], Object.fromEntries(parts.map(({ name, jwt }) => [name, jwt]))]);
}

/** The number of device `i` among those of its kind: each kind is numbered separately, as in NVIDIA's verifiers. */
export const numberOf = (kinds: readonly string[], i: number): number =>
  kinds.slice(0, i).filter((kind) => kind === kinds[i]).length;
