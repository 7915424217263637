// A scheduler that is closed when its test ends.
import { onTestFinished } from 'vitest';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { createScheduler, type Scheduler } from '../../../sidecar/signing/scheduler.ts';

type Options = Parameters<typeof createScheduler>[1];

/** Of an attester, or of one without devices that attests with a function. It checks nothing unless it is told to. */
export function schedule(given: Attester | Attester['attest'], options: Partial<Options> = {}): Scheduler {
  const scripted = { name: 'scripted', devices: [], simulated: null, close: async () => {} };
  const scheduler = createScheduler(typeof given === 'function' ? { ...scripted, attest: given } : given, {
    attest_queue_max: 8,
    attest_deadline_ms: 20_000,
    check: async () => {},
    onUnavailable: () => {},
    retry_ms: 5,
    trial_every_ms: 30,
    ...options,
  });
  onTestFinished(() => scheduler.close());
  return scheduler;
}
