// The options and the report of a verification. readOptions validates the options once.
import type { Attestation } from '../../proto/attestation/attestation.ts';
import type { Batch } from '../../proto/attestation/batch.ts';
import type { Bundles } from '../common/bundles.ts';
import { equal, isDigest, toHex } from '../common/bytes.ts';
import type { Check, CheckName, Limits } from '../common/checks.ts';
import { type Names, type Part, refuseUnknown } from '../common/known-options.ts';
import { LruMap } from '../common/lru.ts';
import type { ReleaseClaims, ReleaseOptions } from '../common/release-options.ts';
import {
  CPU_PART_OPTIONS,
  type CpuClaims,
  type CpuPartOptions,
  type CpuReference,
  type ReleasedCpuOptions,
  refuseUnknownCpuOptions,
  type VerifiedSession,
} from '../cpu/cpu-options.ts';
import { type Collateral, OFFLINE } from '../gpu/collateral.ts';
import type { DeviceContext, Without } from '../gpu/devices.ts';
import { deviceRoots, rimRoots } from '../gpu/nvidia.ts';
import type { DeviceClaims } from '../gpu/topology.ts';
import type { Jwks, TokenSigner } from '../token/signature.ts';
import type { TokenKind } from '../token/token.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';

export interface VerifyOptions {
  /** The instant of the verification. Now by default. */
  readonly at?: Date | undefined;
  /** Another instant for one kind of check, for evidence and endorsements that were never valid together. */
  readonly clocks?: Clocks | undefined;
  /** PEM certificates to trust in place of NVIDIA's pinned roots. */
  readonly roots?: { readonly device?: string | undefined; readonly rim?: string | undefined } | undefined;
  /** PEM certificate of a simulated device's test root. A device under it passes, and proves nothing about hardware. */
  readonly simulatedRoot?: string | undefined;
  /** The source of reference values and OCSP responses; without it there are none. */
  readonly collateral?: Collateral | undefined;
  /** Checks that the caller does not want; each is shown as a skip with that reason. */
  readonly without?: Without | undefined;
  /** The caller's own texts and values, which the evidence must match. */
  readonly expected?: Expected | undefined;
  readonly policy?: Policy | undefined;
  /** For the processor's evidence: roots in place of AMD's and Intel's, the caller's collateral, policy and reference values. */
  readonly cpu?: CpuPartOptions | undefined;
  /** A release whose list stands in place of `cpu.reference`: the answer must then be of a guest on it. */
  readonly release?: ReleaseOptions | undefined;
  /** A session that `verifySession` verified, for attestations that name it and carry neither it nor a bundle. */
  readonly session?: Omit<VerifiedSession, 'hpke'> | undefined;
  /** Where compact attestations find their bundles; without it there are none. */
  readonly bundles?: Bundles | undefined;
  /** NVIDIA's keys for tokens of its remote service. */
  readonly nrasKeys?: Jwks | undefined;
  /** Fetches NVIDIA's keys where `nrasKeys` lacks the one that is needed. */
  readonly fetchNrasKeys?: ((url: string) => Promise<Jwks>) | undefined;
  /** Countersign's own keys, for tokens of its native attester. */
  readonly countersignKeys?: Jwks | undefined;
  readonly limits?: Limits | undefined;
  /** No check runs after the first that fails: for a server that verifies input of strangers. */
  readonly stopAtFailure?: boolean | undefined;
}

export interface Clocks {
  /** The device's certificates. */
  readonly report?: Date | undefined;
  /** OCSP responses about the device's certificates. */
  readonly ocsp?: Date | undefined;
  /** The certificates of those who signed reference values. */
  readonly rim?: Date | undefined;
  /** OCSP responses about those; as `ocsp` by default. */
  readonly rimOcsp?: Date | undefined;
  /** Signed tokens. */
  readonly token?: Date | undefined;
}

export interface Expected {
  /** The request body that was sent. White space between JSON tokens does not count. */
  readonly request?: string | undefined;
  /** The response body that was received, with or without its attestation. White space likewise. */
  readonly response?: string | undefined;
  /** The path of the request from `/v1/` on, without its query. */
  readonly endpoint?: string | undefined;
  /** The bytes of the event stream that was received. */
  readonly transcript?: Uint8Array | undefined;
  /**
   * The input is one event of a stream, by itself: the last chunk of a completion, or the event that ends a response or a message. It shows
   * only a part of the response. Without this, an input is compared as a whole response.
   */
  readonly event?: boolean | undefined;
  /** 64 hex digits. */
  readonly nonce?: string | undefined;
  /** 64 hex digits that the session's statement must hold. */
  readonly challenge?: string | undefined;
}

export interface Policy {
  /** The oldest response that is accepted, by the time in raw. */
  readonly maxAgeSeconds?: number | undefined;
  /** How far the time in raw may be ahead of the time of the check; 300 with `maxAgeSeconds`. */
  readonly maxAheadSeconds?: number | undefined;
  /**
   * Checks that must pass: a skip of one of these is a refusal. To require known software, use `minLevel: 'measured'`: an event log alone
   * passes cpu_software.
   */
  readonly requiredChecks?: readonly CheckName[] | undefined;
  /** The least level that is accepted; any by default. */
  readonly minLevel?: Level | undefined;
  /** How many responses the signed nonce may commit to; 4096 by default. With 1, no other response has the same signature. */
  readonly maxBatch?: number | undefined;
  /**
   * The GPUs and switches that are accepted, each by SHA-256 of the SubjectPublicKeyInfo in its second certificate, as 64 lowercase hex
   * digits: so a session's statement lists them. Every device that signed must be one; any by default.
   */
  readonly devices?: readonly string[] | undefined;
}

/**
 * From the least to the most. `none`: nothing about hardware. `gpu`: a GPU's signature. `gpu+cpu`: and a confidential VM on a genuine
 * processor requested it. `measured`: and the caller knows the software that the VM was started with (`cpu.reference`).
 */
export const LEVELS = ['none', 'gpu', 'gpu+cpu', 'measured'] as const;
export type Level = (typeof LEVELS)[number];

export interface TokenClaims {
  readonly kind: TokenKind;
  readonly issuer: string;
  readonly signature: TokenSigner | null;
}

export interface Claims {
  readonly simulated: boolean;
  /** When the response was complete, by the gateway's clock, ISO 8601. */
  readonly time: string | null;
  /** The nonce that the devices signed. */
  readonly nonce: string | null;
  /** The tree that the nonce commits to, and this response's leaf in it; null: the nonce commits to this response alone. */
  readonly batch: Pick<Batch, 'tree_size' | 'leaf_index'> | null;
  readonly token: TokenClaims | null;
  readonly devices: readonly DeviceClaims[];
  /** null: no processor's evidence. */
  readonly cpu: CpuClaims | null;
  /** The release that the caller named, where its check passed. */
  readonly release?: ReleaseClaims;
}

/** The result for a program to print or keep: plain JSON. */
export interface VerificationReport {
  readonly valid: boolean;
  /**
   * Not valid, but nothing was found wrong: a service or a folder lacks what each failed check needs (`rim_unavailable`,
   * `revocation_unavailable`, `collateral_unavailable`, `token_key_unavailable`).
   */
  readonly incomplete: boolean;
  readonly level: Level;
  readonly checks: readonly Check[];
  /** Unverified unless the report is valid. */
  readonly claims: Claims;
  readonly proven: readonly string[];
  readonly not_proven: readonly string[];
}

/** The texts that were signed, exactly. */
export interface Exchange {
  /** The path of the request, without its query. */
  readonly endpoint: string;
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

// Reads the options once: parses certificates, chooses clocks. An error here is the caller's fault and not a failed check.

/** Requests each document once in a verification, however many devices need it. The next one requests refused documents again. */
function cachedForOneVerification(collateral: Collateral): Collateral {
  const rims = new Map<string, ReturnType<Collateral['rim']>>();
  const responses = new Map<string, ReturnType<Collateral['ocsp']>>();
  return {
    rim: (query) => once(rims, JSON.stringify(query), () => collateral.rim(query)),
    ocsp: (query) =>
      once(responses, `${query.at.getTime()} ${toHex(query.certificate.der)}`, () => collateral.ocsp(query)),
    refused: async (query) => collateral.refused?.(query),
  };
}

function once<T>(results: Map<string, Promise<T>>, name: string, load: () => Promise<T>): Promise<T> {
  const result = results.get(name) ?? load();
  results.set(name, result);
  return result;
}

/** The options, read once. */
export interface Context extends DeviceContext {
  readonly options: VerifyOptions;
  readonly at: Date;
  readonly clocks: DeviceContext['clocks'] & { readonly token: Date };
}

/** @throws {TypeError} naming the option that cannot be used. */
export function readOptions(options: VerifyOptions): Context {
  const { at = new Date(), clocks = {}, roots = {}, simulatedRoot, collateral, policy = {}, expected } = options;
  // Comparisons with NaN are false, so it would disable the check.
  for (const name of ['maxAgeSeconds', 'maxAheadSeconds'] as const)
    if (policy[name] !== undefined && !(policy[name] >= 0))
      throw new TypeError(`policy.${name} is not a number of seconds`);
  const { maxBatch = 1 } = policy;
  if (!Number.isInteger(maxBatch) || maxBatch < 1) throw new TypeError('policy.maxBatch is not a whole number from 1');
  const { devices } = policy;
  if (devices !== undefined && !(Array.isArray(devices) && devices.every(isDigest)))
    throw new TypeError('policy.devices is not a list of 64 lowercase hex digits');
  if (policy.minLevel !== undefined && !LEVELS.includes(policy.minLevel))
    throw new TypeError(`policy.minLevel is none of ${LEVELS.join(', ')}`);
  if (expected?.challenge !== undefined && !/^[0-9a-f]{64}$/i.test(expected.challenge))
    throw new TypeError('expected.challenge is not 64 hex digits');
  const clock = (name: keyof typeof clocks, otherwise: Date) => instant(clocks[name] ?? otherwise, `clocks.${name}`);
  const ocsp = clock('ocsp', instant(at, 'at'));
  const device = roots.device === undefined ? deviceRoots() : pem(roots.device, 'roots.device');
  const rim = roots.rim === undefined ? rimRoots() : pem(roots.rim, 'roots.rim');
  return {
    options,
    at,
    clocks: {
      report: clock('report', at),
      ocsp,
      rim: clock('rim', at),
      rimOcsp: clock('rimOcsp', ocsp),
      token: clock('token', at),
    },
    deviceRoots: device,
    rimRoots: rim,
    nvidia: { device: within(device, deviceRoots()), rim: within(rim, rimRoots()) },
    simulatedRoots: simulatedRoot === undefined ? [] : pem(simulatedRoot, 'simulatedRoot'),
    collateral: cachedForOneVerification(collateral ?? OFFLINE),
    checksSimulated: collateral !== undefined && roots.rim !== undefined,
  };
}

function within(roots: readonly Certificate[], pinned: readonly Certificate[]): boolean {
  return roots.every(({ der }) => pinned.some((root) => equal(root.der, der)));
}

function instant(date: Date, name: string): Date {
  if (!(date instanceof Date) || Number.isNaN(date.getTime())) throw new TypeError(`${name} is not a time`);
  return date;
}

const parsed = new LruMap<string, readonly Certificate[]>(16);

function pem(text: string, name: string): readonly Certificate[] {
  const known = parsed.get(text);
  if (known !== undefined) return known;
  try {
    const certificates = parsePem(text);
    parsed.set(text, certificates);
    return certificates;
  } catch (cause) {
    throw new TypeError(`${name} is not a PEM certificate`, { cause });
  }
}

/** The options of the processor's evidence. @throws {TypeError} for two lists. */
export function cpuOptionsOf(
  { at, options: { simulatedRoot, without, cpu, release: named } }: Context,
  release: { readonly reference: CpuReference; readonly claims: ReleaseClaims } | null = null,
): ReleasedCpuOptions {
  if (named !== undefined && cpu?.reference !== undefined) throw new TypeError('release and cpu.reference: only one');
  const list = release === null ? {} : { reference: release.reference, release: release.claims };
  return { ...cpu, ...list, at, simulatedRoots: simulatedRoot, without };
}

// The names of the options.

export const VERIFY_OPTIONS: Names<VerifyOptions> = {
  at: true,
  clocks: true,
  roots: true,
  simulatedRoot: true,
  collateral: true,
  without: true,
  expected: true,
  policy: true,
  cpu: true,
  release: true,
  session: true,
  bundles: true,
  nrasKeys: true,
  fetchNrasKeys: true,
  countersignKeys: true,
  limits: true,
  stopAtFailure: true,
};
const CLOCKS: Part<VerifyOptions, 'clocks'> = { report: true, ocsp: true, rim: true, rimOcsp: true, token: true };
const ROOTS: Part<VerifyOptions, 'roots'> = { device: true, rim: true };
const WITHOUT: Part<VerifyOptions, 'without'> = { referenceValues: true, revocation: true };
const LIMITS: Names<Limits> = { maxCharacters: true, maxValues: true };
const EXPECTED: Part<VerifyOptions, 'expected'> = {
  request: true,
  response: true,
  endpoint: true,
  transcript: true,
  event: true,
  nonce: true,
  challenge: true,
};
const POLICY: Part<VerifyOptions, 'policy'> = {
  maxAgeSeconds: true,
  maxAheadSeconds: true,
  requiredChecks: true,
  minLevel: true,
  maxBatch: true,
  devices: true,
};

/** @param names those of the options themselves; those of their parts are known. @throws {TypeError} naming an option that there is not. */
export function refuseUnknownOptions(options: VerifyOptions, names: object = VERIFY_OPTIONS): void {
  refuseUnknown(options, names);
  refuseUnknown(options.clocks, CLOCKS, 'clocks.');
  refuseUnknown(options.roots, ROOTS, 'roots.');
  refuseUnknown(options.without, WITHOUT, 'without.');
  refuseUnknown(options.expected, EXPECTED, 'expected.');
  refuseUnknown(options.policy, POLICY, 'policy.');
  refuseUnknown(options.limits, LIMITS, 'limits.');
  if (options.cpu !== undefined) refuseUnknownCpuOptions(options.cpu, CPU_PART_OPTIONS, 'cpu.');
}
