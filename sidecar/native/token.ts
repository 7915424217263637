// Writes the token: a detached EAT bundle (RFC 9711 §5) in the shape and the claim names of NVIDIA's services, our name on it.
import { createHash, randomUUID } from 'node:crypto';
import type { Nonce } from '../../proto/raw.ts';
import type { DeviceAppraisal } from './appraisal.ts';
import { deviceClaims } from './claims.ts';
import type { TokenKey } from './key.ts';

/** verify/ knows it, and takes it for nobody else's. */
const ISSUER = 'countersign-native';
/** As NVIDIA's tokens. */
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
  const parts = await Promise.all(
    devices.map(async (device, i) => {
      const jwt = await key.sign({ ...deviceClaims(device), ...common() });
      return { name: nameOf(devices, i), jwt, digest: createHash('sha256').update(jwt).digest('hex') };
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

/** Each kind counts for itself, as NVIDIA's verifiers do. */
function nameOf(devices: readonly DeviceAppraisal[], i: number): string {
  const kind = devices[i]?.claims.kind;
  const before = devices.slice(0, i).filter(({ claims }) => claims.kind === kind).length;
  return `${kind === 'switch' ? 'SWITCH' : 'GPU'}-${before}`;
}
