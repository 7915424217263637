// The vectors' own format: what a file holds, and how it becomes a call of the verifier. vectors/README.md says it in prose.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CpuReference } from '../../verify/cpu.ts';
import {
  type CheckName,
  createBundles,
  createCollateral,
  type FailureCode,
  type Jwks,
  type Level,
  type VerifyOptions,
} from '../../verify/index.ts';

export interface Vector {
  readonly description: string;
  /** The check that this is about. */
  readonly check: CheckName;
  /** One of these four: an attestation; the file of one; the exact text of something; bare evidence in NVIDIA's form. */
  readonly attestation?: unknown;
  readonly attestation_file?: string;
  readonly text?: string;
  readonly evidence?: readonly unknown[];
  readonly options: VectorOptions;
  readonly expect: Expectation;
}

/** Names ending in _file are paths within the folder of the vectors. */
export interface VectorOptions {
  /** ISO 8601. */
  readonly at: string;
  readonly simulated_root_file?: string;
  readonly rim_root_file?: string;
  /** By the id under which a RIM service keeps them. */
  readonly rim_files?: Readonly<Record<string, string>>;
  /** DER in base64. */
  readonly ocsp_files?: readonly string[];
  /** Bundles by the SHA-256 that they are asked for under. */
  readonly bundle_files?: Readonly<Record<string, string>>;
  readonly nras_keys?: Jwks;
  readonly expected?: {
    readonly endpoint?: string;
    readonly request?: string;
    readonly response?: string;
    readonly transcript?: string;
    readonly nonce?: string;
    /** The input is one event of a stream by itself. */
    readonly event?: boolean;
  };
  readonly without?: { readonly reference_values?: boolean; readonly revocation?: boolean };
  /** The guests that the caller knows (docs/attestation.md §7.13), and the verity root of the weights that the caller names. */
  readonly cpu?: { readonly reference: CpuReference; readonly weights?: string };
  readonly max_age_seconds?: number;
  readonly max_batch?: number;
  readonly required_checks?: readonly CheckName[];
  readonly max_characters?: number;
}

export interface Expectation {
  readonly valid: boolean;
  readonly level: Level;
  /** Present when and only when it is not valid. */
  readonly failed_check?: CheckName;
  readonly code?: FailureCode;
  /** Checks that are skipped although nothing failed before them. */
  readonly skipped?: readonly CheckName[];
}

export function verifyOptions(folder: string, options: VectorOptions): VerifyOptions {
  const text = (file: string): string => readFileSync(join(folder, file), 'utf8');
  const { expected, without, nras_keys } = options;
  const rims = new Map(Object.entries(options.rim_files ?? {}).map(([id, file]) => [id, text(file)]));
  const ocsp = (options.ocsp_files ?? []).map((file) => new Uint8Array(Buffer.from(text(file), 'base64')));
  const bundles = new Map(Object.entries(options.bundle_files ?? {}));
  const load = async (sha256: string): Promise<string | null> => {
    const file = bundles.get(sha256);
    return file === undefined ? null : text(file);
  };
  const { transcript, ...texts } = expected ?? {};
  return {
    at: new Date(options.at),
    ...(options.simulated_root_file === undefined ? {} : { simulatedRoot: text(options.simulated_root_file) }),
    ...(options.rim_root_file === undefined ? {} : { roots: { rim: text(options.rim_root_file) } }),
    collateral: createCollateral({ rims, ocsp }),
    bundles: createBundles({ load }),
    ...(nras_keys === undefined ? {} : { nrasKeys: nras_keys }),
    expected: { ...texts, ...(transcript === undefined ? {} : { transcript: new TextEncoder().encode(transcript) }) },
    without: { referenceValues: without?.reference_values ?? false, revocation: without?.revocation ?? false },
    policy: {
      maxAgeSeconds: options.max_age_seconds,
      maxBatch: options.max_batch,
      requiredChecks: options.required_checks,
    },
    ...(options.cpu === undefined ? {} : { cpu: options.cpu }),
    limits: { maxCharacters: options.max_characters },
  };
}

export function inputOf(folder: string, { attestation, attestation_file, text, evidence }: Vector): unknown {
  if (attestation_file !== undefined) return JSON.parse(readFileSync(join(folder, attestation_file), 'utf8'));
  return attestation ?? text ?? evidence;
}
