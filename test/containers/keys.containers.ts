import { chownSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, inject, it } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const PORT = '8082';

describe.skipIf('missing' in made)('keys for the gateway of profile node', () => {
  const { address } = made as Made;
  const stage = stageOf(made as Made);
  const folder = mkdtempSync('/tmp/csk-');
  const file = join(folder, 'api-keys');
  const keys = (...args: string[]) =>
    stage.composeWith({ API_KEYS_FILE: file }, 'run', '--rm', '-T', '--no-deps', 'keys', ...args);
  const gateway = (variables: Readonly<Record<string, string>>, ...args: string[]) =>
    stage.composeWith({ PORT, COMPOSE_PROFILES: 'node', ...variables }, ...args);
  const up = ['up', '--detach', '--no-build', '--no-deps', '--force-recreate', 'gateway'];
  const models = (key: string) =>
    ask(`http://${address}:${PORT}/v1/models`, { method: 'GET', headers: { authorization: `Bearer ${key}` } });
  const status = (key: string) =>
    models(key).then(
      (answer) => answer.status,
      () => 0,
    );

  afterAll(async () => {
    await gateway({ API_KEYS_FILE: file }, 'rm', '--stop', '--force', 'gateway');
    rmSync(folder, { recursive: true });
  });

  it('are not made where there is no file for them, which it says', async () => {
    const { code, stdout, stderr } = await keys('add', 'alice');
    expect([code === 0, stdout]).toEqual([false, '']);
    expect(stderr).toMatch(/bind source path does not exist.*api-keys/);
  });

  it('keep a gateway from starting where there is none, with the reason', async () => {
    await gateway({ API_KEYS_FILE: './deploy/secrets/none' }, ...up);
    const logs = async () => (await gateway({}, 'logs', '--no-log-prefix', 'gateway')).stdout;
    await eventually(async () => (await logs()).includes('API_KEYS_FILE holds no key'), 30_000);
    expect(await status('csk-none')).toBe(0);
  });

  it('are made without npm, printed once, kept hashed, and open the gateway', async () => {
    writeFileSync(file, '', { mode: 0o600 });
    chownSync(file, 10002, 0);
    const { code, stdout, stderr } = await keys('add', 'alice');
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^csk-[\w-]{43}\s*$/)]);
    expect(stderr).toContain('the only time that its key is shown');
    const key = stdout.trim();
    const { uid, mode } = statSync(file);
    expect([uid, mode & 0o777, readFileSync(file, 'utf8').includes(key)]).toEqual([10002, 0o600, false]);
    await gateway({ API_KEYS_FILE: file }, ...up);
    // The demo's engine answers to the name `backend`.
    await eventually(async () => (await status(key)) === 200, 30_000);
    expect(await status('csk-wrong')).toBe(401);
  });

  it('count at once in a running gateway, added or removed', async () => {
    const key = (await keys('add', 'bob')).stdout.trim();
    await eventually(async () => (await status(key)) === 200, 10_000);
    expect((await keys('list')).stdout.trim().split(/\r?\n/)).toEqual(['alice', 'bob']);
    expect((await keys('remove', 'bob')).code).toBe(0);
    await eventually(async () => (await status(key)) === 401, 10_000);
  });
});
