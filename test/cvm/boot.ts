// Debian's kernels, each with a small first file system of its own, in QEMU without a TEE: what acpi.cvm.ts boots by the dozen.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { debianProgram, MissingPart } from '../support/debian.ts';

/** A kernel of Debian's for clouds. */
export interface Kernel {
  /** Such as 6.12.117+deb13-cloud-amd64. */
  readonly release: string;
  readonly vmlinuz: string;
  /** `/init` of the recipe, and the program of the tests as `/probe`; with busybox, and the modules of virtio and NVMe. */
  readonly initrd: string;
}

/** How a guest is started. */
export interface Start {
  readonly kernel: Kernel;
  readonly command_line: string;
  readonly processors?: number;
  /** Files of ACPI tables that the host adds to its own. */
  readonly tables?: readonly string[];
  /** More for QEMU. */
  readonly more?: readonly string[];
  /** A folder for this guest alone. */
  readonly folder: string;
}

/** How it ended. */
export interface Ended {
  readonly console: string;
  /** The guest's memory when it ended. */
  readonly ram: Buffer;
}

const CACHE = fileURLToPath(new URL('../../.cache/cvm/', import.meta.url));
const MIRROR = 'http://deb.debian.org/debian';
const KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';
const MIB = 1 << 20;
export const MEMORY_MIB = 256;
export const BOOT_MS = 240_000;
const APT_MS = 300_000;
/** In the order in which they load; a kernel has some of them built in. */
const MODULES = [
  ...['virtio', 'virtio_ring', 'virtio_pci_modern_dev', 'virtio_pci_legacy_dev', 'virtio_pci', 'virtio_blk'],
  ...['failover', 'net_failover', 'virtio_net', 'nvme-keyring', 'nvme-auth', 'nvme-core', 'nvme'],
];

/**
 * Debian's newest kernel for clouds of this suite, fetched into .cache/cvm and installed nowhere.
 * @param init the recipe's first process
 * @param probe the tests'
 * @throws {MissingPart} the suite cannot be reached
 */
export function debianKernel(suite: string, folder: string, init: string, probe: string): Kernel {
  const root = extracted(suite, 'linux-image-cloud-amd64', /^linux-(image|binary|modules)-\d/);
  const busybox = join(extracted('trixie', 'busybox-static', /^$/), 'usr/bin/busybox');
  // Debian 12 has modules in /lib, and newer ones the kernel beside its modules.
  const lib = ['usr/lib/modules', 'lib/modules'].map((path) => join(root, path)).find((path) => existsSync(path)) ?? '';
  const [release = ''] = readdirSync(lib);
  const modules = join(lib, release);
  const vmlinuz = [join(root, `boot/vmlinuz-${release}`), join(modules, 'vmlinuz')].find((path) => existsSync(path));
  if (vmlinuz === undefined) throw new Error(`${release} has no vmlinuz`);
  const files = readdirSync(modules, { recursive: true, encoding: 'utf8' });
  const first = join(folder, 'first');
  for (const name of ['bin', 'dev', 'proc', 'sys', 'run', 'etc', 'modules'])
    mkdirSync(join(first, name), { recursive: true });
  copyFileSync(busybox, join(first, 'bin/busybox'));
  writeFileSync(join(first, 'init'), readFileSync(init), { mode: 0o755 });
  writeFileSync(join(first, 'probe'), probe, { mode: 0o755 });
  const loaded: string[] = [];
  for (const name of MODULES) {
    const file = files.find((path) => basename(path).replace(/\.xz$/, '') === `${name}.ko`);
    if (file === undefined) continue;
    const path = join(modules, file);
    writeFileSync(
      join(first, `modules/${name}.ko`),
      file.endsWith('.xz') ? run('xz', ['-dc', path]) : readFileSync(path),
    );
    loaded.push(`${name}.ko\n`);
  }
  writeFileSync(join(first, 'etc/modules'), loaded.join(''));
  const initrd = join(folder, 'initrd');
  const names = ['.', ...readdirSync(first, { recursive: true, encoding: 'utf8' })].join('\n');
  writeFileSync(initrd, gzipSync(run('cpio', ['--create', '--format=newc', '--quiet'], { cwd: first, input: names })));
  return { release, vmlinuz, initrd };
}

/** Starts a guest and waits until it ends by itself. */
export async function boot({
  kernel,
  command_line,
  processors = 1,
  tables = [],
  more = [],
  folder,
}: Start): Promise<Ended> {
  mkdirSync(folder, { recursive: true });
  const ram = join(folder, 'ram');
  const args = [
    ...['-machine', 'q35,memory-backend=ram', '-cpu', 'max', '-smp', `${processors}`, '-m', `${MEMORY_MIB}`],
    ...['-object', `memory-backend-file,id=ram,size=${MEMORY_MIB}M,mem-path=${ram},share=on`],
    // One thread for all processors: with one for each, QEMU before 8.1 may run an instruction that Linux has replaced ("Oops: int3").
    ...['-accel', 'tcg,thread=single', '-nographic', '-no-reboot', '-nic', 'none'],
    // no_timer_check: on a busy machine Linux would end itself because the timer comes late.
    ...[
      '-kernel',
      kernel.vmlinuz,
      '-initrd',
      kernel.initrd,
      '-append',
      `console=ttyS0 panic=-1 no_timer_check ${command_line}`,
    ],
    ...tables.flatMap((table) => ['-acpitable', `file=${table}`]),
    ...more,
  ];
  const machine = spawn('qemu-system-x86_64', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const timer = setTimeout(() => machine.kill('SIGKILL'), BOOT_MS - 10_000);
  let said = '';
  for (const stream of [machine.stdout, machine.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  await new Promise((resolve) => machine.once('close', resolve));
  clearTimeout(timer);
  const memory = existsSync(ram) ? readFileSync(ram) : Buffer.alloc(0);
  rmSync(ram, { force: true });
  if (memory.length !== MEMORY_MIB * MIB) throw new Error(`QEMU did not start: ${said.slice(-2000)}`);
  return { console: said, ram: memory };
}

/**
 * The newest files of a package of Debian's and of those that it needs and whose name is like `needs`; older ones go.
 * @throws {MissingPart} the suite cannot be reached
 */
function extracted(suite: string, packageName: string, needs: RegExp): string {
  debianProgram('xz', 'xz-utils');
  const place = join(CACHE, 'packages', suite, packageName);
  const apt = join(place, 'apt');
  for (const name of ['lists/partial', 'cache/archives/partial']) mkdirSync(join(apt, name), { recursive: true });
  writeFileSync(join(apt, 'sources.list'), `deb [signed-by=${KEYS}] ${MIRROR} ${suite} main\n`);
  writeFileSync(join(apt, 'status'), '');
  const settings = [
    ...[`Dir::State::Lists=${apt}/lists`, `Dir::State::Status=${apt}/status`, `Dir::Cache=${apt}/cache`],
    ...[`Dir::Etc::SourceList=${apt}/sources.list`, 'Dir::Etc::SourceParts=-', 'APT::Architecture=amd64'],
    'APT::Sandbox::User=root',
  ].flatMap((setting) => ['-o', setting]);
  const work = join(place, `new-${process.pid}`);
  mkdirSync(join(work, 'root'), { recursive: true });
  const wanted = [packageName];
  let folder: string;
  try {
    run('apt-get', [...settings, '-qq', '--error-on=any', 'update']);
    for (const name of wanted) {
      const said = run('apt-cache', [...settings, 'depends', name]).toString();
      for (const [, needed = ''] of said.matchAll(/Depends: (\S+)/g))
        if (needs.test(needed) && !wanted.includes(needed)) wanted.push(needed);
    }
    const versions = run('apt-get', [...settings, '-qq', 'download', '--print-uris', ...wanted]);
    folder = join(place, createHash('sha256').update(versions).digest('hex').slice(0, 12));
    if (!existsSync(folder)) run('apt-get', [...settings, '-qq', 'download', ...wanted], { cwd: work });
  } catch (error) {
    rmSync(work, { recursive: true });
    throw new MissingPart(`${packageName} of Debian ${suite}: ${error instanceof Error ? error.message : error}`);
  }
  if (!existsSync(folder)) {
    for (const file of readdirSync(work))
      if (file.endsWith('.deb')) run('dpkg-deb', ['-x', join(work, file), join(work, 'root')]);
    renameSync(join(work, 'root'), folder);
  }
  rmSync(work, { recursive: true });
  for (const name of readdirSync(place))
    if (!['apt', basename(folder)].includes(name)) rmSync(join(place, name), { recursive: true });
  return folder;
}

function run(command: string, args: readonly string[], { cwd, input }: { cwd?: string; input?: string } = {}): Buffer {
  const options = {
    timeout: APT_MS,
    maxBuffer: 64 * MIB,
    ...(cwd === undefined ? {} : { cwd }),
    ...(input === undefined ? {} : { input }),
  };
  const { status, stdout, stderr, error } = spawnSync(command, args, options);
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${command} ended with ${status}: ${stderr.toString().slice(-1000)}`);
  return stdout;
}
