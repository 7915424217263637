import { readFileSync } from 'node:fs';
import { afterAll, describe, expect, inject, it } from 'vitest';
import { eventually } from '../support/harness.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const FILES = ['-f', 'compose.yaml', '-f', 'test/containers/ready.yaml'];
const WITH_ATTESTATION = { READY_WAIT_S: '30' };

describe.skipIf('missing' in made)('`ready` of compose.yaml', () => {
  const stage = stageOf(made as Made);
  const name = stage.container('ready');
  const up = async (variables: Readonly<Record<string, string>>) => {
    const { code, stderr } = await stage.composeWith(
      variables,
      ...FILES,
      'up',
      '--detach',
      '--no-build',
      '--no-deps',
      'ready',
    );
    expect([code, code === 0 ? '' : stderr]).toEqual([0, '']);
  };
  const sh = (command: string) => stage.docker('exec', name, 'sh', '-c', command);
  /** As the container's own health check sees it. */
  const isReady = async () => {
    const [, command] = JSON.parse(await stage.docker('inspect', '-f', '{{json .Config.Healthcheck.Test}}', name));
    return sh(command).then(
      () => true,
      () => false,
    );
  };
  const state = async (format: string) => (await stage.docker('inspect', '-f', format, name)).trim();
  const log = async () =>
    (await stage.composeWith({}, ...FILES, 'logs', '--no-color', '--no-log-prefix', 'ready')).stdout;

  afterAll(async () => {
    await stage.composeWith({}, ...FILES, 'rm', '--stop', '--force', '--volumes', 'ready');
    await stage.compose('up', '--detach', '--no-build', '--no-deps', 'demo-sidecar');
  });

  it('sets the GPUs ready once the sidecar has attested, and stays up', async () => {
    await up(WITH_ATTESTATION);
    await eventually(isReady, 60_000);
    expect(await log()).toMatch(/^ok {4}trial .*\n(.*\n)*ready: the GPUs accept work: an attestation verifies$/m);
    expect(await state('{{.State.Running}}')).toBe('true');
  });

  it('has three capabilities, and no root where it asks for an attestation', async () => {
    const capabilities = /^CapBnd:\s+(\w+)$/m.exec(await sh('cat /proc/self/status'))?.[1];
    // SETGID 6, SETUID 7, SYS_ADMIN 21.
    expect(Number.parseInt(capabilities ?? '', 16)).toBe(2 ** 6 + 2 ** 7 + 2 ** 21);
    const asUser =
      'setpriv --reuid 10001 --regid 10000 --clear-groups -- sh -c "id -u; grep ^CapEff /proc/self/status"';
    expect((await sh(asUser)).trim()).toMatch(/^10001\nCapEff:\s+0000000000000000$/);
  });

  it('sets them ready anew after a start of the machine, when Docker starts it again', async () => {
    await sh('rm /run/gpu/ready');
    expect(await isReady()).toBe(false);
    // Its shell, under the init: the end of the container, and not by an order of Docker's.
    const init = await state('{{.State.Pid}}');
    const [shell] = readFileSync(`/proc/${init}/task/${init}/children`, 'utf8').trim().split(' ');
    expect(Number(shell)).toBeGreaterThan(1);
    process.kill(Number(shell), 'SIGKILL');
    await eventually(isReady, 60_000);
    expect(await state('{{.HostConfig.RestartPolicy.Name}}')).toBe('unless-stopped');
  });

  it('leaves them as they are while the sidecar is away, and says so', async () => {
    await stage.compose('stop', 'demo-sidecar');
    await sh('rm /run/gpu/ready');
    // Another setting makes it anew.
    await up({ READY_WAIT_S: '2' });
    await eventually(async () => (await log()).includes('ready: the GPUs stay as they are and accept no work'), 60_000);
    expect(await log()).not.toContain('accept work:');
  });

  it('sets them ready unattested only where the operator says so', async () => {
    await up({ READY_WAIT_S: '2', READY_WITHOUT_ATTESTATION: '1' });
    await eventually(isReady, 60_000);
    expect(await log()).toMatch(/^ready: WARNING: .* UNATTESTED/m);
  });
});
