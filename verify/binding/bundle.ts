// Bundles: what compact attestations have in common, under its own SHA-256 (docs/attestation.md §9). With its bundle a compact attestation
// becomes the whole one and is verified as that, so it can reach no level that the whole one would not.
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { isObject } from '../../proto/json.ts';
import type { Bundle, Bundles } from '../common/bundles.ts';
import { digest, isDigest, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure, type Limits, type Passed, passed } from '../common/checks.ts';
import { parseBounded } from '../common/limited.ts';
import { noDuplicates, readSessionEvidence as readDevices } from './input.ts';

/** A bundle's members. They are the same objects at each use, so that what is computed of them is computed once. */
type Contents = Pick<Attestation, 'cpu' | 'evidence'> & { readonly token?: string };

export const BUNDLE_MEMBERS: readonly string[] = ['token', 'evidence', 'cpu'];

const malformed = (message: string, cause?: unknown) => new CheckFailure('bundle_malformed', message, { cause });

const read = new WeakMap<Bundle, Contents>();

/** @throws {CheckFailure} bundle_malformed, too_large */
function readBundle(text: string, limits: Limits = {}): Contents {
  try {
    const value = parseBounded(text, limits);
    if (!isObject(value)) throw malformed('it is not a JSON object');
    noDuplicates(text);
    const other = Object.keys(value).find((name) => !BUNDLE_MEMBERS.includes(name));
    if (other !== undefined) throw malformed('it has another member');
    return readMembers(value);
  } catch (cause) {
    if (!(cause instanceof CheckFailure) || cause.code === 'too_large') throw cause;
    throw malformed(cause.message, cause);
  }
}

function readMembers({ token, evidence, cpu }: Record<string, unknown>): Contents {
  if ((token === undefined) !== (evidence === undefined) || (token ?? cpu) === undefined)
    throw malformed('a member is missing');
  if (token !== undefined && (typeof token !== 'string' || token === '')) throw malformed('token is not a string');
  if (cpu !== undefined && (!isObject(cpu) || 'signature' in cpu || typeof cpu.statement !== 'string'))
    throw malformed('cpu is not a session without a signature');
  return {
    ...(token === undefined ? {} : { token: token as string, evidence: readDevices(evidence) }),
    ...(cpu === undefined ? {} : { cpu }),
  };
}

/** A compact attestation: `token` is `''` where its bundle has it. */
interface Compact {
  readonly attestation: Attestation;
  readonly sha256: string;
}

/** @throws {CheckFailure} bundle_unavailable, bundle_mismatch, bundle_malformed */
export async function checkBundle(
  { attestation, sha256 }: Compact,
  bundles: Bundles | undefined,
  limits: Limits | undefined,
): Promise<Passed<Attestation>> {
  const bundle = (await bundles?.find(sha256)) ?? null;
  if (bundle === null)
    throw new CheckFailure('bundle_unavailable', 'the bundle that the attestation names is not to be had');
  const contents = read.get(bundle) ?? readBundle(bundle.text, limits);
  read.set(bundle, contents);
  return passed(`the bundle has ${Object.keys(contents).join(', ')}`, await whole(attestation, contents));
}

/** @throws {CheckFailure} bundle_malformed, bundle_mismatch */
async function whole(attestation: Attestation, { token, evidence, cpu }: Contents): Promise<Attestation> {
  const { raw, nonce, batch, cpu: short, ...own } = attestation;
  if ((own.token === '') === (token === undefined) || (token !== undefined && own.evidence !== undefined))
    throw malformed('token and evidence are not in exactly one of attestation and bundle');
  if ((short === undefined) !== (cpu === undefined))
    throw malformed('only one of attestation and bundle has a session');
  const members = token === undefined ? own : { token, evidence };
  const shared = { raw, nonce, ...members, ...(batch === undefined ? {} : { batch }) };
  if (short === undefined || cpu === undefined) return shared;
  const { statement_sha256, signature, ...more } = short;
  if (!isDigest(statement_sha256) || typeof signature !== 'string' || Object.keys(more).length > 0)
    throw malformed('beside a bundle, cpu has statement_sha256 and signature');
  if (toHex(await digest('SHA-256', utf8(cpu.statement as string))) !== statement_sha256)
    throw new CheckFailure('bundle_mismatch', 'the bundle is of another session');
  return { ...shared, cpu: { ...cpu, signature } };
}
