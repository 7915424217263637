import { describe, expect, inject, it } from 'vitest';
import { eventually } from '../support/harness.ts';
import { imageOf } from './images.ts';
import { type Made, PROJECT, stageOf } from './stage.ts';

const made = inject('containers');
/** As compose.yaml runs it, on a machine without a GPU. */
const HARDENED = [
  ...['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges:true', '--network', 'none'],
  ...['--tmpfs', '/tmp', '--tmpfs', '/run/countersign:uid=10001,gid=10000,mode=2750'],
];

describe.skipIf('missing' in made)("the sidecar's image", () => {
  const stage = stageOf(made as Made);
  const once = (...command: string[]) =>
    stage.docker('run', '--rm', '--init', ...HARDENED, '--workdir', '/tmp', imageOf('sidecar'), ...command);

  it("holds NVIDIA's SDK, ready to be imported, and nothing to install more with", async () => {
    const said = await once(
      '/opt/nvtrust/bin/python',
      '-W',
      'ignore',
      '-c',
      'import importlib.util as u, nv_attestation_sdk.attestation, verifier; print(u.find_spec("pip"), u.find_spec("setuptools"))',
    );
    expect(said.trim().split('\n').at(-1)).toBe('None None');
  });

  it('holds koffi for its own platform alone', async () => {
    const script = `require('/app/node_modules/koffi');console.log(require('fs').readdirSync('/app/node_modules/@koromix').join())`;
    expect((await once('node', '-e', script)).trim()).toMatch(/^koffi-linux-(x64|arm64)$/);
  });

  it('holds no simulators: with ATTESTER=simulated it ends with a line', async () => {
    const flags = ['--rm', '--init', '--env', 'ATTESTER=simulated', ...HARDENED];
    await expect(stage.docker('run', ...flags, imageOf('sidecar'))).rejects.toThrow('is for demo/twin');
  });

  it.each([
    ['nvtrust', 'no_driver'],
    ['native', 'no_driver'],
    ['nvattest', 'nvattest'],
  ])('with ATTESTER=%s stays up without a GPU and says what is missing', async (attester, words) => {
    const name = `${PROJECT}_without_gpu`;
    const flags = ['--detach', '--init', '--name', name, '--env', `ATTESTER=${attester}`];
    await stage.docker('run', ...flags, ...HARDENED, imageOf('sidecar'));
    try {
      let said = '';
      await eventually(async () => {
        said = await stage.docker('exec', name, 'node', 'sidecar/healthcheck.ts').catch(() => '');
        return said !== '';
      }, 90_000);
      expect(said).toMatch(new RegExp(`^${attester}: cannot attest: .*${words}`));
    } finally {
      await stage.docker('rm', '--force', name);
    }
  });
});
