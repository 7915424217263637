// The circuit breaker of the store: nobody waits long for it, and it is asked again.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type Client, createBreaker } from '../../../gateway/base/store-connection.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const CLIENT = {} as Client;

/** A store that answers after `delay_ms`, and counts what it was asked. */
function slowStore() {
  const store = { delay_ms: 0, asked: 0 };
  const breaker = createBreaker({
    run: async (command) => {
      store.asked++;
      await new Promise((resolve) => setTimeout(resolve, store.delay_ms));
      return command(CLIENT);
    },
  });
  return { store, ask: () => breaker.run(async () => 'answered').catch((error: Error) => error.message) };
}

/** The outcomes of so many commands at once, once all are known. */
async function outcomes(ask: () => Promise<string>, count: number, ms: number): Promise<string[]> {
  const asked = Promise.all(Array.from({ length: count }, ask));
  await vi.advanceTimersByTimeAsync(ms);
  return asked;
}

it('waits 150 ms for a slow store, and after three late answers not at all', async () => {
  const { store, ask } = slowStore();
  store.delay_ms = 330;
  for (let i = 0; i < 3; i++) expect(await outcomes(ask, 1, 150)).toEqual(['no answer in time']);
  expect(await outcomes(ask, 5, 0)).toEqual(Array(5).fill('the store was late'));
  expect(store.asked).toBe(3);
});

it('tries one command after a while, however many were late at once, and goes on when it is answered', async () => {
  const { store, ask } = slowStore();
  store.delay_ms = 330;
  await outcomes(ask, 100, 150);
  store.delay_ms = 0;
  await vi.advanceTimersByTimeAsync(1_300);
  const asked = store.asked;
  expect((await outcomes(ask, 10, 1)).sort()).toEqual(['answered', ...Array(9).fill('the store was late')]);
  expect(store.asked).toBe(asked + 1);
  expect(await outcomes(ask, 10, 1)).toEqual(Array(10).fill('answered'));
});

it('waits longer each time that the one command is late too', async () => {
  const { store, ask } = slowStore();
  store.delay_ms = 330;
  await outcomes(ask, 3, 150);
  await vi.advanceTimersByTimeAsync(1_300);
  expect(await outcomes(ask, 1, 150)).toEqual(['no answer in time']);
  await vi.advanceTimersByTimeAsync(1_300);
  expect(await outcomes(ask, 1, 0)).toEqual(['the store was late']);
  store.delay_ms = 0;
  await vi.advanceTimersByTimeAsync(1_300);
  expect(await outcomes(ask, 1, 1)).toEqual(['answered']);
});
