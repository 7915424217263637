import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';

it('every place has the version of package.json', () => {
  const { stdout, stderr } = spawnSync(process.execPath, ['scripts/versions.ts', '--check'], { encoding: 'utf8' });
  expect(`${stdout}${stderr}`).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)? everywhere\n$/);
});
