// Writes the token in the shape of NVIDIA's Python local verifier, claims 3.0. Anyone can make one: its keys are published.
import { createHash, createHmac, randomUUID } from 'node:crypto';
import { TWIN } from './identity.ts';

// JSON as Python's json.dumps writes it by default: a space after `,` and `:`, everything beyond ASCII escaped.

type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

export function pythonJson(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(', ')}]`;
  if (typeof value === 'object' && value !== null)
    return `{${Object.entries(value)
      .map(([key, member]) => `${text(key)}: ${pythonJson(member)}`)
      .join(', ')}}`;
  return typeof value === 'string' ? text(value) : JSON.stringify(value);
}

const text = (value: string): string =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** The constants with which `nvtrust` signs, as published in its source: the outer token's and the local verifier's. */
const OUTER_SECRET = 'notasecret';
const LOCAL_SECRET = 'secret';

interface TokenSubject {
  readonly hwmodel: string;
  readonly ueid: string;
}

export type TokenClaims = Readonly<Record<string, Json>>;

/**
 * `[["JWT", outer], {"LOCAL_GPU_CLAIMS": [["JWT", platform], {"GPU-0": device, …}]}]` as JSON text. The platform token names
 * each device's claims by digest: SHA-256 over Python's `json.dumps` of them, before `nbf`, `exp`, `iat` and `jti` are added.
 */
export function makeToken(nonce: string, subjects: readonly TokenSubject[], now: Date): string {
  return tokenOf(
    nonce,
    subjects.map((subject) => claimsOf(subject, nonce)),
    true,
    now,
  );
}

/** The token over the claims of these devices. `result`: that of the appraisal as a whole. */
export function tokenOf(nonce: string, claims_by_device: readonly TokenClaims[], result: boolean, now: Date): string {
  const times = () => lifetime(now);
  const devices: Record<string, string> = {};
  const submods: Record<string, Json> = {};
  claims_by_device.forEach((claims, i) => {
    const digest = createHash('sha256').update(pythonJson(claims)).digest('hex');
    submods[`GPU-${i}`] = ['DIGEST', ['SHA256', digest]];
    devices[`GPU-${i}`] = jwt({ ...claims, ...times() }, LOCAL_SECRET);
  });
  const { jti, ...when } = times();
  const platform = {
    sub: 'SIMULATED-PLATFORM-ATTESTATION',
    ...when,
    jti,
    'x-nvidia-ver': '3.0',
    iss: 'SIMULATED-LOCAL_GPU_VERIFIER',
    'x-nvidia-overall-att-result': result,
    submods,
    eat_nonce: nonce,
  };
  const outer = jwt({ iss: 'SIMULATED-NV-Attestation-SDK', ...times() }, OUTER_SECRET);
  return pythonJson([['JWT', outer], { LOCAL_GPU_CLAIMS: [['JWT', jwt(platform, LOCAL_SECRET)], devices] }]);
}

/** Of a device that passes the appraisal. */
export function claimsOf({ hwmodel, ueid }: TokenSubject, nonce: string): TokenClaims {
  const certificates = {
    'x-nvidia-cert-expiration-date': '9999-12-31T23:59:59',
    'x-nvidia-cert-status': 'valid',
    'x-nvidia-cert-ocsp-status': 'good',
    'x-nvidia-cert-revocation-reason': null,
  };
  return {
    measres: 'success',
    'x-nvidia-gpu-arch-check': true,
    'x-nvidia-gpu-driver-version': TWIN.driver_version,
    'x-nvidia-gpu-vbios-version': TWIN.vbios_version,
    'x-nvidia-gpu-attestation-report-cert-chain': certificates,
    'x-nvidia-gpu-attestation-report-cert-chain-fwid-match': true,
    'x-nvidia-gpu-attestation-report-parsed': true,
    'x-nvidia-gpu-attestation-report-nonce-match': true,
    'x-nvidia-gpu-attestation-report-signature-verified': true,
    'x-nvidia-gpu-driver-rim-fetched': true,
    'x-nvidia-gpu-driver-rim-schema-validated': true,
    'x-nvidia-gpu-driver-rim-cert-chain': certificates,
    'x-nvidia-gpu-driver-rim-signature-verified': true,
    'x-nvidia-gpu-driver-rim-version-match': true,
    'x-nvidia-gpu-driver-rim-measurements-available': true,
    'x-nvidia-gpu-vbios-rim-fetched': true,
    'x-nvidia-gpu-vbios-rim-schema-validated': true,
    'x-nvidia-gpu-vbios-rim-cert-chain': certificates,
    'x-nvidia-gpu-vbios-rim-version-match': true,
    'x-nvidia-gpu-vbios-rim-signature-verified': true,
    'x-nvidia-gpu-vbios-rim-measurements-available': true,
    'x-nvidia-gpu-vbios-index-no-conflict': true,
    secboot: true,
    dbgstat: 'disabled',
    eat_nonce: nonce,
    hwmodel,
    ueid,
    oemid: TWIN.manufacturer_id,
    iss: 'SIMULATED-LOCAL_GPU_VERIFIER',
  };
}

/** As in tokens of `nvtrust`: an hour, and two minutes for clocks that run behind. */
function lifetime(now: Date): { nbf: number; exp: number; iat: number; jti: string } {
  const iat = Math.floor(now.getTime() / 1000);
  return { nbf: iat - 120, exp: iat + 3600, iat, jti: randomUUID() };
}

/** RFC 7515 compact serialization, HS256. */
function jwt(claims: Readonly<Record<string, Json>>, secret: string): string {
  const parts = ['{"alg":"HS256","typ":"JWT"}', JSON.stringify(claims)];
  const signed = parts.map((part) => Buffer.from(part).toString('base64url')).join('.');
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}
