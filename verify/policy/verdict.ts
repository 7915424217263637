// The verdict in words (the level, the proven and the unproven statements), and the check of the relying party's policy.
import { MAX_LEAVES } from '../../proto/attestation/batch.ts';
import { CheckFailure, type CheckList, type Outcome, seen, skipped } from '../common/checks.ts';
import type { ReleaseClaims } from '../common/release-options.ts';
import type { CpuFindings } from '../cpu/binding.ts';
import { type DeviceClaims, leftOpen, type VerifiedDevice } from '../gpu/topology.ts';
import { type Claims, type Context, LEVELS, type Level, type TokenClaims, type VerificationReport } from './options.ts';

export interface Findings {
  readonly list: CheckList;
  readonly devices: readonly VerifiedDevice[];
  readonly token: TokenClaims | null;
  /** The kinds of the devices that NVIDIA's service passed; none where it did not pass or did not sign. */
  readonly appraised: readonly DeviceClaims['kind'][];
  readonly nonce: string | null;
  readonly batch: Claims['batch'];
  /** Unix seconds; null for bare evidence. */
  readonly timestamp: number | null;
  /** The processor beside these devices, and the sentences about it; null without one. */
  readonly cpu: CpuFindings | null;
  /** The release that the caller named; null where there is none, or its check failed. */
  readonly release: ReleaseClaims | null;
  /** The kind of data that the devices signed. */
  readonly about: 'exchange' | 'nonce' | 'session';
  readonly nvidia: Context['nvidia'];
  /** Whether raw, which the devices signed, names a session. */
  readonly namesSession: boolean;
}

export function concluded(findings: Findings): VerificationReport {
  const { list, devices, token, nonce, batch, timestamp, cpu, release } = findings;
  const valid = list.valid;
  const simulated = isSimulated(findings);
  const claims: Claims = {
    simulated,
    time: timestamp === null ? null : isoTime(timestamp),
    nonce,
    batch: batch === null ? null : { tree_size: batch.tree_size, leaf_index: batch.leaf_index },
    token,
    devices: devices.map((device) => device.claims),
    cpu: cpu?.claims ?? null,
    ...(release === null ? {} : { release }),
  };
  return {
    valid,
    incomplete: list.incomplete,
    level: valid ? levelOf(findings) : 'none',
    checks: list.checks,
    claims,
    proven: valid ? proven(findings, simulated) : [],
    not_proven: notProven(findings, simulated, valid),
  };
}

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const;

/** `2 minutes ago`, or `5 seconds ahead of this clock`. @param time {@link Claims.time} */
export function ageInWords(time: string, at: Date): string {
  const age = Math.round((at.getTime() - Date.parse(time)) / 1000);
  const [unit, length] = UNITS.find(([, seconds]) => Math.abs(age) >= seconds) ?? ['second', 1];
  const count = Math.floor(Math.abs(age) / length);
  return `${count} ${unit}${count === 1 ? '' : 's'} ${age < 0 ? 'ahead of this clock' : 'ago'}`;
}

function isoTime(seconds: number): string | null {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

const isSimulated = ({ devices, cpu }: Findings) =>
  devices.some((device) => device.simulated) || cpu?.claims?.simulated === true;

/** The level where no check fails. Without evidence it rests on the token of NVIDIA's service. */
function levelOf(findings: Findings): Level {
  if (isSimulated(findings)) return 'none';
  const { devices, appraised } = findings;
  const kinds = devices.length === 0 ? appraised : devices.map(({ claims }) => claims.kind);
  if (!kinds.includes('gpu')) return 'none';
  if (!isBound(findings)) return 'gpu';
  // The software that the caller knows, of a guest that is bound to these devices.
  return findings.cpu?.claims?.software == null ? 'gpu+cpu' : 'measured';
}

/** Whether a processor's evidence is bound to these devices, and to this response where there is one. */
const isBound = ({ list, about }: Findings) =>
  list.passed('cpu_binding') && list.passed('cpu_devices') && (about === 'session' || list.passed('cpu_answer'));

function signedWhat({ about, nonce, batch }: Findings): string {
  const exchange = 'exactly this request, this answer and this timestamp';
  if (batch !== null) {
    const many = batch.tree_size === 1 ? 'one answer' : `${batch.tree_size} answers, of which this is one`;
    return `a nonce that commits to ${many}: ${exchange}`;
  }
  if (about === 'exchange') return `the hash of ${exchange}`;
  if (about === 'session') return 'the statement of this session';
  return nonce === null ? 'the nonce beside its own evidence, not the same for all' : 'this nonce';
}

function proven(findings: Findings, simulated: boolean): string[] {
  const { list, devices, appraised, nvidia, cpu } = findings;
  const what = signedWhat(findings);
  if (simulated)
    return [`These texts are what a simulated device, under the test root that the caller named, signed: ${what}.`];
  const bound = isBound(findings);
  const statements: string[] = [];
  if (devices.length > 0)
    statements.push(
      `${named(devices, nvidia.device)} signed ${what}${bound ? '' : ', at the asking of software on its host'}.`,
    );
  statements.push(...(cpu?.words.proven ?? []));
  if (appraised.length > 0)
    statements.push(
      `NVIDIA's remote attestation service appraised evidence of the ${nounFor(appraised)} for ${what}, and said yes.`,
    );
  if (list.passed('reference_values'))
    statements.push(
      `What it measured of its firmware has the reference values that ${nvidia.rim ? 'NVIDIA signed for confidential mode' : 'were signed under the root that the caller gave'}.`,
    );
  if (list.passed('revocation')) {
    const kind = nounFor(devices.map(({ claims }) => claims.kind));
    const signers = list.passed('reference_values') ? ', and of those who signed its reference values' : '';
    statements.push(
      `Nobody revoked a certificate of the authorities between the ${kind}'s own and its root${signers}.`,
    );
  }
  if (list.passed('expected_exchange')) statements.push('What the caller holds is what was signed.');
  return statements;
}

function named(devices: readonly VerifiedDevice[], nvidia: boolean): string {
  const models = [...new Set(devices.map(({ claims }) => claims.model))].join(', ');
  const kind = nounFor(devices.map(({ claims }) => claims.kind));
  const several = devices.length > 1;
  const what = nvidia ? `genuine NVIDIA ${kind}` : kind;
  const under = nvidia ? '' : " under the root that the caller trusts in place of NVIDIA's";
  return several ? `${devices.length} ${what}s (${models})${under} each` : `A ${what} (${models})${under}`;
}

/** The word for devices of these kinds. */
function nounFor(kinds: readonly DeviceClaims['kind'][]): string {
  if (!kinds.includes('switch')) return 'GPU';
  return kinds.includes('gpu') ? 'device' : 'NVSwitch';
}

function notProven(findings: Findings, simulated: boolean, valid: boolean): string[] {
  if (!valid)
    return [findings.list.incomplete ? 'Anything: a check could not get what it needs.' : 'Anything: a check failed.'];
  const { list, devices, appraised, token, about, cpu } = findings;
  const kinds = devices.length === 0 ? appraised : devices.map(({ claims }) => claims.kind);
  const kind = nounFor(kinds);
  const missing: string[] = [];
  if (simulated)
    missing.push('Anything about hardware: the device is simulated in software, and anyone can make such a root.');
  else if (!list.passed('reference_values'))
    missing.push(
      `That the ${kind} runs the firmware that NVIDIA published, in confidential mode: its measurements were not compared.`,
    );
  if (!simulated)
    missing.push(
      list.passed('revocation')
        ? `That the ${kind}'s own certificate was not revoked: its boot ROM issued it, and no service answers for it.`
        : 'That the certificates were not revoked: nobody was asked.',
    );
  // Evidence may have been left out: no signed byte says how many GPUs there are.
  if (devices.length > 0)
    for (const { what, reason } of leftOpen(devices)) if (what !== null) missing.push(`That ${what}: ${reason}.`);
  if (about === 'exchange')
    missing.push(
      kind === 'NVSwitch'
        ? 'That a GPU computed the answer: none signed.'
        : `That this ${kind} computed the answer: it signed a hash that software on its host gave it.`,
      ...(isBound(findings)
        ? (cpu?.words.open ?? [])
        : [
            "Which model's weights ran, which nothing here shows, or what software asked.",
            ...(findings.namesSession ? ['Why no processor is shown for it: what was signed names a session.'] : []),
          ]),
      `When: the time in raw is the gateway's, and the ${kind} has no clock.`,
    );
  else if (about === 'session') missing.push(...(cpu?.words.open ?? []));
  else missing.push('What the nonce stands for: a device signs whatever it is given.');
  if (token !== null && token.signature === 'self-asserted')
    missing.push('What the token says beyond the evidence: anyone can make such a token.');
  return missing;
}

// The relying party's own policy: freshness, and checks that may not be skipped.

/** @returns words for the check's detail. @throws {CheckFailure} device_not_accepted */
function checkAccepted(devices: readonly VerifiedDevice[], accepted: readonly string[]): string {
  if (devices.length === 0)
    throw new CheckFailure('device_not_accepted', 'no device shows which one it is, and the caller accepts some only');
  for (const { identity } of devices)
    if (identity === null || !accepted.includes(identity))
      throw new CheckFailure('device_not_accepted', `the device ${identity ?? ''} is not one that the caller accepts`);
  return `${devices.length === 1 ? 'the device is' : `all ${devices.length} devices are`} the caller's`;
}

/** The tolerance between the gateway's clock and ours, by default. */
const SKEW_SECONDS = 300;

/** @throws {CheckFailure} too_old, policy_refused, device_not_accepted, release_not_shown */
export function checkPolicy(findings: Findings, { at, options }: Context): Outcome<true> {
  const { list, timestamp, batch } = findings;
  const { maxAgeSeconds = null, maxAheadSeconds = null, requiredChecks = [], minLevel = 'none' } = options.policy ?? {};
  const { maxBatch = MAX_LEAVES } = options.policy ?? {};
  const statements: string[] = [];
  if (maxAgeSeconds !== null || maxAheadSeconds !== null) {
    if (timestamp === null) throw new CheckFailure('policy_refused', 'bare evidence does not say when it was made');
    const age = Math.floor(at.getTime() / 1000) - timestamp;
    if (age < -(maxAheadSeconds ?? SKEW_SECONDS))
      throw new CheckFailure('policy_refused', `the time in raw is ${-age} seconds ahead`);
    if (maxAgeSeconds !== null && age > maxAgeSeconds)
      throw new CheckFailure('too_old', `${age} seconds old; at most ${maxAgeSeconds} are accepted`);
    statements.push(`${Math.max(0, age)} seconds old`);
  }
  if (batch !== null && batch.tree_size > maxBatch)
    throw new CheckFailure(
      'policy_refused',
      `the nonce commits to ${batch.tree_size} answers; the caller accepts ${maxBatch}`,
    );
  const { devices: accepted } = options.policy ?? {};
  if (accepted !== undefined) statements.push(checkAccepted(findings.devices, accepted));
  // The result of a check that could not run is unknown, and the report is not valid in any case.
  if (list.incomplete) return skipped('level and required checks are not known: a check could not get what it needs');
  for (const name of requiredChecks)
    if (name !== 'policy' && !list.passed(name))
      throw new CheckFailure('policy_refused', `the caller requires the check ${name}, which did not pass`);
  const { release, cpu } = findings;
  if (release !== null && !(isBound(findings) && cpu?.claims?.software?.release === release.statement_sha256))
    throw new CheckFailure('release_not_shown', 'no guest of the release that the caller named is shown');
  const level = levelOf(findings);
  if (LEVELS.indexOf(level) < LEVELS.indexOf(minLevel))
    throw new CheckFailure('policy_refused', `the level is ${level}; the caller accepts ${minLevel} or more`);
  if (minLevel !== 'none') statements.push(`level ${level}`);
  if (requiredChecks.length > 0) statements.push(`${requiredChecks.length} required checks passed`);
  return seen(statements.length > 0 ? statements.join('; ') : 'the caller asked for no more');
}
