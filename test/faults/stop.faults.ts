// The gateway told to stop, and killed.
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, it, type TestContext } from 'vitest';
import { eventually } from '../support/harness.ts';
import { Fault, NOTHING_LOST, STREAMS } from './fault.ts';
import { Stage, type StageOptions } from './stage.ts';

let stage: Stage;
afterEach(() => stage?.close());

async function underStreams(context: TestContext, pause_ms: number, options: StageOptions = {}) {
  stage = await Stage.start(options);
  return Fault.underStreams(context, stage, pause_ms);
}

describe('a gateway with a hundred open tee streams', () => {
  it('told to stop: every stream ends with its proof, then it ends', async (context) => {
    const fault = await underStreams(context, 300);
    stage.gateway.child.kill('SIGTERM');
    await eventually(async () => (await stage.health()) === 'unreachable', 10_000);
    fault.ask(10, { stream: true, tee: true });
    expect(await fault.end('gateway told to stop (SIGTERM) mid-stream', 'has ended')).toEqual({
      ...NOTHING_LOST,
      'no answer: ECONNREFUSED': 10,
    });
    expect(await stage.gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('told to stop, the sidecar killed meanwhile: every stream ends with its proof', async (context) => {
    const fault = await underStreams(context, 300);
    stage.gateway.child.kill('SIGTERM');
    await stage.restartSidecar('SIGKILL');
    expect(await fault.end('gateway told to stop, sidecar killed and started again', 'has ended')).toEqual(
      NOTHING_LOST,
    );
    expect(await stage.gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('told to stop with no time for it: streams are cut in words, never with "stop"', async (context) => {
    const fault = await underStreams(context, 2_000, { gateway: { DRAIN_MS: '500' } });
    stage.gateway.child.kill('SIGTERM');
    expect(await fault.end('gateway told to stop, past DRAIN_MS', 'has ended')).toEqual({
      'deltas, then error overloaded': STREAMS,
      'no tee: deltas, then error overloaded': 20,
    });
    expect((await stage.gateway.exited).code).toBe(0);
  });

  it('whose log reader is gone, told to stop: it ends, and nothing is lost', async (context) => {
    const fault = await underStreams(context, 300);
    stage.gateway.child.stdout?.destroy();
    stage.gateway.child.kill('SIGTERM');
    expect(await fault.end("gateway's log reader gone, then SIGTERM", 'has ended')).toEqual(NOTHING_LOST);
    expect(await stage.gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('killed: streams break off, none with "stop"', async (context) => {
    const fault = await underStreams(context, 300);
    // The backend has seen every request; by then every client has read something too, which a reset connection would throw away.
    await delay(1_000);
    await stage.gateway.kill('SIGKILL');
    expect(await fault.end('gateway killed (SIGKILL)', 'has ended')).toEqual({
      'deltas, then cut': STREAMS,
      'no tee: deltas, then cut': 20,
    });
  });
});
