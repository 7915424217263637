// A machine whose process 1 is systemd and that knows our units alone, in namespaces of its own: what an operator has, without a second computer.
import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { eventually, type Folder } from '../support/harness.ts';

const run = promisify(execFile);
const TREE = fileURLToPath(new URL('../..', import.meta.url));
/** Where boot.sh puts an nvidia-smi, which keeps the file `ready` beside itself. */
export const GPU = '/run/gpu';
/** Of the sidecar, whose machine is the simulated one. */
const SIMULATED_ROOT = '/var/lib/countersign-sidecar/simulated-root';
const UNITS = ['sidecar', 'gateway', 'ready', 'model', 'backend'] as const;

/** Why no such machine can be had here; null when it can. */
export function whyNoMachine(): string | null {
  if (process.getuid?.() !== 0) return 'it needs root, for namespaces';
  if (!existsSync('/lib/systemd/systemd')) return 'systemd is not installed';
  if (!existsSync('/sys/fs/cgroup/systemd')) return 'it knows hosts with a cgroup v1 hierarchy for systemd only';
  return null;
}

export interface Machine {
  /** Runs a command inside, as root. @throws when it fails. */
  run(...command: string[]): Promise<string>;
  /** What a unit has printed. */
  log(unit: (typeof UNITS)[number]): string;
  stop(): Promise<void>;
}

/** @param settings the lines of /etc/countersign's files; `dropIns` lie under `<unit>.d/`. */
export async function startMachine(
  folder: Folder,
  settings: { gateway: string[]; sidecar: string[]; keys: string[] },
): Promise<Machine> {
  const work = folder.path;
  writeFileSync(join(work, 'gateway.env'), settings.gateway.join('\n'));
  writeFileSync(join(work, 'sidecar.env'), settings.sidecar.join('\n'));
  writeFileSync(join(work, 'api-keys'), settings.keys.join('\n'));
  const logOf = (unit: string) => join(work, `${unit}.log`);
  for (const unit of UNITS) {
    const dropIns = join(work, 'drop-ins', `countersign-${unit}.service.d`);
    mkdirSync(dropIns, { recursive: true });
    const to = `append:${logOf(unit)}`;
    writeFileSync(join(dropIns, 'log.conf'), `[Service]\nStandardOutput=${to}\nStandardError=${to}\n`);
    // The simulated GPU needs no network: the drop-in that takes it away is tested with the rest.
    if (unit === 'ready')
      writeFileSync(
        join(dropIns, 'gpu.conf'),
        `[Service]\nEnvironment=PATH=${GPU}:/usr/bin:/bin ATTESTER=simulated READY_WAIT_S=3\nReadWritePaths=${GPU}\nRestart=no\n`,
      );
    if (unit === 'sidecar') {
      cpSync(join(TREE, 'deploy/systemd/sidecar-offline.conf'), join(dropIns, 'offline.conf'));
      const twin = `/opt/countersign/demo/twin/main.ts --root-dir=${SIMULATED_ROOT}`;
      writeFileSync(join(dropIns, 'twin.conf'), `[Service]\nExecStart=\nExecStart=/usr/bin/node ${twin}\n`);
    }
  }
  const child = spawn('sh', [join(TREE, 'test/deploy/boot.sh'), work, TREE, process.execPath], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  // The namespaces end with the process that made them, and with its first child everything inside.
  const stop = async () => {
    child.kill('SIGKILL');
    await exited;
    // Cgroups can be removed once the last process in them is gone.
    const ours = ['/sys/fs/cgroup', '-depth', '-type', 'd', '-path', '*/countersign-test*'];
    await eventually(async () => {
      await run('find', [...ours, '-exec', 'rmdir', '{}', ';']).catch(() => {});
      return (await run('find', ours)).stdout === '';
    });
  };
  const pid = async () => readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim();
  const inside = async (...command: string[]) => {
    const args = ['-t', await pid(), '-a', '--', ...command];
    return (await run('nsenter', args, { timeout: 20_000 })).stdout.trim();
  };
  try {
    await eventually(() => inside('systemctl', 'is-active', 'test.target').then(Boolean, () => false), 20_000);
  } catch (cause) {
    await stop();
    throw new Error(`systemd did not start: ${output}`, { cause });
  }
  return {
    run: inside,
    log: (unit) => (existsSync(logOf(unit)) ? readFileSync(logOf(unit), 'utf8') : ''),
    stop,
  };
}
