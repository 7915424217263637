// Is confidential computing on, devtools mode off, and do the GPUs accept work?
import type { AttesterName } from '../config.ts';
import type { Facts } from './facts.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';

const TURN_ON =
  'from the host: nvidia_gpu_tools.py --set-cc-mode=on --reset-after-cc-mode-switch (NVIDIA/gpu-admin-tools), then restart the machine';

/** Those that attest switches too. */
const BEHIND_SWITCHES: readonly AttesterName[] = ['nvtrust', 'native'];

export function checkMode({ driver, source, mode, ready }: Facts, attester: AttesterName): Finding[] {
  const names = ['cc_mode', 'devtools', 'ready_state'] as const;
  if (driver === null) return names.map((name) => skip(name, 'no driver'));
  if (mode === null) {
    const [, ...rest] = names;
    return [
      source === '/proc'
        ? warn('cc_mode', 'nothing here can ask', 'install nvidia-smi, or koffi by npm ci')
        : fail(
            'cc_mode',
            'driver or GPU knows no confidential computing',
            'a Hopper or newer and driver 550 or newer are needed',
          ),
      ...rest.map((name) => skip(name, 'no confidential computing')),
    ];
  }
  if (mode.multi_gpu === 'protected_pcie') return [protectedPcie(attester), devtools(mode.devtools), readiness(ready)];
  if (!mode.confidential)
    return [
      fail('cc_mode', 'confidential computing is off', TURN_ON),
      ...(mode.devtools ? [devtools(true)] : [skip('devtools', 'confidential computing is off')]),
      skip('ready_state', 'confidential computing is off'),
    ];
  return [environment(mode.environment, mode.multi_gpu), devtools(mode.devtools), readiness(ready)];
}

function protectedPcie(attester: AttesterName): Finding {
  const seen = 'protected PCIe is on: the NVSwitches are attested with the GPUs';
  if (BEHIND_SWITCHES.includes(attester))
    return ok('cc_mode', `${seen}, through libnvidia-nscq of the driver's branch`);
  return fail('cc_mode', `${seen}, and ATTESTER=${attester} cannot`, `set ATTESTER to ${BEHIND_SWITCHES.join(' or ')}`);
}

function environment(where: string, multi_gpu: string | null): Finding {
  if (where === 'simulation')
    return fail('cc_mode', 'on, in a simulated environment', 'no hardware keeps its secrets: use a production GPU');
  return ok('cc_mode', `confidential computing is on${multi_gpu === 'nvle' ? ', with encrypted NVLink' : ''}`);
}

const devtools = (on: boolean): Finding =>
  on
    ? fail('devtools', 'devtools mode is on: the GPU can be looked into', TURN_ON)
    : ok('devtools', 'devtools mode is off');

function readiness(ready: boolean | null): Finding {
  if (ready === null) return skip('ready_state', 'the driver does not say');
  if (ready) return ok('ready_state', 'the GPUs accept work');
  return warn(
    'ready_state',
    'the GPUs attest, but accept no work',
    'when the attestation is good, as root: nvidia-smi conf-compute -srs 1',
  );
}
