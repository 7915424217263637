// What a token says of one device (EAT claims, RFC 9711 §4, and NVIDIA's own): to be held against the device's report.
import { type JsonObject, malformed } from './json.ts';

export interface TokenDevice {
  /** The submodule's name: `GPU-0`, `SWITCH-0`. */
  readonly name: string;
  /** The Python SDK's name for the verifier, or null. */
  readonly verifier: string | null;
  readonly nonce: string;
  /** null: the token does not say. The same for all below. */
  readonly driver: string | null;
  /** Of the VBIOS, or of a switch's BIOS. */
  readonly vbios: string | null;
  /** The leaf certificate's serial number, in decimal. */
  readonly ueid: string | null;
  readonly hwmodel: string | null;
  /** `success` when every measurement matched. */
  readonly measres: string | null;
  readonly secureBoot: boolean | null;
  /** `dbgstat`: `disabled` on a device that may be trusted. */
  readonly debug: string | null;
  readonly claims: JsonObject;
}

const MAX_CLAIM_CHARACTERS = 1024;

/** @throws {CheckFailure} token_malformed where a claim has another type than it must. */
export function readDevice(name: string, verifier: string | null, claims: JsonObject): TokenDevice {
  return {
    name,
    verifier,
    nonce: requiredNonce(claims, name),
    driver: text(claims, 'x-nvidia-gpu-driver-version'),
    vbios: text(claims, 'x-nvidia-gpu-vbios-version') ?? text(claims, 'x-nvidia-switch-bios-version'),
    ueid: text(claims, 'ueid'),
    hwmodel: text(claims, 'hwmodel'),
    measres: text(claims, 'measres'),
    secureBoot: flag(claims, 'secboot'),
    debug: text(claims, 'dbgstat'),
    claims,
  };
}

/** A part that must carry `eat_nonce` and does not is malformed: an expected claim that is absent fails. */
export function requiredNonce(claims: JsonObject, label: string): string {
  const nonce = text(claims, 'eat_nonce');
  if (nonce === null || nonce === '') throw malformed(`${label} carries no eat_nonce`);
  return nonce;
}

export function text(claims: JsonObject, claim: string): string | null {
  const value = claims[claim] ?? null;
  if (value !== null && (typeof value !== 'string' || value.length > MAX_CLAIM_CHARACTERS))
    throw malformed(`${claim} is not a short string`);
  return value;
}

function flag(claims: JsonObject, claim: string): boolean | null {
  const value = claims[claim] ?? null;
  if (value !== null && typeof value !== 'boolean') throw malformed(`${claim} is not a boolean`);
  return value;
}
