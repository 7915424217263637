// An attester that takes long to come up, longer than a request may wait: it is made once, and the trouble keeps its name.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { unavailableAttester } from '../../../sidecar/choose.ts';
import { type Attester, AttesterError } from '../../../sidecar/common/attester.ts';
import { createScheduler } from '../../../sidecar/signing/scheduler.ts';

const NONCE = '0'.repeat(64) as Nonce;
const real: Attester = {
  name: 'nvtrust',
  devices: [{ arch: 'HOPPER', model: 'H100' }],
  simulated: null,
  attest: async () => ({ token: 't', evidence: [] }),
  close: async () => {},
};

test('who does not wait for it is let go at once, and the next one waits for the same', async () => {
  let made = 0;
  const late = unavailableAttester('nvtrust', async () => {
    made++;
    await sleep(200);
    return real;
  });
  const leaving = new AbortController();
  const left = late.attest(NONCE, leaving.signal);
  leaving.abort(new Error('left'));
  await expect(Promise.race([left, sleep(100)])).rejects.toThrow('left');
  await late.attest(NONCE, new AbortController().signal);
  expect(late.devices).toBe(real.devices);
  expect(made).toBe(1);
});

test('what failed is made again', async () => {
  let made = 0;
  const late = unavailableAttester('nvtrust', async () => {
    if (++made === 1) throw new AttesterError('collection_failed', 'no_driver: not loaded', false);
    return real;
  });
  const { signal } = new AbortController();
  await expect(late.attest(NONCE, signal)).rejects.toThrow('no_driver');
  await late.attest(NONCE, signal);
  expect(made).toBe(2);
});

test('while a trial waits for it past its deadline, the trouble is what it was', async () => {
  const trouble = new AttesterError('collection_failed', 'worker_start_timeout: no answer within 60000 ms', true);
  let made = 0;
  const late = unavailableAttester('nvtrust', async () => {
    made++;
    await sleep(3_500);
    return real;
  });
  const said: (string | undefined)[] = [];
  const scheduler = createScheduler(late, {
    attest_queue_max: 8,
    attest_deadline_ms: 300,
    check: async () => {},
    onUnavailable: (now) => said.push(now?.message),
    trial_every_ms: 20,
  });
  scheduler.failed(trouble);
  await expect.poll(() => scheduler.unavailable, { timeout: 5_000 }).toBeNull();
  scheduler.close();
  expect(made).toBe(1);
  expect(said).toEqual([trouble.message, undefined]);
});
