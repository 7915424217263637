import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { type Attester, AttesterError, type Collected } from '../../../sidecar/common/attester.ts';
import { parseToken } from '../../../verify/token/token.ts';
import { never } from '../../support/attest.ts';
import { startBackend } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, startGateway, startService, startSidecar, temporaryFolder } from '../../support/harness.ts';
import { schedule } from './schedule.ts';

const nonce = (n: number) => n.toString(16).padStart(64, '0') as Nonce;
const ANSWER: Collected = { token: 't', evidence: [] };

describe('the scheduler', () => {
  it('asks the GPU once for the same raw, however many wait for it', async () => {
    let calls = 0;
    const s = schedule(async () => {
      calls++;
      await sleep(20);
      return ANSWER;
    });
    const all = await Promise.all([1, 1, 1, 2, 1].map((n) => s.attest(nonce(n), never)));
    expect(all).toHaveLength(5);
    expect(calls).toBe(2);
    await s.attest(nonce(1), never);
    expect(calls).toBe(3);
  });

  it('says where the time went: waiting, collecting, appraising as the attester tells it, and its own check', async () => {
    const s = schedule(async () => {
      await sleep(40);
      return { ...ANSWER, appraisal_ms: 15 };
    });
    const running = [s.attest(nonce(1), never), s.attest(nonce(2), never)] as const;
    const asked_ms = performance.now();
    const [first, second_queue_ms] = await Promise.all([
      running[0].then((answer) => ({ ...answer, after_ms: performance.now() - asked_ms })),
      running[1].then((answer) => answer.phases.queue_ms),
    ]);
    expect(first.phases.appraisal_ms).toBe(15);
    expect(first.phases.collection_ms).toBeGreaterThanOrEqual(24);
    // The second waits for as long as the first is worked on, and both are asked for before `asked_ms`.
    expect(second_queue_ms).toBeGreaterThan(first.phases.queue_ms);
    expect(Math.abs(second_queue_ms - first.after_ms)).toBeLessThan(first.after_ms);
    expect(first.phases.check_ms).toBeGreaterThanOrEqual(0);
  });

  it('goes on for those who stay when one leaves, and stops when the last does', async () => {
    const stopped: string[] = [];
    const s = schedule(async (one, signal) => {
      await sleep(30);
      if (signal.aborted) stopped.push(one);
      return ANSWER;
    });
    const leaver = new AbortController();
    const stays = s.attest(nonce(1), never);
    const leaves = s.attest(nonce(1), leaver.signal);
    const lastLeaver = new AbortController();
    leaver.abort(new Error('left'));
    await expect(leaves).rejects.toThrow('left');
    await expect(stays).resolves.toMatchObject(ANSWER);
    const last = s.attest(nonce(2), lastLeaver.signal);
    await sleep(5);
    lastLeaver.abort(new Error('left too'));
    await expect(last).rejects.toThrow('left too');
    await eventually(() => stopped.length === 1);
    expect(stopped).toEqual([nonce(2)]);
  });

  it('gives anybody who asks for the same raw later a whole deadline, and the first no longer one', async () => {
    let calls = 0;
    const attest = async () => {
      calls++;
      await sleep(450);
      return ANSWER;
    };
    const s = schedule(attest, { attest_deadline_ms: 300 });
    const first = s.attest(nonce(1), never).catch((error: Error) => error.name);
    await sleep(200);
    const second = s.attest(nonce(1), never);
    expect(await first).toBe('DeadlineExceeded');
    await expect(second).resolves.toMatchObject(ANSWER);
    expect(calls).toBe(1);
  });

  it('lets nobody join what has had its deadline, and begins anew only when that has ended', async () => {
    const seen: string[] = [];
    const attest: Attester['attest'] = async (_nonce, signal) => {
      seen.push('begun');
      if (seen.length > 1) return ANSWER;
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      seen.push('ended');
      throw signal.reason;
    };
    const s = schedule(attest, { attest_deadline_ms: 300 });
    const failed = (work: Promise<unknown>) => work.catch((error: Error) => error.name);
    const first = failed(s.attest(nonce(1), never));
    await sleep(150);
    const second = failed(s.attest(nonce(1), never));
    await sleep(220);
    const third = s.attest(nonce(1), never);
    expect(await Promise.all([first, second])).toEqual(['DeadlineExceeded', 'DeadlineExceeded']);
    await expect(third).resolves.toMatchObject(ANSWER);
    expect(seen).toEqual(['begun', 'ended', 'begun']);
  });

  it('asks the GPU for nobody who has left before', async () => {
    let calls = 0;
    const s = schedule(async () => {
      calls++;
      return ANSWER;
    });
    await expect(s.attest(nonce(1), AbortSignal.abort(new Error('left before')))).rejects.toThrow('left before');
    await s.attest(nonce(2), never);
    expect(calls).toBe(1);
  });

  it('tries again what passes, three times in all', async () => {
    let calls = 0;
    const s = schedule(async () => {
      calls++;
      throw new AttesterError('collection_failed', 'busy', true);
    });
    await expect(s.attest(nonce(1), never)).rejects.toThrow('busy');
    expect(calls).toBe(3);
    expect(s.unavailable).toBeNull();
  });

  it('opens on what does not pass, says so at once, and closes by itself when it is over', async () => {
    const changes: (string | null)[] = [];
    let off = true;
    let calls = 0;
    const s = schedule(
      async () => {
        calls++;
        if (off) throw new AttesterError('collection_failed', 'confidential computing is off', false);
        return ANSWER;
      },
      { onUnavailable: (trouble) => changes.push(trouble?.message ?? null) },
    );
    await expect(s.attest(nonce(1), never)).rejects.toThrow('is off');
    const asked = calls;
    await expect(s.attest(nonce(2), never)).rejects.toThrow('is off');
    expect(calls).toBe(asked);
    await eventually(() => calls > asked + 1, 1_000);
    off = false;
    await eventually(() => s.unavailable === null, 1_000);
    await expect(s.attest(nonce(3), never)).resolves.toMatchObject(ANSWER);
    expect(changes).toEqual(['confidential computing is off', null]);
  });

  it('takes one wrong appraisal for one, and three in a row for trouble', async () => {
    const s = schedule(async () => {
      throw new AttesterError('appraisal_failed', 'measurement mismatch', false);
    });
    for (let n = 0; n < 3; n++) {
      expect(s.unavailable).toBeNull();
      await expect(s.attest(nonce(n), never)).rejects.toThrow('measurement');
    }
    expect(s.unavailable).toEqual({ code: 'appraisal_failed', message: 'measurement mismatch' });
  });
});

describe('trouble at the GPU', () => {
  it('is in /health and in the error, before the backend is asked', async () => {
    const folder = temporaryFolder();
    const backend = await startBackend();
    const real = await createSimulatedAttester({ rootDir: `${folder.path}/root` });
    let off = true;
    const attester: Attester = {
      ...real,
      attest: async (one, signal) => {
        if (off) throw new AttesterError('collection_failed', 'confidential computing is off', false);
        return real.attest(one, signal);
      },
    };
    const sidecar = await startSidecar(folder, { attester });
    const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
    const first = await chat(gateway.url, { ...CHAT, tee: true });
    expect([first.status, first.json().error.code]).toEqual([503, 'attestation_unavailable']);
    backend.seen.length = 0;
    const second = await chat(gateway.url, { ...CHAT, tee: true });
    expect([second.status, second.json().error.message]).toEqual([
      503,
      expect.stringContaining('confidential computing is off'),
    ]);
    expect(backend.seen).toHaveLength(0);
    expect((await chat(gateway.url, CHAT)).status).toBe(200);
    const health = await ask(`${gateway.url}/health`, { method: 'GET' });
    expect([health.status, health.json().status, health.json().sidecar.trouble]).toEqual([
      200,
      'degraded',
      { code: 'collection_failed', message: 'confidential computing is off' },
    ]);
    off = false;
    await gateway.close();
    await sidecar.close();
    await backend.close();
    folder.remove();
  });
});

describe('two hundred tee requests at once on one GPU', () => {
  it('are all answered, each with a proof of its own', async () => {
    const service = await startService({}, { collectionMs: 10 });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, n) => chat(service.gateway.url, { ...CHAT, tee: true, seed: n })),
    );
    const nonces = new Set<string>();
    for (const [n, answer] of answers.entries()) {
      expect(answer.status).toBe(200);
      const { raw, nonce, token } = answer.json().attestation;
      expect(JSON.parse(raw).request.seed).toBe(n);
      expect(createHash('sha256').update(raw).digest('hex')).toBe(nonce);
      expect(parseToken(token).nonces.every((one) => one === nonce)).toBe(true);
      nonces.add(nonce);
    }
    expect(nonces.size).toBe(200);
    await service.close();
  });
});

describe('an attester that does not hear that it should stop', () => {
  it('holds up nobody after it, and is trouble', async () => {
    let calls = 0;
    const s = schedule(() => (calls++ === 0 ? new Promise(() => {}) : Promise.resolve(ANSWER)), {
      attest_deadline_ms: 100,
      trial_every_ms: 50,
    });
    await expect(s.attest(nonce(1), never)).rejects.toThrow('not done in time');
    await eventually(() => s.unavailable !== null, 4_000);
    await eventually(() => s.unavailable === null, 4_000);
    await expect(s.attest(nonce(2), never)).resolves.toMatchObject(ANSWER);
  });
});

describe('an attester that brings nothing for as long as requests wait', () => {
  const hears = (signal: AbortSignal) =>
    new Promise<Collected>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));

  it('is trouble after three of them, until it brings something again', async () => {
    let hangs = true;
    const s = schedule((_, signal) => (hangs ? hears(signal) : Promise.resolve(ANSWER)), { attest_deadline_ms: 60 });
    for (const n of [1, 2, 3]) {
      expect(s.unavailable).toBeNull();
      await expect(s.attest(nonce(n), never)).rejects.toThrow('not done in time');
    }
    await eventually(() => s.unavailable !== null);
    await expect(s.attest(nonce(4), never)).rejects.toThrow('attester_stuck: the attester does not answer');
    hangs = false;
    await eventually(() => s.unavailable === null);
    await expect(s.attest(nonce(5), never)).resolves.toMatchObject(ANSWER);
  });

  it('is named by what it said last', async () => {
    const timeout = new AttesterError('collection_failed', 'nvml_timeout: a device did not answer', true);
    let calls = 0;
    const s = schedule((_, signal) => (calls++ % 2 === 0 ? Promise.reject(timeout) : hears(signal)), {
      attest_deadline_ms: 60,
    });
    for (const n of [1, 2, 3]) await expect(s.attest(nonce(n), never)).rejects.toThrow('not done in time');
    await eventually(() => s.unavailable?.message === timeout.message);
  });

  it('is none where it was busy with others', async () => {
    const s = schedule(
      async () => {
        await sleep(40);
        return ANSWER;
      },
      { attest_deadline_ms: 60 },
    );
    const all = await Promise.allSettled([1, 2, 3, 4, 5, 6].map((n) => s.attest(nonce(n), never)));
    expect(all.filter(({ status }) => status === 'rejected').length).toBeGreaterThan(2);
    expect(s.unavailable).toBeNull();
  });
});
