// Does the chosen attester have what it needs: a Python environment, the nvattest program, or NVML?
import { join } from 'node:path';
import { needsNvattest, readsNewFormat } from '../nvattest/choice.ts';
import type { DoctorConfig } from './config.ts';
import type { Facts } from './facts.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Host } from './host.ts';

const NAME = 'attester';
const INSTALL =
  "install NVIDIA's package nvattest (developer.nvidia.com/nvat-downloads), or name the program in NVATTEST";
const SDK = 'nv-attestation-sdk';
const SDK_VERSION = `import importlib.metadata as m; print(m.version('${SDK}'))`;

export async function checkRequirements(host: Host, config: DoctorConfig, facts: Facts): Promise<Finding[]> {
  switch (config.attester) {
    case 'nvtrust':
      if (facts.driver !== null && needsNvattest(facts.driver)) return [await nvattest(host, config, facts)];
      return [await nvtrust(host, config)];
    case 'nvattest':
      return [await nvattest(host, config, facts)];
    case 'native':
    case 'nras':
      return [nvml(config, facts)];
    case 'simulated':
      return [
        warn(NAME, 'ATTESTER=simulated: it proves nothing about hardware', 'on a node with a GPU, choose another'),
      ];
  }
}

async function nvtrust(host: Host, { nvtrust_venv }: DoctorConfig): Promise<Finding> {
  const python = join(nvtrust_venv, 'bin', 'python');
  const todo = `run sidecar/nvtrust/install.sh ${nvtrust_venv}, or name the environment in NVTRUST_VENV`;
  const why = await host.access(python, 'execute');
  if (why !== null) return fail(NAME, `ATTESTER=nvtrust: ${python} cannot be run (${why})`, todo);
  const ran = await host.run(python, ['-I', '-c', SDK_VERSION]);
  if (ran === null || ran.exit_code !== 0) return fail(NAME, `ATTESTER=nvtrust: ${python} does not know ${SDK}`, todo);
  return ok(NAME, `ATTESTER=nvtrust: ${SDK} ${ran.stdout.trim().slice(0, 40)} in ${nvtrust_venv}`);
}

async function nvattest(host: Host, config: DoctorConfig, { driver }: Facts): Promise<Finding> {
  const program = config.nvattest;
  const isNeeded = driver !== null && needsNvattest(driver);
  const name = `ATTESTER=nvattest${config.attester === 'nvtrust' ? ', chosen for this driver' : ''}`;
  const ran = await host.run(program, ['version']);
  if (ran === null) return fail(NAME, `${name}: ${program} cannot be run`, INSTALL);
  const version = /"nvattest"\s*:\s*"([^"]{1,40})"/.exec(ran.stdout)?.[1];
  if (version === undefined) return fail(NAME, `${name}: ${program} does not tell its version`, INSTALL);
  const seen = `${name}: nvattest ${version}`;
  if (isNeeded && readsNewFormat(version) === false)
    return fail(NAME, `${seen}, which cannot read the reports of driver ${driver}`, 'install nvattest 2.0.0 or newer');
  return ok(NAME, seen);
}

function nvml({ attester, nvml_library }: DoctorConfig, { nvml_error }: Facts): Finding {
  if (nvml_error === null) return ok(NAME, `ATTESTER=${attester}: ${nvml_library} answers`);
  return fail(
    NAME,
    `ATTESTER=${attester}: ${nvml_error}`,
    `without ${nvml_library} and koffi this attester cannot collect`,
  );
}
