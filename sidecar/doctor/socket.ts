// Can the sidecar have its socket: is the folder there and ours to write, is the path free?
import { dirname } from 'node:path';
import { isSocketPath } from '../../proto/setting.ts';
import type { DoctorConfig } from './config.ts';
import { type Finding, fail, ok } from './finding.ts';
import type { Host } from './host.ts';

export async function checkSocket(host: Host, { socket_path }: DoctorConfig): Promise<Finding[]> {
  const name = 'socket';
  if (!isSocketPath(socket_path))
    return [fail(name, `${socket_path} cannot be a socket's address`, 'choose a path of 100 bytes or fewer')];
  const there = await host.kind(socket_path);
  if (there !== null && there !== 'socket')
    return [fail(name, `${socket_path} is a ${there}`, 'move it away, or choose another SIDECAR_SOCKET')];
  const folder = await nearest(host, dirname(socket_path));
  const why = (await host.kind(folder)) === 'folder' ? await host.access(folder, 'write') : 'ENOTDIR';
  if (why !== null)
    return [
      fail(
        name,
        `${host.user} may not write in ${folder} (${why})`,
        'give the folder to the user that runs the sidecar (a volume keeps the owner it was made with), or set SIDECAR_SOCKET',
      ),
    ];
  const made = folder === dirname(socket_path) ? '' : '; the sidecar makes the rest of the path';
  return [ok(name, `${host.user} can write in ${folder}${made}`)];
}

/** The folder, or the nearest one above that is there. */
async function nearest(host: Host, folder: string): Promise<string> {
  let at = folder;
  while ((await host.kind(at)) === null && dirname(at) !== at) at = dirname(at);
  return at;
}
