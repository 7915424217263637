// The sidecar's sessions: made at the start, renewed at half of their life, and what becomes of answers while there is none.
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { readStatement } from '../../../proto/attestation/statement.ts';
import { type Attester, AttesterError } from '../../../sidecar/common/attester.ts';
import { until } from '../../../sidecar/common/lock.ts';
import type { CpuCollector } from '../../../sidecar/cpu/cpu-collector.ts';
import { createSessions, SessionBusy, SessionChanged, type Sessions } from '../../../sidecar/cpu/sessions.ts';
import { appraiseSession } from '../../../verify/cpu.ts';
import { answerChecker } from '../../../verify/service.ts';
import { freshNonce, never } from '../../support/attest.ts';
import { eventually, type Folder, temporaryFolder } from '../../support/harness.ts';

type Session = NonNullable<Sessions['current']>;

const CHALLENGE = 'c0'.repeat(32);

let folder: Folder;
let attester: Attester;
let cpu: CpuCollector;
let sessions: Sessions | null = null;
const made: (Session | null)[] = [];
const failures: AttesterError[] = [];

beforeEach(async () => {
  folder = temporaryFolder();
  attester = await createSimulatedAttester({ rootDir: `${folder.path}/root` });
  cpu = await createSimulatedCpu({ type: 'TDX', rootDir: `${folder.path}/root` });
  made.length = 0;
  failures.length = 0;
});
afterEach(() => {
  sessions?.close();
  folder.remove();
});

type Options = Parameters<typeof createSessions>[0];

async function start(options: Partial<Options> = {}): Promise<Sessions> {
  sessions = createSessions({
    collector: cpu,
    required: true,
    attest: (nonce, signal) => attester.attest(nonce, signal),
    onSession: (session) => made.push(session),
    onFailure: (error) => failures.push(error),
    simulatedRoot: () => attester.simulated?.root ?? null,
    ...options,
  });
  await sessions.ready;
  return sessions;
}

const idOf = (statement: string) => createHash('sha256').update(statement).digest('hex');

/** Signs an answer and checks the signature as a verifier does. */
async function signed(by: Sessions, of: Attester = attester) {
  const nonce = freshNonce();
  const { evidence } = await of.attest(nonce, never);
  const { statement } = by.current as Session;
  const signature = await by.signerIn(idOf(statement))?.(nonce, evidence);
  if (signature == null) return null;
  const check = await answerChecker(statement, evidence);
  await check(signature.signature, nonce);
  return signature;
}

const whole = ({ cpu: member, gpu }: Session) => ({ ...JSON.parse(member), gpu: JSON.parse(gpu) });
const roots = () => (attester.simulated?.root ?? '') + (cpu.simulated?.root ?? '');

/** A collector that does what `how` says before it collects. */
const withCollect = (how: (collect: CpuCollector['collect']) => CpuCollector['collect']): CpuCollector => ({
  ...cpu,
  collect: how(cpu.collect),
});

describe('a session', () => {
  it.each(['SEV_SNP', 'TDX'] as const)('verifies, and its key signs answers: %s', async (type) => {
    cpu = await createSimulatedCpu({ type, rootDir: `${folder.path}/root` });
    const { current } = await start({ collector: cpu });
    const report = await appraiseSession(whole(current as Session), { simulatedRoot: roots() });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report).toMatchObject({ valid: true, session: { cpu: { type } } });
    const { session } = (await signed(sessions as Sessions)) ?? {};
    expect(session).toBe(idOf((current as Session).statement));
    expect(made).toHaveLength(1);
  });

  it('holds for an hour, and for answers that were complete before it was made', async () => {
    const { not_before, not_after } = readStatement(((await start()).current as Session).statement);
    const now = Date.now() / 1000;
    expect(not_after - not_before).toBe(3600);
    expect(now - not_before).toBeGreaterThanOrEqual(299);
    expect(not_after).toBeGreaterThan(now + 3000);
  });

  it('names the keys that a gateway can open, at once where the current one names none of them', async () => {
    const running = await start();
    const hpkeOf = (session: Session | null) => readStatement((session as Session).statement).hpke;
    expect(hpkeOf(running.current)).toBeNull();
    running.setKeys(['AAAA']);
    await eventually(() => made.length === 2);
    expect(hpkeOf(running.current)).toBe('AAAA');
    // Keys for the session to come are no reason for one now.
    running.setKeys(['BBBB', 'AAAA']);
    expect(hpkeOf(await running.challenged(CHALLENGE, never))).toBe('AAAA');
    expect(made).toHaveLength(2);
    // A gateway that was restarted.
    running.setKeys(['CCCC']);
    await eventually(() => made.length === 3);
    expect(hpkeOf(running.current)).toBe('CCCC');
    expect((await appraiseSession(whole(running.current as Session), { simulatedRoot: roots() })).valid).toBe(true);
  });

  it('is made again where keys came while it was being made', async () => {
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    let collections = 0;
    const collector = withCollect((collect) => async (...args) => {
      if (++collections === 1) await held;
      return collect(...args);
    });
    const starting = start({ collector });
    await eventually(() => collections === 1);
    (sessions as Sessions).setKeys(['AAAA']);
    release();
    await starting;
    await eventually(() => made.length === 2);
    expect(readStatement((made[1] as Session).statement).hpke).toBe('AAAA');
  });

  it('is renewed with a new key at half of its life; what the old one signed stays right', async () => {
    // A second of life beyond the margin before it, which a clock that stands still does not use up.
    const now_ms = Date.now();
    const running = await start({ life_s: 301, now_ms: () => now_ms });
    const first = running.current as Session;
    await signed(running);
    const begun = running.signerIn(idOf(first.statement));
    await eventually(() => made.length >= 3);
    for (const other of [null, idOf(first.statement), 'ab'.repeat(32)])
      expect(() => running.signerIn(other)).toThrow(SessionChanged);
    const { evidence } = await attester.attest(freshNonce(), never);
    expect(await begun?.(freshNonce(), evidence)).toMatchObject({ session: idOf(first.statement) });
    const statements = made.map((session) => (session as Session).statement);
    expect(new Set(statements.map((text) => readStatement(text).key)).size).toBe(made.length);
    expect(failures).toEqual([]);
    const report = await appraiseSession(whole(first), { simulatedRoot: roots() });
    expect(report.checks.find(({ name }) => name === 'cpu_answer')).toBeUndefined();
    await signed(running);
  });

  it("keeps its devices' boot ROM keys, and signs no answer of another device", async () => {
    const running = await start();
    // The device was replaced, and the session does not know it yet.
    const other = await createSimulatedAttester({ rootDir: `${folder.path}/root` });
    attester = other;
    await expect(signed(running, other)).rejects.toMatchObject({ reason: 'cpu_unavailable', retryable: true });
    await eventually(() => made.length === 2);
    await signed(running);
    expect(failures.map(({ message }) => message)).toEqual(['cpu_unavailable: the devices have changed']);
  });
});

describe('without a session', () => {
  const broken = () => new AttesterError('collection_failed', 'broken', true, { reason: 'cpu_unavailable' });

  it('nothing is signed where one is required, with the reason', async () => {
    const collector = withCollect(() => async () => {
      throw broken();
    });
    const running = await start({ collector });
    expect(running.current).toBeNull();
    expect(running.unavailable).toEqual({ code: 'collection_failed', message: 'cpu_unavailable: broken' });
    expect(() => running.signerIn(null)).toThrow('broken');
    await expect(running.challenged(CHALLENGE, never)).rejects.toThrow('broken');
    expect(made).toEqual([null]);
  });

  it('answers go out without where none is required', async () => {
    const collector = withCollect(() => async () => {
      throw broken();
    });
    const running = await start({ collector, required: false });
    expect(running.unavailable).toBeNull();
    expect(running.signerIn(null)).toBeNull();
    expect(() => running.signerIn('ab'.repeat(32))).toThrow(SessionChanged);
  });

  it('the next attempt makes one', async () => {
    let calls = 0;
    const collector = withCollect((collect) => async (data, signal) => {
      if (++calls === 1) throw broken();
      return collect(data, signal);
    });
    const running = await start({ collector });
    expect(running.unavailable).not.toBeNull();
    await eventually(() => running.current !== null);
    expect(running.unavailable).toBeNull();
    expect(made).toHaveLength(2);
    await signed(running);
  });

  it.each([
    ['over other data', (report: Buffer) => void report.writeUInt8((report[568] ?? 0) ^ 1, 568), /^cpu_refused/],
    ['cut off', (_: Buffer) => Buffer.alloc(100), /^cpu_refused/],
  ])('a report %s is refused', async (_, edit, message) => {
    const collector = withCollect((collect) => async (data, signal) => {
      const evidence = await collect(data, signal);
      const report = Buffer.from(evidence.report, 'base64');
      return { ...evidence, report: (edit(report) ?? report).toString('base64') };
    });
    const running = await start({ collector });
    expect(running.current).toBeNull();
    expect(failures[0]?.message).toMatch(message);
    expect(failures[0]).toMatchObject({ code: 'appraisal_failed', reason: 'cpu_refused' });
  });

  it('an error that no collector should throw is told without its text', async () => {
    const collector = withCollect(() => async () => {
      throw new Error('secret');
    });
    await start({ collector });
    expect(failures[0]?.message).toContain('cpu_unavailable');
    expect(failures[0]?.message).not.toContain('secret');
  });
});

describe('a session with a challenge', () => {
  it('holds it, under the key of the current one, and is made once in a minute', async () => {
    let now_ms = Date.now();
    const running = await start({ now_ms: () => now_ms });
    const [one, again] = [await running.challenged(CHALLENGE, never), await running.challenged(CHALLENGE, never)];
    expect(again).toBe(one);
    const statement = readStatement(one.statement);
    expect(statement.challenge).toBe(CHALLENGE);
    expect(statement.key).toBe(readStatement((running.current as Session).statement).key);
    const options = { simulatedRoot: roots(), expected: { challenge: CHALLENGE } };
    expect(await appraiseSession(whole(one), options)).toMatchObject({ valid: true });
    now_ms += 60_001;
    expect(await running.challenged(CHALLENGE, never)).not.toBe(one);
    expect(made).toHaveLength(1);
  });

  it('is made alone: another one at that time is told to come again', async () => {
    let release = () => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    let calls = 0;
    const collector = withCollect((collect) => async (data, signal) => {
      if (++calls > 1) await gate;
      return collect(data, signal);
    });
    const running = await start({ collector });
    const first = running.challenged(CHALLENGE, never);
    const same = running.challenged(CHALLENGE, never);
    await expect(running.challenged('d0'.repeat(32), never)).rejects.toThrow(SessionBusy);
    release();
    expect(await same).toBe(await first);
    expect(readStatement((await running.challenged('d0'.repeat(32), never)).statement).challenge).toBe('d0'.repeat(32));
  });

  it('is made for those who stay when one leaves', async () => {
    const { promise: gate, resolve: release } = Promise.withResolvers<void>();
    let calls = 0;
    const collector = withCollect((collect) => async (data, signal) => {
      if (++calls > 1) await until(gate, signal);
      return collect(data, signal);
    });
    const running = await start({ collector });
    const leaver = new AbortController();
    const leaves = running.challenged(CHALLENGE, leaver.signal);
    const stays = running.challenged(CHALLENGE, never);
    await eventually(() => calls === 2);
    leaver.abort(new Error('the gateway left'));
    await expect(leaves).rejects.toThrow('the gateway left');
    release();
    expect(readStatement((await stays).statement).challenge).toBe(CHALLENGE);
    await expect(running.challenged(CHALLENGE, leaver.signal)).rejects.toThrow('the gateway left');
  });

  it('that failed is made again', async () => {
    let calls = 0;
    const collector = withCollect((collect) => async (data, signal) => {
      if (++calls === 2) throw new AttesterError('collection_failed', 'once', true);
      return collect(data, signal);
    });
    const running = await start({ collector });
    await expect(running.challenged(CHALLENGE, never)).rejects.toThrow('once');
    expect(readStatement((await running.challenged(CHALLENGE, never)).statement).challenge).toBe(CHALLENGE);
  });
});
