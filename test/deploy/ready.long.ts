// deploy/ready/ready.sh with a sidecar whose GPU is simulated, and an nvidia-smi that keeps the ready state in a file.
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AttesterError } from '../../sidecar/common/attester.ts';
import { eventually, type Folder, startSidecar, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startCommand } from '../support/process.ts';

/** Each attestation that is asked for starts Node twice, which takes seconds on a machine that has other things to do. */
const PATIENCE_MS = 30_000;

let folder: Folder;
let ends: (() => unknown)[];
const smi = (name: string) => join(folder.path, 'smi', name);
const isReady = () => existsSync(smi('ready'));

beforeEach(() => {
  folder = temporaryFolder();
  ends = [() => folder.remove()];
  mkdirSync(smi('bin'), { recursive: true });
  copyFileSync(new URL('nvidia-smi.sh', import.meta.url), smi('bin/nvidia-smi'));
});
afterEach(async () => {
  for (const end of ends.reverse()) await end();
});

function start(env: Record<string, string> = {}, ...args: string[]): RunningProcess {
  const path = `${smi('bin')}:${process.execPath.replace(/\/[^/]*$/, '')}:/usr/bin:/bin`;
  const running = startCommand('deploy/ready/ready.sh', args, {
    PATH: path,
    SMI: join(folder.path, 'smi'),
    ATTESTER: 'simulated',
    SIDECAR_SOCKET: join(folder.path, 'sidecar.sock'),
    READY_WAIT_S: '1',
    READY_USER: '',
    ...env,
  });
  ends.push(() => running.kill('SIGKILL'));
  return running;
}

/** Exit code, whether the GPUs are ready, and what was printed. */
async function run(env: Record<string, string> = {}, ...args: string[]) {
  const running = start(env, ...args);
  const { code } = await running.exited;
  return { code, ready: isReady(), words: running.output() };
}

async function sidecar(options: Parameters<typeof startSidecar>[1] = {}) {
  const running = await startSidecar(folder, options);
  ends.push(() => running.close());
}

/** A sidecar that is up and says that reference values cannot be fetched. */
const servicesAway = () => {
  const unavailable = new AttesterError('appraisal_failed', 'rim_unreachable: no answer', true);
  return sidecar({ unavailable });
};

describe('ready.sh', () => {
  it('sets the GPUs ready after an attestation that verifies', async () => {
    await sidecar();
    const { code, ready, words } = await run({ READY_WAIT_S: '30' });
    expect([code, ready]).toEqual([0, true]);
    expect(words).toContain('ok    trial ');
    expect(words).toMatch(/^ready: the GPUs accept work: an attestation verifies$/m);
  });

  it('waits for a sidecar that comes later', async () => {
    const running = start({ READY_WAIT_S: '30' });
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(isReady()).toBe(false);
    await sidecar();
    expect(await running.exited).toMatchObject({ code: 0 });
    expect(isReady()).toBe(true);
  });

  it.each([
    ['there is no sidecar', async () => {}, /^not reachable: ENOENT$/m],
    ['the sidecar cannot attest', servicesAway, /did not attest: appraisal_failed: rim_unreachable/],
  ])('leaves them as they are, with the reason, while %s', async (_, arrange, reason) => {
    await arrange();
    const { code, ready, words } = await run();
    expect([code, ready]).toEqual([1, false]);
    expect(words).toMatch(reason);
    expect(words).toMatch(/^ready: the GPUs stay as they are and accept no work/m);
    expect(readFileSync(smi('calls'), 'utf8')).not.toContain('-srs');
  });

  it.each([
    ['there is no sidecar', async () => {}],
    ['the sidecar cannot attest', servicesAway],
  ])(
    'sets them ready, and says loudly that nothing attested, where the operator allowed it and %s',
    async (_, arrange) => {
      await arrange();
      const { code, ready, words } = await run({ READY_WITHOUT_ATTESTATION: '1' });
      expect([code, ready]).toEqual([0, true]);
      expect(words).toMatch(/^ready: WARNING: .* UNATTESTED/m);
    },
  );

  it('takes no attestation of a simulated GPU where a real one was asked for', async () => {
    await sidecar();
    const { code, ready, words } = await run({ ATTESTER: 'nras' });
    expect([code, ready]).toEqual([1, false]);
    expect(words).toContain('its GPU is simulated');
  });

  it('asks for nothing where they are ready already', async () => {
    writeFileSync(smi('ready'), '');
    expect(await run()).toMatchObject({ code: 0, words: 'ready: the GPUs accept work already\n' });
  });

  it.each([
    ['refuse', /Insufficient Permissions\nready: .* failed: is this root/],
    ['deaf', /and says: Confidential Compute GPUs Ready state: not-ready/],
  ])('fails with words when nvidia-smi is one to %s', async (name, words) => {
    await sidecar();
    writeFileSync(smi(name), '');
    expect(await run({ READY_WAIT_S: '30' })).toMatchObject({ code: 1, words: expect.stringMatching(words) });
  });

  it(
    'sets them ready again with --keep, and ends when told to',
    async () => {
      await sidecar();
      const running = start({ READY_WAIT_S: '30', READY_EVERY_S: '1' }, '--keep');
      await eventually(() => running.output().includes('ready: the GPUs accept work: '), PATIENCE_MS);
      rmSync(smi('ready'));
      await eventually(isReady, PATIENCE_MS);
      expect(running.output()).toContain('ready: the GPUs accept no work any more');
      expect(await running.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    },
    3 * PATIENCE_MS,
  );

  it('says what is wrong without nvidia-smi', async () => {
    rmSync(smi('bin/nvidia-smi'));
    expect(await run()).toMatchObject({ code: 1, words: expect.stringMatching(/^ready: there is no nvidia-smi/) });
  });

  it.each([
    [{ READY_WAIT_S: '2m' }, [], "READY_WAIT_S must be a number of seconds, and is '2m'"],
    [{ READY_EVERY_S: '0' }, [], 'READY_EVERY_S must be 1 or more'],
    [{ READY_EVERY_S: '-1' }, [], "READY_EVERY_S must be a number of seconds, and is '-1'"],
    [{ READY_WITHOUT_ATTESTATION: 'yes' }, [], "READY_WITHOUT_ATTESTATION must be 1, 0 or empty, and is 'yes'"],
    [{ READY_USER: 'nobody' }, [], "READY_USER must be USER:GROUP, and is 'nobody'"],
    [{}, ['--forever'], "--keep is the only argument, and these are '--forever'"],
  ])('refuses %j %j', async (env, args, words) => {
    expect(await run(env, ...args)).toEqual({ code: 2, ready: false, words: `ready: ${words}\n` });
  });

  it.skipIf(process.getuid?.() !== 0)('asks as the user that it is told, and not as root', async () => {
    await sidecar();
    chmodSync(folder.path, 0o711);
    const { code, words } = await run({ READY_USER: '65534:65534' });
    // The socket is its owner's and its group's alone.
    expect([code, words]).toEqual([1, expect.stringContaining('not reachable: EACCES')]);
  });
});
