// A Docker daemon for the test alone: its socket, its storage and its network are its own, and it is ended by its process id.
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MissingPart } from '../support/debian.ts';
import { attempt } from './command.ts';

const START_MS = 60_000;
const STOP_MS = 30_000;
/** dockerd looks for containerd, runc and iptables. */
const PATH = `${process.env.PATH ?? ''}:/usr/sbin:/sbin`;

export interface Daemon {
  /** DOCKER_HOST. */
  readonly host: string;
  stop(): Promise<void>;
}

/**
 * @param folder short: sockets lie in it. What it stores there outlives it.
 * @param namespace the network it runs in; null: this machine's, of which it then changes nothing. That is for builds.
 * @param more options of dockerd.
 * @throws {MissingPart} when a daemon cannot run on this machine.
 */
export async function startDaemon(
  folder: string,
  namespace: string | null,
  more: readonly string[] = [],
): Promise<Daemon> {
  const socket = join(folder, 'docker.sock');
  const log = join(folder, 'dockerd.log');
  const own = [
    ...['--host', `unix://${socket}`, '--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec')],
    ...['--pidfile', join(folder, 'dockerd.pid'), '--default-ulimit', 'nofile=4096:4096', ...more],
  ];
  const [program, args] =
    namespace === null
      ? ['dockerd', [...own, '--iptables=false', '--ip-forward=false', '--ip-masq=false', '--bridge=none']]
      : ['nsenter', [`--net=${namespace}`, 'dockerd', ...own]];
  const out = openSync(log, 'w');
  const child = spawn(program, args, { stdio: ['ignore', out, out], env: { ...process.env, PATH }, detached: true });
  closeSync(out);
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()).once('error', () => resolve()));
  const running = () => child.exitCode === null && child.signalCode === null && child.pid !== undefined;
  const kill = () => running() && child.kill('SIGKILL');
  process.once('exit', kill);
  const stop = async () => {
    if (running()) child.kill('SIGTERM');
    const timer = setTimeout(kill, STOP_MS);
    await ended;
    clearTimeout(timer);
    process.off('exit', kill);
  };
  const host = `unix://${socket}`;
  for (const end = performance.now() + START_MS; ; await new Promise((resolve) => setTimeout(resolve, 200))) {
    if (running() && (await attempt(docker, ['version'], { env: { DOCKER_HOST: host } })).code === 0)
      return { host, stop };
    if (running() && performance.now() < end) continue;
    await stop();
    throw new MissingPart(`what dockerd needs: ${readFileSync(log, 'utf8').trim().split('\n').at(-1) ?? ''}`);
  }
}

/** The client that comes with Debian's daemon: another one may ask for plugins that are not there. */
export const docker = '/usr/bin/docker';
