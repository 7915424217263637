// Are the driver's device files there, and may we open them?
import type { Facts } from './facts.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Host } from './host.ts';

const CONTROL = '/dev/nvidiactl';

export async function checkDevices(host: Host, { gpus }: Facts): Promise<Finding[]> {
  const numbered = (await host.list('/dev'))
    .filter((name) => /^nvidia[0-9]+$/.test(name))
    .map((name) => `/dev/${name}`);
  const refused: string[] = [];
  for (const path of [CONTROL, ...numbered]) {
    const why = await host.access(path, 'read_write');
    if (why === 'ENOENT' && path === CONTROL)
      return [
        fail(
          'devices',
          `${CONTROL} is not there`,
          'load the driver (nvidia-modprobe, or nvidia-smi as root); in a container, start it with --gpus all',
        ),
      ];
    if (why !== null) refused.push(`${path} (${why})`);
  }
  if (refused.length > 0)
    return [
      fail(
        'devices',
        `${host.user} may not open ${refused.join(', ')}`,
        `give ${host.user} read and write access: the group that owns the files (often video or render), or the container's device rules`,
      ),
    ];
  if (numbered.length === 0)
    return [fail('devices', `${CONTROL} and no /dev/nvidia0`, 'no GPU was given to this machine or container')];
  const seen = `${host.user} can open ${CONTROL} and ${numbered.join(', ')}`;
  if (gpus.length > 0 && gpus.length !== numbered.length)
    return [
      warn(
        'devices',
        `${seen}; the driver sees ${gpus.length}`,
        'a token is about every GPU that the driver shows us: show all, or the ones in use',
      ),
    ];
  return [ok('devices', seen)];
}
