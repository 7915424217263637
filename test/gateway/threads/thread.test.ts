import { afterEach, describe, expect, it } from 'vitest';
import { Thread, ThreadEnded } from '../../../gateway/threads/thread.ts';
import { eventually } from '../../support/harness.ts';

interface Echo {
  readonly asked: number;
  readonly bytes: Uint8Array;
}

const FILE = new URL('./echo-thread.ts', import.meta.url);
const threads: Thread<string, Echo>[] = [];
const start = (idle_ms?: number) => {
  const thread = new Thread<string, Echo>(FILE, {}, idle_ms);
  threads.push(thread);
  return thread;
};
afterEach(() => Promise.all(threads.splice(0).map((thread) => thread.end())));

describe('a thread that answers questions', () => {
  it('is one for all of them, and gives each its own answer', async () => {
    const thread = start();
    const words = ['a', 'bb', 'ccc'];
    const answers = await Promise.all(words.map((word) => thread.run(word)));
    expect(answers.map(({ bytes }) => new TextDecoder().decode(bytes))).toEqual(words);
    expect(answers.map(({ asked }) => asked)).toEqual([1, 2, 3]);
  });

  it('goes on after one that threw, and tells its name alone', async () => {
    const thread = start();
    await expect(thread.run('throw')).rejects.toThrow(/^the thread threw TypeError$/);
    expect((await thread.run('next')).asked).toBe(1);
  });

  it.each(['die', 'crash'])('that ends by itself (%s) fails anybody who waits, and another follows', async (how) => {
    const thread = start();
    expect((await thread.run('first')).asked).toBe(1);
    const both = await Promise.allSettled([thread.run('hang'), thread.run(how)]);
    expect(both.map((one) => one.status === 'rejected' && one.reason instanceof ThreadEnded)).toEqual([true, true]);
    expect((await thread.run('again')).asked).toBe(1);
  });

  it('can be ended while it hangs', async () => {
    const thread = start();
    const hanging = thread.run('hang').catch((error) => error);
    await thread.end();
    expect(await hanging).toBeInstanceOf(ThreadEnded);
    expect((await thread.run('again')).asked).toBe(1);
  });

  it('ends when nothing was asked for a while, and not while something is', async () => {
    const thread = start(50);
    expect((await thread.run('first')).asked).toBe(1);
    await eventually(async () => {
      await new Promise((resolve) => setTimeout(resolve, 200));
      return (await thread.run('later')).asked === 1;
    });
    const hanging = thread.run('hang').catch((error) => error);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect((await thread.run('meanwhile')).asked).toBe(2);
    await thread.end();
    expect(await hanging).toBeInstanceOf(ThreadEnded);
  });

  it('starts once when a question is announced, and ends when none comes', async () => {
    let started = 0;
    const onWorker = () => started++;
    process.on('worker', onWorker);
    const kept = start();
    for (let i = 0; i < 3; i++) kept.warm();
    await new Promise(setImmediate);
    expect([started, (await kept.run('first')).asked, started]).toEqual([1, 1, 1]);
    const idle = start(20);
    idle.warm();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect([started, (await idle.run('late')).asked, started]).toEqual([2, 1, 3]);
    process.off('worker', onWorker);
  });
});
