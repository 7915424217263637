// NVIDIA's SDK in a virtual environment under .cache/, and beside it one in which the twin's roots stand where NVIDIA's do.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart } from './missing.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const VENV = join(ROOT, '.cache/nvtrust/venv');
const INSTALL = join(ROOT, 'sidecar/attesters/nvtrust/python/install.sh');
const REQUIREMENTS = join(ROOT, 'sidecar/attesters/nvtrust/python/requirements.txt');
/** What was installed, so that a change of the pins installs again. */
const INSTALLED = join(VENV, 'installed.txt');

/** The environment as an operator would make it, by the same script. @throws {MissingPart} without Python or PyPI. */
export function sdkVenv(): string {
  const wanted = readFileSync(REQUIREMENTS, 'utf8');
  if (existsSync(INSTALLED) && readFileSync(INSTALLED, 'utf8') === wanted) return VENV;
  const run = spawnSync('sh', [INSTALL, VENV], { encoding: 'utf8', cwd: ROOT, timeout: 300_000 });
  if (run.status !== 0) {
    const said = run.stderr ?? '';
    // PyPI away is a part that cannot be had; PyPI with other bytes, or an SDK that does not load, is a failure.
    if (/DO NOT MATCH THE HASHES|does not load/.test(said)) throw new Error(said);
    throw new MissingPart(`NVIDIA's SDK: ${said.trim().split('\n').at(-1) ?? run.error?.message}`);
  }
  writeFileSync(INSTALLED, wanted);
  return VENV;
}

/**
 * An environment in `folder` with everything of `base` but its own copies of the GPU verifier's package and the SDK's, which
 * holds the switch verifier: the code as NVIDIA published it, the two root certificates of each replaced.
 */
export function twinVenv(folder: string, base: string, roots: { device: string; rim: string }): string {
  const venv = join(folder, 'venv');
  const packages = packagesOf(base);
  const mine = join(venv, packages.slice(base.length + 1));
  mkdirSync(join(venv, 'bin'), { recursive: true });
  mkdirSync(mine, { recursive: true });
  cpSync(join(base, 'pyvenv.cfg'), join(venv, 'pyvenv.cfg'));
  symlinkSync(realpathSync(join(base, 'bin/python')), join(venv, 'bin/python'));
  writeFileSync(join(mine, 'base.pth'), `${packages}\n`);
  // With its times: Python's compiled files are good for the times of their sources.
  for (const name of ['verifier', 'nv_attestation_sdk'])
    cpSync(join(packages, name), join(mine, name), { recursive: true, preserveTimestamps: true });
  for (const certs of ['verifier/certs', 'nv_attestation_sdk/verifiers/nv_switch_verifier/certs']) {
    writeFileSync(join(mine, certs, 'verifier_device_root.pem'), roots.device);
    writeFileSync(join(mine, certs, 'verifier_RIM_root.pem'), roots.rim);
  }
  return venv;
}

function packagesOf(venv: string): string {
  const python = readdirSync(join(venv, 'lib')).find((name) => name.startsWith('python3'));
  if (python === undefined) throw new Error(`${venv} has no Python library folder`);
  return join(venv, 'lib', python, 'site-packages');
}
