// The relying party's own policy: freshness, and checks that may not be skipped.
import { type CheckList, seen } from './checklist.ts';
import { CheckFailure } from './checks.ts';
import type { Context } from './context.ts';

/** Between the gateway's clock and ours, where the caller does not say. */
const SKEW_SECONDS = 300;

/** @param timestamp Unix seconds; null where nothing says when. @throws {CheckFailure} too_old, policy_refused */
export function checkPolicy(list: CheckList, timestamp: number | null, { at, options }: Context) {
  const { maxAgeSeconds = null, maxAheadSeconds = null, requiredChecks = [] } = options.policy ?? {};
  const said: string[] = [];
  if (maxAgeSeconds !== null || maxAheadSeconds !== null) {
    if (timestamp === null) throw new CheckFailure('policy_refused', 'bare evidence does not say when it was made');
    const age = Math.floor(at.getTime() / 1000) - timestamp;
    if (age < -(maxAheadSeconds ?? SKEW_SECONDS))
      throw new CheckFailure('policy_refused', `the time in raw is ${-age} seconds ahead`);
    if (maxAgeSeconds !== null && age > maxAgeSeconds)
      throw new CheckFailure('too_old', `${age} seconds old; at most ${maxAgeSeconds} are accepted`);
    said.push(`${Math.max(0, age)} seconds old`);
  }
  for (const name of requiredChecks)
    if (name !== 'policy' && !list.passed(name))
      throw new CheckFailure('policy_refused', `the caller requires the check ${name}, which did not pass`);
  if (requiredChecks.length > 0) said.push(`${requiredChecks.length} required checks passed`);
  return seen(said.length > 0 ? said.join('; ') : 'the caller asked for no more');
}
