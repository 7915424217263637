// The sidecar as an image for production holds it: without demo/.
import { cpSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../support/harness.ts';
import { ROOT, startCommand } from '../../support/process.ts';

/** What the Dockerfile copies for it. */
const COPIED = ['package.json', 'proto', 'node', 'verify', 'sidecar'];

describe('a sidecar without the simulators', () => {
  const folder = temporaryFolder();
  afterAll(() => folder.remove());
  for (const name of COPIED) cpSync(join(ROOT, name), join(folder.path, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder.path, 'node_modules'));
  const start = (env: Record<string, string>) => {
    const own = { SIDECAR_SOCKET: join(folder.path, 'sidecar.sock'), LOG_LEVEL: 'warn', ...env };
    return startCommand(process.execPath, [join(folder.path, 'sidecar/main.ts')], own, folder.path);
  };

  it('does not start with ATTESTER=simulated, and says in one line what does', async () => {
    const sidecar = start({ ATTESTER: 'simulated', CPU_EVIDENCE: 'required' });
    expect(await sidecar.exited).toEqual({ code: 1, signal: null });
    expect(sidecar.output()).toBe(
      'sidecar: ATTESTER=simulated is for demo/twin/main.ts, which the image of the target demo-sidecar runs\n',
    );
  });

  it('starts with any other, and needs nothing of demo/', async () => {
    const sidecar = start({ ATTESTER: 'nvattest', LOG_LEVEL: 'info' });
    await expect.poll(() => sidecar.output(), { timeout: 15_000 }).toContain('"msg":"listening"');
    expect(sidecar.output()).not.toContain('ERR_MODULE_NOT_FOUND');
    expect((await sidecar.kill('SIGTERM')).code).toBe(0);
  });
});
