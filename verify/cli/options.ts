// From the command line to the verifier's options, and the check of one file by them.
import { unquoted } from '../common/limited.ts';
import { appraiseSession, type CpuReport, readReference, readWeights } from '../cpu.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  fetchNrasKeys,
  type Level,
  type VerificationReport,
  type VerifyOptions,
} from '../index.ts';
import { parsePem } from '../x509/certificate.ts';
import type { Arguments } from './args.ts';
import { bundlesIn } from './bundle-files.ts';
import { onFetch } from './collateral-folder.ts';
import { INPUT_LIMITS, readText, UsageError } from './input.ts';
import { demandsProcessor, type FileKind } from './kinds.ts';

export function statusOf({ valid, incomplete }: VerificationReport | CpuReport): number {
  return valid ? 0 : incomplete ? 3 : 1;
}

/** The session that the caller holds. The policy judges the attestation, which alone says how old it is. @throws {UsageError} */
export async function sessionOption(args: Arguments, options: VerifyOptions): Promise<Pick<VerifyOptions, 'session'>> {
  if (args.session === null) return {};
  const { session, checks } = await appraiseSession(unquoted(readText(args.session), INPUT_LIMITS), {
    ...options,
    policy: {},
  });
  if (session !== null) return { session };
  const failed = checks.find(({ status }) => status === 'fail');
  throw new UsageError(`--session ${args.session}: it does not verify: ${failed?.code}: ${failed?.detail}`);
}

export async function appraise(
  args: Arguments,
  kind: FileKind,
  input: string | Uint8Array,
  options: VerifyOptions,
): Promise<VerificationReport> {
  // The caller's command decides, and not the file; only `collateral` takes several kinds.
  const about = args.command === 'collateral' ? kind : args.command;
  if (about === 'session')
    return appraiseSession(typeof input === 'string' ? unquoted(input, INPUT_LIMITS) : input, options);
  if (about === 'evidence') return appraiseEvidence(input, options);
  const expected = {
    ...options.expected,
    ...(args.request === null ? {} : { request: readText(args.request) }),
    ...(args.response === null ? {} : { response: readText(args.response) }),
    ...(args.endpoint === null ? {} : { endpoint: args.endpoint }),
    event: args.event,
  };
  return appraiseAttestation(input, { ...options, expected });
}

export function optionsOf(args: Arguments, notify = onFetch): VerifyOptions {
  return {
    ...(args.at === null ? {} : { at: args.at }),
    ...(args.allowSimulated === null ? {} : { simulatedRoot: readRoot(args.allowSimulated) }),
    policy: {
      ...(args.maxAgeSeconds === null ? {} : { maxAgeSeconds: args.maxAgeSeconds }),
      ...(args.maxBatch === null ? {} : { maxBatch: args.maxBatch }),
      ...(args.devices.length === 0 ? {} : { devices: args.devices }),
      minLevel: leastLevel(args),
      requiredChecks: demandsProcessor(args) ? ['cpu_form'] : [],
    },
    cpu: cpuOptions(args),
    ...(args.released === null ? {} : { release: args.released }),
    expected: {
      ...(args.challenge === null ? {} : { challenge: args.challenge }),
      ...(args.nonce === null ? {} : { nonce: args.nonce }),
    },
    limits: INPUT_LIMITS,
    bundles: bundlesIn(args.bundles),
    without: { referenceValues: args.withoutReferenceValues, revocation: args.withoutRevocation },
    // NVIDIA's keys for its remote service's tokens come over the network too.
    ...(args.offline ? {} : { fetchNrasKeys: (url: string) => fetchNrasKeys(url, fetch, { onFetch: notify }) }),
  };
}

/** The least level that is accepted. Evidence and sessions are about no answer: any level of them passes. */
function leastLevel(args: Arguments): Level {
  const { command, requireLevel, allowSimulated, reference, weights, release, products, tcb, chips, demands } = args;
  if (requireLevel !== null) return requireLevel;
  if (command === 'evidence' || command === 'session' || allowSimulated !== null) return 'none';
  if ([reference, weights, release].some((one) => one !== null)) return 'measured';
  return [products, tcb, chips, demands].some((list) => list.length > 0) ? 'gpu+cpu' : 'gpu';
}

export function cpuOptions(args: Arguments) {
  return {
    policy: {
      ...(args.products.length === 0 ? {} : { products: args.products }),
      ...(args.tcb.length === 0 ? {} : { tcb: args.tcb }),
      ...(args.chips.length === 0 ? {} : { chips: args.chips }),
      requireAliasCheck: args.demands.includes('alias_check'),
      requireCiphertextHiding: args.demands.includes('ciphertext_hiding'),
      requireSmtOff: args.demands.includes('smt_off'),
    },
    ...(args.reference === null ? {} : { reference: readOption('reference', args.reference, readReference) }),
    ...(args.weights === null ? {} : { weights: weightsOf(args.weights) }),
  };
}

/** @param given a file, or the verity root itself. @throws {UsageError} */
function weightsOf(given: string): string {
  return /^[0-9a-f]{64}$/i.test(given) ? given.toLowerCase() : readOption('weights', given, readWeights);
}

/** @throws {UsageError} */
function readOption<T>(name: string, file: string, read: (text: string) => T): T {
  const text = readText(file);
  try {
    return read(text);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`--${name} ${file}: ${error.message}`);
  }
}

/** @throws {UsageError} */
export function readRoot(file: string): string {
  const text = readText(file);
  try {
    parsePem(text);
  } catch {
    throw new UsageError(`--allow-simulated ${file}: not a PEM certificate`);
  }
  return text;
}
