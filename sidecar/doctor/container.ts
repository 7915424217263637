// Are we in a container, and did it get the GPU?
import { type Finding, ok, warn } from './finding.ts';
import type { Host } from './host.ts';

export async function checkContainer(host: Host): Promise<Finding[]> {
  const kind = await containerKind(host);
  if (kind === null) return [ok('container', 'not in a container')];
  if ((await host.kind('/dev/nvidiactl')) === 'device') return [ok('container', `in ${kind}, which has the GPU`)];
  return [
    warn(
      'container',
      `in ${kind}, which has no GPU`,
      'install the NVIDIA Container Toolkit on the node and start with --gpus all (compose: deploy.resources.reservations.devices)',
    ),
  ];
}

async function containerKind(host: Host): Promise<string | null> {
  if ((await host.kind('/.dockerenv')) !== null) return 'a Docker container';
  if ((await host.kind('/run/.containerenv')) !== null) return 'a Podman container';
  const groups = (await host.readText('/proc/1/cgroup')) ?? '';
  if (groups.includes('kubepods')) return 'a Kubernetes pod';
  return /docker|containerd|crio|lxc/.test(groups) ? 'a container' : null;
}
