import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTurns } from '../../gateway/turns.ts';
import { chatAnswer } from '../backend.ts';
import { CHAT, chat } from '../client.ts';
import { bearer, type Stage, startStage } from './limits-stage.ts';

describe('turns', () => {
  it('go round by owner, a few at a time, and who leaves gives way', () => {
    const turns = createTurns(2);
    const order: string[] = [];
    const enter = (owner: string, name: string) => turns.enter(owner, () => order.push(name));
    const a = ['a1', 'a2', 'a3', 'a4', 'a5'].map((name) => enter('a', name));
    const b = ['b1', 'b2'].map((name) => enter('b', name));
    const c = enter('c', 'c1');
    expect(order).toEqual(['a1', 'a2']);
    expect(turns.waiting).toBe(6);
    b[0]?.(); // left while it waited
    a[0]?.();
    a[0]?.(); // twice counts once
    a[1]?.();
    expect(order).toEqual(['a1', 'a2', 'a3', 'b2']);
    a[2]?.();
    expect(order.slice(4)).toEqual(['c1']);
    for (const leave of [b[1], c, a[3], a[4]]) leave?.();
    expect(order.slice(5)).toEqual(['a4', 'a5']);
    expect(turns.waiting).toBe(0);
  });
});

describe('a key with many tee requests', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage({ collectionMs: 40 });
  });
  afterAll(() => stage.close());

  it('does not make another key wait for all of them', async () => {
    stage.service.backend.script = chatAnswer('Hello.');
    const url = await stage.gateway({ MAX_ATTESTATIONS_IN_FLIGHT: '2' }, ['many', 'one']);
    const ended: string[] = [];
    const send = async (name: string) => {
      const got = await chat(url, { ...CHAT, tee: true, user: String(ended.length) }, bearer(name));
      expect(got.json().attestation).toBeDefined();
      ended.push(name);
    };
    const many = Array.from({ length: 30 }, () => send('many'));
    await new Promise((resolve) => setTimeout(resolve, 200));
    await send('one');
    // Those with the sidecar, one turn of the other key, and what was done before it came.
    expect(ended.indexOf('one')).toBeLessThan(15);
    // Without tee nothing waits at all.
    const started = performance.now();
    await chat(url, CHAT, bearer('many'));
    expect(performance.now() - started).toBeLessThan(250);
    expect(ended.length).toBeLessThan(30);
    await Promise.all(many);
  });
});
