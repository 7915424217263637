// The sidecar killed, stopped, restarted and gone for good, each under a hundred open tee streams.

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, type TestContext } from 'vitest';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { startFalseSidecar } from '../support/false-sidecar.ts';
import { Fault, NOTHING_LOST, STREAMS } from './fault.ts';
import { Stage, type StageOptions } from './stage.ts';
import { echo, sleep } from './words.ts';

let stage: Stage;
afterEach(() => stage?.close());

/** A hundred tee streams, and some that ask for no proof, which go on for a few seconds. */
async function underStreams(context: TestContext, options: StageOptions = {}, pause_ms = 400) {
  stage = await Stage.start(options);
  return Fault.underStreams(context, stage, pause_ms);
}

describe('the sidecar, under a hundred open tee streams', () => {
  it('killed and started again: every stream ends with its proof', async (context) => {
    const fault = await underStreams(context);
    await stage.restartSidecar('SIGKILL');
    expect(await fault.end('sidecar killed (SIGKILL), started again')).toEqual(NOTHING_LOST);
  });

  it('killed while it attests: what it had not answered is asked again', async (context) => {
    const fault = await underStreams(context, { sidecar: { args: ['--collection-ms', '100'] } }, 50);
    await sleep(1_500);
    await stage.restartSidecar('SIGKILL');
    expect(await fault.end('sidecar killed while it attests, started again')).toEqual(NOTHING_LOST);
  });

  it('stopped for five seconds: every stream ends with its proof', async (context) => {
    const fault = await underStreams(context);
    stage.sidecar.child.kill('SIGSTOP');
    await sleep(5_000);
    stage.sidecar.child.kill('SIGCONT');
    expect(await fault.end('sidecar stopped (SIGSTOP) for 5 s')).toEqual(NOTHING_LOST);
  });

  it('restarted every two seconds: every stream ends with its proof', async (context) => {
    const fault = await underStreams(context, {}, 1_200);
    const end_ms = performance.now() + 8_000;
    await stage.restartSidecarWhile(() => performance.now() < end_ms);
    expect(await fault.end('sidecar restarted every 2 s')).toEqual(NOTHING_LOST);
  });

  it('replaced by a false one, with proofs of something else: no client gets one, and the true one is believed again', async (context) => {
    const fault = await underStreams(context, {
      gateway: { ATTEST_TIMEOUT_MS: '2000', limits: { sidecar_wait_ms: 500 } },
    });
    await stage.sidecar.kill('SIGKILL');
    rmSync(join(stage.folder.path, 'run', 'sidecar.sock'));
    const run = { ...stage.folder, path: join(stage.folder.path, 'run') };
    const another = 'ab'.repeat(32) as Nonce;
    const impostor = await startFalseSidecar(run, {
      answer: (_honest, _nonce, twin) => twin.attest(another, new AbortController().signal),
    });
    expect(await fault.all()).toEqual({
      'deltas, then error attestation_unavailable': STREAMS,
      'no tee: the stream whole': 20,
    });
    expect(impostor.seen.asked).toBeGreaterThan(0);
    await impostor.close();
    stage.backend.script = echo();
    stage.startSidecar();
    await fault.end('sidecar replaced by a false one, whose proofs are of something else');
  });

  it('gone for good: every tee stream ends in an error, never in "stop", and new ones are refused', async (context) => {
    const fault = await underStreams(context, {
      gateway: { ATTEST_TIMEOUT_MS: '2000', limits: { sidecar_wait_ms: 500 } },
    });
    await stage.sidecar.kill('SIGKILL');
    expect(await fault.all()).toEqual({
      'deltas, then error attestation_unavailable': STREAMS,
      'no tee: the stream whole': 20,
    });
    fault.ask(20, { stream: true, tee: true });
    fault.ask(20, { stream: false, tee: true });
    const saw = await fault.all();
    stage.backend.script = echo();
    stage.startSidecar();
    await fault.end('sidecar killed and not started again');
    expect(saw['503 attestation_unavailable, retry-after']).toBe(40);
  });
});
