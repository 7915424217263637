// A concurrency limit with a fair queue: the order in which permits are given, what a full queue does, and what another key waits.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { createPermits } from '../../../gateway/limits/concurrency.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually, type Folder, temporaryFolder } from '../../support/harness.ts';
import { bearer, type Stage, startStage } from './limits-stage.ts';

function queueOf(max_permits: number | (() => number), max_waiting: number) {
  const permits = createPermits({ max_permits, max_waiting });
  const order: string[] = [];
  const refused: string[] = [];
  const acquire = (owner: string, name: string) =>
    permits.acquire(
      owner,
      () => order.push(name),
      () => refused.push(name),
    );
  return { permits, order, refused, acquire };
}

describe('permits', () => {
  it('go round by owner, a few at a time, and who leaves gives way', () => {
    const { permits, order, acquire } = queueOf(2, 100);
    const a = ['a1', 'a2', 'a3', 'a4', 'a5'].map((name) => acquire('a', name));
    const b = ['b1', 'b2'].map((name) => acquire('b', name));
    const c = acquire('c', 'c1');
    expect(order).toEqual(['a1', 'a2']);
    expect(permits.waiting).toBe(6);
    b[0]?.(); // left while it waited
    a[0]?.();
    a[0]?.(); // twice counts once
    a[1]?.();
    expect(order).toEqual(['a1', 'a2', 'b2', 'a3']);
    a[2]?.();
    expect(order.slice(4)).toEqual(['c1']);
    for (const release of [b[1], c, a[3], a[4]]) release?.();
    expect(order.slice(5)).toEqual(['a4', 'a5']);
    expect(permits.waiting).toBe(0);
  });

  it('go first to the one who holds the fewest: one that comes into a flood waits for those that are held', () => {
    const { order, acquire } = queueOf(2, 100);
    const many = Array.from({ length: 10 }, (_, i) => acquire('many', `m${i}`));
    acquire('one', 'o1');
    acquire('one', 'o2');
    for (const release of many.slice(0, 2)) release();
    expect(order).toEqual(['m0', 'm1', 'o1', 'm2']);
  });

  it('may become more or fewer: those that wait take what there is, at the next change', () => {
    let most = 1;
    const { order, acquire } = queueOf(() => most, 100);
    const releases = ['a1', 'a2', 'a3', 'a4', 'a5', 'a6'].map((name) => acquire('a', name));
    expect(order).toEqual(['a1']);
    most = 3;
    acquire('b', 'b1');
    // Who comes later does not go before those that wait.
    expect(order).toEqual(['a1', 'a2', 'a3']);
    most = 1;
    for (const release of releases.slice(0, 2)) release();
    expect(order).toHaveLength(3);
    releases[2]?.();
    expect(order.slice(3)).toEqual(['a4']);
  });

  it('are waited for by so many: past that the latest of the one who has most in the queue is refused', () => {
    const { permits, order, refused, acquire } = queueOf(1, 3);
    const many = Array.from({ length: 5 }, (_, i) => acquire('many', `m${i}`));
    expect(refused).toEqual(['m4']);
    acquire('one', 'o1');
    expect(refused).toEqual(['m4', 'm3']);
    acquire('two', 't1');
    acquire('two', 't2');
    expect(refused).toEqual(['m4', 'm3', 'm2', 't2']);
    expect(permits.waiting).toBe(3);
    for (const release of many) release();
    expect(order).toEqual(['m0', 'm1', 'o1']);
    expect(permits.waiting).toBe(1);
  });
});

describe('a key with many tee requests', () => {
  let stage: Stage;
  let folder: Folder;
  /** In the order in which their collections began. */
  const collected: string[] = [];
  const door = Promise.withResolvers<void>();
  beforeAll(async () => {
    folder = temporaryFolder();
    const attester = await createSimulatedAttester({ rootDir: folder.path });
    stage = await startStage({
      attester: {
        ...attester,
        async attest(nonce, signal) {
          collected.push(nonce);
          await door.promise;
          return attester.attest(nonce, signal);
        },
      },
    });
  });
  afterAll(async () => {
    door.resolve();
    await stage.close();
    folder.remove();
  });

  it('makes another key wait for two of its collections at most', async () => {
    stage.service.backend.script = chatAnswer('Hello.');
    const url = await stage.gateway({}, ['many', 'one']);
    const send = async (name: string, user: number) => {
      const got = await chat(url, { ...CHAT, tee: true, user: `${name} ${user}` }, bearer(name));
      return got.json().attestation.nonce as string;
    };
    const many = Array.from({ length: 20 }, (_, i) => send('many', i));
    const queued = async (name: string, count: number) => {
      const of = () => stage.service.backend.seen.filter(({ body }) => body.includes(`"${name} `)).length;
      await eventually(() => of() === count);
      // Without tee nothing waits at all; and when these are back, those before them are in the queue.
      for (let i = 0; i < 3; i++) await chat(url, CHAT, bearer(name));
    };
    await queued('many', 20);
    expect(collected).toHaveLength(1);
    const one = send('one', 0);
    await queued('one', 1);
    expect(collected).toHaveLength(1);
    door.resolve();
    // One was being collected, and one was ready behind it.
    expect(collected.indexOf(await one)).toBe(2);
    await Promise.all(many);
    expect(collected).toHaveLength(21);
  });
});
