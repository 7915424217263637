// What a processor's sessions bring: sealed requests that nobody has opened yet, and sessions with a challenge.
import { describe, expect, it } from 'vitest';
import { AttackStage, expectUnharmed } from './stage.ts';

const SIDECAR = { CPU_EVIDENCE: 'required' };

describe('a gateway', () => {
  it('with strangers that send half of a sealed head each, on 1,000 connections', async (context) => {
    const stage = await AttackStage.start(context, { gateway: { SEALED: 'allowed' }, sidecar: SIDECAR });
    const seen = await stage.under('half-sealed.ts', { connections: 1_000, bytes: 28_000 }, 20_000);
    expectUnharmed(seen);
    const { sent, answers } = seen.attack as { sent: number; answers: Record<string, number> };
    expect(sent).toBeGreaterThan(300);
    expect(Object.keys(answers).filter((status) => status.startsWith('5') && status !== '503')).toEqual([]);
  });

  it('with one key that asks for sessions without end: tee of another key goes on', async (context) => {
    const stage = await AttackStage.start(context, { sidecar: SIDECAR, peaceful: { tee: true } });
    const seen = await stage.under('challenges.ts', { clients: 50 }, 20_000);
    expectUnharmed(seen);
    expect(Object.keys(seen.attack as object).sort()).toEqual(['200', '429']);
  });
});
