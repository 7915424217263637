// The machine: a full disk, a socket folder that is gone, a clock that jumps, no descriptors left.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { splitRaw } from '../../proto/attestation/raw.ts';
import { CHAT, chat } from '../support/client.ts';
import { eventually, type Folder, temporaryFolder } from '../support/harness.ts';
import { Fault } from './fault.ts';
import { Stage } from './stage.ts';
import { echo, sleep } from './words.ts';

const LIBFAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1';
let stage: Stage | null = null;
let disk: Folder | null = null;
afterEach(async () => {
  await stage?.close();
  stage = null;
  if (disk === null) return;
  try {
    execFileSync('umount', [disk.path], { stdio: 'ignore' });
  } catch {
    // It was not mounted.
  }
  disk.remove();
  disk = null;
});

/** A disk of its own, so small that it is soon full. null where this user may not mount. */
function smallDisk(): string | null {
  disk = temporaryFolder();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=512k', 'tmpfs', disk.path], { stdio: 'ignore' });
    return disk.path;
  } catch {
    return null;
  }
}

/** Until there is no room for one more byte. */
function fill(file: string): void {
  for (const size of [64 * 1024, 4096, 1]) {
    try {
      for (;;) writeFileSync(file, Buffer.alloc(size), { flag: 'a' });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
  }
}

describe('the machine', () => {
  it('with a full disk for run/ and the log: nothing is lost but log lines, and they come back', async (context) => {
    const path = smallDisk();
    if (path === null) return context.skip('needs the right to mount a tmpfs: run as root');
    const log = join(path, 'gateway.log');
    stage = await Stage.start({ run: join(path, 'run'), log });
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo(100);
    fault.ask(50, { stream: true, tee: true });
    fault.ask(10, { stream: true, tee: false });
    fill(join(path, 'filler'));
    // The last page of a file may have room for a few more lines.
    const full = readFileSync(log).length + 4096;
    await fault.all();
    stage.backend.script = echo();
    fault.ask(20, { stream: false, tee: true });
    await fault.all();
    await stage.restartSidecar('SIGKILL');
    fault.ask(20, { stream: true, tee: true });
    await fault.all();
    await sleep(300);
    const lost = readFileSync(log).length;
    expect(lost).toBeLessThanOrEqual(full);
    rmSync(join(path, 'filler'));
    expect(await fault.end('disk full (run/ and log), sidecar restarted meanwhile')).toEqual({
      'stop with its proof': 70,
      'the answer with its proof': 20,
      'no tee: the stream whole': 10,
    });
    await eventually(() => readFileSync(log).length > lost, 5_000);
  });

  it('with the socket folder gone: what runs keeps its connection; a restart makes the folder anew', async (context) => {
    disk = temporaryFolder();
    const run = join(disk.path, 'run');
    stage = await Stage.start({ run, root: join(disk.path, 'root') });
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo(200);
    fault.ask(50, { stream: true, tee: true });
    rmSync(run, { recursive: true });
    await fault.all();
    fault.ask(50, { stream: true, tee: true });
    await sleep(500);
    await stage.restartSidecar('SIGKILL');
    expect(await fault.end('socket folder gone, then sidecar killed')).toEqual({ 'stop with its proof': 100 });
    expect(existsSync(join(run, 'sidecar.sock'))).toBe(true);
  });

  it.for([
    ['a day forward', '+1d'],
    ['a day back', '-1d'],
  ] as const)('with a clock that jumps %s: every stream ends with its proof', async ([words, jump], context) => {
    if (!existsSync(LIBFAKETIME)) return context.skip('needs libfaketime: apt-get install faketime');
    disk = temporaryFolder();
    const clock = join(disk.path, 'clock');
    writeFileSync(clock, '+0');
    const jumps = {
      LD_PRELOAD: LIBFAKETIME,
      FAKETIME_TIMESTAMP_FILE: clock,
      FAKETIME_NO_CACHE: '1',
      // As when a clock is set: what counts time from a start goes on.
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    };
    stage = await Stage.start({ gateway: jumps, sidecar: jumps });
    const fault = await Fault.begin(context, stage);
    stage.backend.script = echo(200);
    fault.ask(50, { stream: true, tee: true });
    fault.ask(50, { stream: false, tee: true });
    await sleep(500);
    writeFileSync(clock, jump);
    expect(await fault.end(`clock jumps ${words}`)).toEqual({
      'stop with its proof': 50,
      'the answer with its proof': 50,
    });
    // The clock did jump: what is made now says so.
    const { attestation } = (await chat(stage.url, { ...CHAT, tee: true })).json();
    expect(Math.abs(Date.now() / 1000 - splitRaw(attestation.raw).timestamp)).toBeGreaterThan(80_000);
  });

  it('with no descriptors left: what runs ends well, the others are refused, and all comes back', async (context) => {
    stage = await Stage.start();
    const fault = await Fault.begin(context, stage);
    const { pid } = stage.gateway.child;
    stage.backend.seen.length = 0;
    stage.backend.script = echo(400);
    const { backend } = stage;
    fault.ask(30, { stream: true, tee: true });
    await eventually(() => backend.seen.length === 30, 15_000);
    execFileSync('prlimit', ['--pid', String(pid), `--nofile=${stage.cost.descriptors + 6}:`]);
    fault.ask(60, { stream: true, tee: true, hang_ms: 20_000 });
    const saw = await fault.all();
    execFileSync('prlimit', ['--pid', String(pid), '--nofile=4096:']);
    stage.backend.script = echo();
    await fault.end('descriptors exhausted (prlimit)');
    expect(saw['stop with its proof']).toBeGreaterThanOrEqual(30);
    expect(saw['stop with its proof']).toBeLessThan(90);
  });
});
