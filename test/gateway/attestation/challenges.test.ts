// Sessions with a client's challenge: they are made one at a time, in turns, and neither a key nor an address that floods keeps others out.
import { EventEmitter } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import type { Session } from '../../../gateway/attestation/interfaces.ts';
import { createChallenges } from '../../../gateway/attestation/sessions.ts';
import { chatAnswer } from '../../support/backend.ts';
import { type Answer, ask, CHAT, chat } from '../../support/client.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { bearer, type Stage, startStage } from '../limits/limits-stage.ts';

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Challenges at a sidecar that takes `ms` for each, with the times at which it began them. */
function stageOf(ms: number, timeout_ms = 5_000) {
  const begun: { challenge: string; at_ms: number }[] = [];
  const challenges = createChallenges(
    {
      async challenge(challenge) {
        begun.push({ challenge, at_ms: performance.now() });
        await sleep(ms);
        return { id: challenge } as Session;
      },
    },
    timeout_ms,
  );
  const send = (owner: string, challenge: string, address = owner) => {
    const outgoing = Object.assign(new EventEmitter(), { destroyed: false });
    const made = challenges(challenge, { owner, outgoing }, address).then(
      ({ id }) => id,
      (error) => error.code ?? error.name,
    );
    return { made, leave: () => outgoing.emit('close') };
  };
  return { begun, send, names: () => begun.map(({ challenge }) => challenge) };
}

describe('challenges', () => {
  it('take turns by owner, and the permit rests after each for as long as it took', async () => {
    const { begun, send, names } = stageOf(60);
    const all = ['a1', 'a2', 'a3', 'b1'].map((name) => send(name.slice(0, 1), name).made);
    expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'b1']);
    expect(names()).toEqual(['a1', 'a2', 'b1', 'a3']);
    for (const [i, { at_ms }] of begun.entries())
      if (i > 0) expect(at_ms - (begun[i - 1]?.at_ms ?? 0)).toBeGreaterThan(2 * 60 - 10);
  });

  it('leave the queue with their client, and after the timeout', async () => {
    const { send, names } = stageOf(300, 200);
    const first = send('a', 'a1');
    const late = send('a', 'a2');
    const left = send('b', 'b1');
    left.leave();
    expect(await left.made).toBe('ClientGone');
    expect(await late.made).toBe('attestation_unavailable');
    expect(await first.made).toBe('a1');
    expect(names()).toEqual(['a1']);
    await sleep(350);
    expect(await send('b', 'b2').made).toBe('b2');
  });

  it('are so many of one owner and of one address: past that they are refused, and others are not', async () => {
    const { send } = stageOf(1);
    const own = Array.from({ length: 20 }, (_, i) => send('a', `a${i}`, 'x').made);
    const others = Array.from({ length: 60 }, (_, i) => send(`key-${i}`, `o${i}`, 'x').made);
    const elsewhere = send('b', 'b1', 'y').made;
    const refused = async (of: Promise<string>[]) =>
      (await Promise.all(of)).filter((code) => code === 'rate_limit_exceeded').length;
    expect(await refused(own)).toBe(20 - 16);
    expect(await refused(others)).toBe(60 - 48);
    expect(await elsewhere).toBe('b1');
    expect(await send('a', 'a99', 'x').made).toBe('a99');
  });
});

describe('a flood of challenges', () => {
  let stage: Stage;
  let folder: Folder;
  /** How long the processor takes for a report. */
  let report_ms = 0;
  beforeAll(async () => {
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
    const collect: typeof collector.collect = async (...args) => {
      await sleep(report_ms);
      return collector.collect(...args);
    };
    stage = await startStage({ collectionMs: 20, cpu: { collector: { ...collector, collect }, required: true } });
    stage.service.backend.script = chatAnswer('Hello.');
  });
  afterAll(async () => {
    await stage.close();
    folder.remove();
  });

  let number = 0;
  const challenge = (url: string, headers: Record<string, string>) =>
    ask(`${url}/v1/attestation/session?challenge=${(++number).toString(16).padStart(64, '0')}`, {
      method: 'GET',
      headers,
    });

  /** 50 clients that ask again and again. Returns a function that ends them, with what they were answered. */
  function flood(url: string, headers: Record<string, string>): () => Promise<Answer[]> {
    const answers: Answer[] = [];
    let ended = false;
    const clients = Array.from({ length: 50 }, async () => {
      while (!ended) {
        answers.push(await challenge(url, headers));
        await sleep(50);
      }
    });
    return async () => {
      ended = true;
      await Promise.all(clients);
      return answers;
    };
  }

  it.each([
    ['key', { CLIENT_ADDRESS_HEADER: 'x-forwarded-for' }, ['many', 'one'], bearer('many'), bearer('one')],
    [
      'address',
      { CLIENT_ADDRESS_HEADER: 'x-forwarded-for' },
      undefined,
      { 'x-forwarded-for': '10.0.0.1' },
      { 'x-forwarded-for': '10.0.0.2' },
    ],
  ])('by one %s leaves another every challenge and every proof', async (_, env, keys, many, one) => {
    const url = await stage.gateway(env, keys);
    await chat(url, { ...CHAT, tee: true }, one);
    const end = flood(url, many);
    await sleep(200);
    for (let i = 0; i < 10; i++) {
      const began_ms = performance.now();
      expect((await challenge(url, one)).status).toBe(200);
      // Two turns of the other one, and its own.
      expect(performance.now() - began_ms).toBeLessThan(4_000);
      expect((await chat(url, { ...CHAT, tee: true }, one)).json().attestation.cpu).toBeDefined();
    }
    const answers = await end();
    const refused = answers.filter(({ status }) => status !== 200);
    expect(refused.length).toBeGreaterThan(0);
    for (const answer of refused) {
      expectError(answer, 429, 'rate_limit_exceeded');
      expect(answer.headers['retry-after']).toBe('1');
    }
    expect(answers.length).toBeGreaterThan(refused.length);
    // Nothing is left of it.
    for (const headers of [many, one]) expect((await challenge(url, headers)).status).toBe(200);
  });

  it('at another gateway of the same sidecar is waited for', async () => {
    const [url, other] = [await stage.gateway({}), await stage.gateway({})];
    await Promise.all([url, other].map((each) => chat(each, { ...CHAT, tee: true })));
    const all = await Promise.all([url, other].map((each) => challenge(each, {})));
    expect(all.map(({ status }) => status)).toEqual([200, 200]);
    expect((await chat(other, { ...CHAT, tee: true })).status).toBe(200);
  });

  it('at another gateway is not waited for beyond the timeout', async () => {
    const url = await stage.gateway({});
    const hasty = await stage.gateway({ ATTEST_TIMEOUT_MS: '1000' });
    await Promise.all([url, hasty].map((each) => chat(each, { ...CHAT, tee: true })));
    report_ms = 1_500;
    const first = challenge(url, {});
    await sleep(300);
    expectError(await challenge(hasty, {}), 503, 'overloaded');
    expect((await first).status).toBe(200);
    report_ms = 0;
    expect((await challenge(hasty, {})).status).toBe(200);
  });
});
