// Sessions with a client's challenge. Each costs a signature of every GPU, so they are made one at a time, in turns by API key.
import { setTimeout as delay } from 'node:timers/promises';
import { createPermits, OwnerLimit } from '../limits/concurrency.ts';
import { ThreadQueue, type Waiter } from '../offload/pool.ts';
import type { Session, Sidecar } from './interfaces.ts';
import { timedOut } from './sessions.ts';

/** Challenges that wait, in total. Past it, one of the owner with the most is refused. */
const MAX_WAITING = 256;
const MAX_OF_KEY = 16;
/** Several keys may have one address: all have it behind a proxy, unless CLIENT_ADDRESS_HEADER is set. */
const MAX_OF_ADDRESS = 64;
/** The longest rest after a challenge. One that took longer has mostly waited. */
const MAX_REST_MS = 5_000;

/** Returns a session that contains the challenge. @throws {ClientGone} @throws {Problem} as {@link Sidecar.challenge}, and rate_limit_exceeded */
export type Challenges = (challenge: string, waiter: Waiter, address: string) => Promise<Session>;

export function createChallenges(sidecar: Pick<Sidecar, 'challenge'>, timeout_ms: number): Challenges {
  const permits = createPermits({ max_permits: 1, max_waiting: MAX_WAITING });
  const queue = new ThreadQueue(permits, 'Too many challenges wait.');
  const ofKey = new OwnerLimit(MAX_OF_KEY, 'challenges of one API key or address');
  const ofAddress = new OwnerLimit(MAX_OF_ADDRESS, 'challenges from one address');

  async function wait(challenge: string, waiter: Waiter): Promise<Session> {
    const until_ms = performance.now() + timeout_ms;
    const { promise, resolve, reject } = Promise.withResolvers<Session>();
    const waiting = new AbortController();
    const timer = setTimeout(() => waiting.abort(timedOut()), timeout_ms);
    const make = async () => {
      const began_ms = performance.now();
      resolve(await sidecar.challenge(challenge, until_ms - began_ms));
      // The permit stays taken for as long again, so that challenges leave at least half of the GPU's time to answers.
      await delay(Math.min(performance.now() - began_ms, MAX_REST_MS), undefined, { ref: false });
    };
    queue.run(waiter, make, waiting.signal).catch(reject);
    return promise.finally(() => clearTimeout(timer));
  }

  return async (challenge, waiter, address) => {
    const leaveKey = ofKey.acquire(waiter.owner);
    try {
      const leaveAddress = ofAddress.acquire(address);
      return await wait(challenge, waiter).finally(leaveAddress);
    } finally {
      leaveKey();
    }
  };
}
