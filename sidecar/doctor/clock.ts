// Does our clock agree with the services'? OCSP answers and certificates are valid for windows of time.
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import type { Probe } from './probe.ts';

/** No clock that is right shows an earlier time. */
const EARLIEST = Date.parse('2026-01-01T00:00:00Z');
/** A Date header has whole seconds. */
const WARN_MS = 10_000;
const FAIL_MS = 300_000;
const TODO =
  'let chrony or systemd-timesyncd set the clock (timedatectl set-ntp true); a guest may take it from its host';

export function checkClock(probes: readonly Probe[], now: Date): Finding[] {
  const here = now.toISOString();
  if (now.getTime() < EARLIEST) return [fail('clock', `the clock says ${here}`, TODO)];
  const [first, ...rest] = probes.flatMap(({ clock_ahead_ms }) => (clock_ahead_ms === null ? [] : [clock_ahead_ms]));
  if (first === undefined) return [skip('clock', `the clock says ${here}; no service told the time`)];
  // A cache between us can only make one look older: the least difference is the nearest to the truth.
  const ahead_ms = rest.reduce((a, b) => (Math.abs(b) < Math.abs(a) ? b : a), first);
  const seconds = Math.abs(Math.round(ahead_ms / 1000));
  const seen = `the clock is ${seconds} s ${ahead_ms > 0 ? 'behind' : 'ahead of'} the services`;
  if (Math.abs(ahead_ms) > FAIL_MS) return [fail('clock', seen, TODO)];
  if (Math.abs(ahead_ms) > WARN_MS) return [warn('clock', seen, TODO)];
  return [ok('clock', `the clock agrees with the services (${here})`)];
}
