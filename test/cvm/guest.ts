// A guest of deploy/cvm in QEMU, without a TEE and in software alone: its disks, its launch file, and what its console says.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const RECIPE = fileURLToPath(new URL('../../deploy/cvm/', import.meta.url));
export const BUILD_MS = 900_000;
export const BOOT_MS = 420_000;

export const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');

/** @returns what it printed. */
export function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const { status, stdout, stderr } = spawnSync(command, args, {
    encoding: 'utf8',
    env: { ...process.env, ...env },
    maxBuffer: 1 << 26,
  });
  if (status !== 0) throw new Error(`${command} ended with ${status}: ${stderr.slice(-2000)}`);
  return stdout;
}

/** The file of a disk with the archive that the host hands in. */
export function disk(folder: string, files: Readonly<Record<string, string>>): string {
  mkdirSync(folder);
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
  run('tar', ['-cf', `${folder}.img`, '-C', folder, ...Object.keys(files)]);
  truncateSync(`${folder}.img`, 1 << 20);
  return `${folder}.img`;
}

export interface Named {
  readonly name: string;
  readonly verity_root: string;
}

/** What `docker compose config --format json` prints: with line feeds, and a quote and a backslash in its values. */
export function composeOf(
  services: Readonly<Record<string, unknown>>,
  volumes: Readonly<Record<string, unknown>> = {},
): string {
  const networks = { inside: { internal: true }, outside: {}, attestation: {} };
  const file = { name: 'countersign', services, networks, volumes, 'x-note': 'a "quote" and a \\' };
  return `${JSON.stringify(file, null, 2)}\n`;
}

/** Version 2 of the launch file. `over`: members in place of the right ones. */
export function launchOf(compose: string, weights: readonly Named[] = [], over: object = {}): string {
  const members = { version: 2, compose_sha256: sha256(compose), weights, login: false, operator: null, compose };
  return JSON.stringify({ ...members, ...over });
}

export interface Boot {
  /** What build.sh made. */
  readonly image: string;
  readonly config: string | null;
  /** The digest on the command line. */
  readonly launch?: string;
  readonly root?: string;
  /** Further disks. */
  readonly disks?: readonly string[];
  /** More for QEMU. */
  readonly more?: readonly string[];
  readonly network?: string;
  readonly memory?: number;
  /** After which it ends; BOOT_MS by default. */
  readonly limit_ms?: number;
  /** Ends the machine when its console says this; else it runs until it ends by itself. */
  readonly until?: RegExp;
  /** While it runs, with what its console has said. The machine ends when it does. */
  readonly during?: (said: () => string) => Promise<void>;
}

/** @returns what the console said. */
export async function boot(options: Boot): Promise<string> {
  const { image, config, launch, root = join(image, 'root.squashfs'), disks = [], until, during } = options;
  const { more = [], network = 'none', memory = 2048, limit_ms = BOOT_MS } = options;
  const drive = (file: string) => ['-drive', `file=${file},format=raw,if=virtio,readonly=on`];
  const line = readFileSync(join(image, 'cmdline'), 'utf8').trim();
  const command = `${line}${launch === undefined ? '' : ` countersign.launch=${launch}`}`;
  const args = [
    ...['-machine', 'q35,accel=tcg', '-cpu', 'max', '-smp', '2', '-m', String(memory)],
    ...['-nographic', '-no-reboot', '-nic', network],
    ...['-kernel', join(image, 'vmlinuz'), '-initrd', join(image, 'initrd'), '-append', command],
    ...[root, join(image, 'root.verity'), ...(config === null ? [] : [config]), ...disks].flatMap(drive),
    ...more,
  ];
  const machine = spawn('qemu-system-x86_64', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const end = () => machine.kill('SIGKILL');
  const timer = setTimeout(end, limit_ms - 20_000);
  // A test that is over its time leaves none behind.
  process.once('exit', end);
  let said = '';
  for (const stream of [machine.stdout, machine.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
      if (until?.test(said)) machine.kill('SIGKILL');
    });
  const closed = new Promise((resolve) => machine.once('close', resolve));
  try {
    if (during !== undefined) await Promise.race([during(() => said), closed]);
    else await closed;
  } finally {
    clearTimeout(timer);
    end();
    await closed;
    process.off('exit', end);
  }
  return said;
}

/** The lines of `init`. */
export const linesOf = (said: string): string =>
  said
    .split('\n')
    .filter((line) => /countersign: |Kernel panic|verity: .*corrupted/.test(line))
    .join('\n');
