// Is there a driver, which one, and GPUs that can attest?
import { needsNvattest } from '../nvattest/choice.ts';
import type { Facts } from './facts.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';

/** The first driver branch whose reports we have seen; 535 had them in its last releases. */
const FIRST_BRANCH = 535;

export function checkDriver({ driver, gpus, source, nvml_error }: Facts): Finding[] {
  if (driver === null)
    return [
      fail(
        'driver',
        `no NVIDIA driver is to be seen (${nvml_error ?? 'NVML names none'})`,
        "install NVIDIA's data-center driver and load it (modprobe nvidia); in a container, start it with --gpus all",
      ),
      skip('gpus', 'no driver'),
    ];
  return [version(driver, source), ...models(gpus, source)];
}

function version(driver: string, source: Facts['source']): Finding {
  const seen = `driver ${driver}, told by ${source}`;
  if (Number.parseInt(driver, 10) < FIRST_BRANCH)
    return fail('driver', seen, 'this driver cannot attest; install 550 or newer');
  if (needsNvattest(driver)) return ok('driver', `${seen}; its reports are of the new format, which nvattest reads`);
  return ok('driver', seen);
}

function models(gpus: Facts['gpus'], source: Facts['source']): Finding[] {
  if (source === '/proc') return [warn('gpus', 'nothing here counts GPUs', 'install nvidia-smi, or koffi by npm ci')];
  if (gpus.length === 0) return [fail('gpus', 'the driver sees no GPU', 'look at nvidia-smi -L, lspci and dmesg')];
  const unable = gpus.filter(({ arch }) => arch === null);
  const seen = gpus.map(({ model, arch }) => `${model} (${arch ?? 'cannot attest'})`).join(', ');
  if (unable.length > 0)
    return [fail('gpus', seen, 'all GPUs of the machine must be Hopper or Blackwell data-center GPUs')];
  return [ok('gpus', seen)];
}
