import { expect, test } from 'vitest';
import { createLock } from '../../../sidecar/common/lock.ts';
import { createWaiters } from '../../../sidecar/common/waiters.ts';

const never = new AbortController().signal;

test('waiters are served in order of arrival, without those who have left', async () => {
  const waiters = createWaiters<string>();
  const leaver = new AbortController();
  const [first, left, last] = [waiters.wait(never), waiters.wait(leaver.signal), waiters.wait(never)];
  leaver.abort(new Error('left'));
  await expect(left).rejects.toThrow('left');
  expect([waiters.give('a'), waiters.give('b'), waiters.give('c')]).toEqual([true, true, false]);
  expect(await Promise.all([first, last])).toEqual(['a', 'b']);
});

test('waiters are refused together, and beyond the limit at once', async () => {
  const waiters = createWaiters<string>(2, () => new Error('full'));
  const refused = [waiters.wait(never), waiters.wait(never)].map((one) => expect(one).rejects.toThrow('closed'));
  await expect(waiters.wait(never)).rejects.toThrow('full');
  waiters.refuseAll(new Error('closed'));
  await Promise.all(refused);
  expect(waiters.count).toBe(0);
});

test('a lock goes from holder to holder, and 1,024 calls wait for it at most', async () => {
  const lock = createLock();
  const release = await lock.acquire(never);
  const waiting = Array.from({ length: 1024 }, () => lock.acquire(new AbortController().signal));
  await expect(lock.acquire(never)).rejects.toMatchObject({ reason: 'attester_stuck', retryable: true });
  release();
  for (const one of waiting) (await one)();
  expect(lock.free).toBe(true);
});
