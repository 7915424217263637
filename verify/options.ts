// What a verification is asked, and what it answers.
import type { Attestation } from '../proto/attestation.ts';
import type { Check, CheckName } from './checks.ts';
import type { Collateral } from './collateral.ts';
import type { Architecture } from './nvidia.ts';
import type { PassThrough } from './spdm/opaque.ts';
import type { Jwks, TokenSigner } from './token/signature.ts';
import type { TokenKind } from './token/token.ts';

export interface VerifyOptions {
  /** The instant of the verification. Now by default. */
  readonly at?: Date | undefined;
  /** Another instant for one kind of check, for evidence and endorsements that were never valid together. */
  readonly clocks?: Clocks | undefined;
  /** PEM certificates to trust in place of NVIDIA's pinned roots. */
  readonly roots?: { readonly device?: string | undefined; readonly rim?: string | undefined } | undefined;
  /** PEM certificate of a simulated device's test root. A device under it passes, and proves nothing about hardware. */
  readonly simulatedRoot?: string | undefined;
  /** Where reference values and revocation answers come from; without it there are none. */
  readonly collateral?: Collateral | undefined;
  /** What the caller does not want checked; shown as a skip with that reason. */
  readonly without?: Without | undefined;
  /** What the caller holds and the evidence must be about. */
  readonly expected?: Expected | undefined;
  readonly policy?: Policy | undefined;
  /** NVIDIA's keys for tokens of its remote service. */
  readonly nrasKeys?: Jwks | undefined;
  /** Asked for NVIDIA's keys when `nrasKeys` has not the one that is needed. */
  readonly fetchNrasKeys?: ((url: string) => Promise<Jwks>) | undefined;
  /** Countersign's own keys, for tokens of its native attester. */
  readonly countersignKeys?: Jwks | undefined;
  readonly limits?: Limits | undefined;
  /** The first check that fails is the last that is made: for those who verify what strangers send. */
  readonly stopAtFailure?: boolean | undefined;
}

export interface Clocks {
  /** The device's certificates. */
  readonly report?: Date | undefined;
  /** OCSP answers about the device's certificates. */
  readonly ocsp?: Date | undefined;
  /** The certificates of those who signed reference values. */
  readonly rim?: Date | undefined;
  /** OCSP answers about those; as `ocsp` by default. */
  readonly rimOcsp?: Date | undefined;
  /** Signed tokens. */
  readonly token?: Date | undefined;
}

export interface Without {
  readonly referenceValues?: boolean | undefined;
  readonly revocation?: boolean | undefined;
}

export interface Expected {
  /** The request body that was sent. White space between JSON tokens does not count. */
  readonly request?: string | undefined;
  /** The response body that was received, with or without its attestation. White space likewise. */
  readonly response?: string | undefined;
  /** The bytes of the event stream that was received. */
  readonly transcript?: Uint8Array | undefined;
  /** 64 hex digits. */
  readonly nonce?: string | undefined;
}

export interface Policy {
  /** The oldest answer that is accepted, by the time in raw. */
  readonly maxAgeSeconds?: number | undefined;
  /** How far the time in raw may be ahead of the time of the check; 300 with `maxAgeSeconds`. */
  readonly maxAheadSeconds?: number | undefined;
  /** Checks that must pass: a skip of one of these is a refusal. */
  readonly requiredChecks?: readonly CheckName[] | undefined;
}

export interface Limits {
  /** Characters of JSON text; 64 Mi by default. */
  readonly maxCharacters?: number | undefined;
  /** Names and values in it, and again in raw; 16 Mi by default. */
  readonly maxValues?: number | undefined;
}

/**
 * `none`: nothing about hardware. `gpu`: a GPU's signature. `gpu+cpu` and `measured` are kept for CPU evidence, and for CPU
 * evidence over software whose measurements are known.
 */
export type Level = 'none' | 'gpu' | 'gpu+cpu' | 'measured';

/** What one device's signed report says of it. null: it does not say. */
export interface DeviceClaims {
  readonly kind: 'gpu' | 'switch';
  readonly arch: Architecture;
  /** `GH100`. */
  readonly chip: string;
  /** `GH100 A01 GSP BROM`. */
  readonly model: string;
  /** The leaf certificate's serial number, in decimal. */
  readonly ueid: string;
  readonly driver: string | null;
  readonly vbios: string | null;
  /** `spt`, `mpt`, `ppcie`: how it is passed through to its guest. */
  readonly mode: PassThrough | null;
  /** Measurements that were compared with reference values. */
  readonly measurements_matched: number | null;
}

export interface TokenClaims {
  readonly kind: TokenKind;
  readonly issuer: string;
  readonly signature: TokenSigner | null;
}

export interface Claims {
  readonly simulated: boolean;
  /** When the gateway says that the answer was complete, ISO 8601. */
  readonly time: string | null;
  readonly nonce: string | null;
  readonly token: TokenClaims | null;
  readonly devices: readonly DeviceClaims[];
}

/** The result for a program to print or keep: plain JSON. */
export interface VerificationReport {
  readonly valid: boolean;
  readonly level: Level;
  readonly checks: readonly Check[];
  /** Empty, but for what was read, unless valid. */
  readonly claims: Claims;
  readonly proven: readonly string[];
  readonly not_proven: readonly string[];
}

/** The texts that were signed, exactly. */
export interface Exchange {
  readonly request: string;
  readonly response: string;
  readonly stream: { readonly events: number; readonly sha256: string } | null;
  /** Unix seconds, by the gateway's clock. */
  readonly timestamp: number;
}

export interface Verified extends VerificationReport {
  readonly valid: true;
  readonly exchange: Exchange;
  readonly attestation: Attestation;
}

export interface VerifiedEvidence extends VerificationReport {
  readonly valid: true;
}
