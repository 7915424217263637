// What the tests of deploy/cvm need: programs of Debian, the firmware, which is built once into .cache/cvm, and sev-snp-measure from PyPI.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { debianFile, debianProgram, MissingPart } from '../support/debian.ts';

/** OVMF.fd, and the folder of sev-snp-measure. */
export interface Tools {
  readonly firmware: string;
  readonly bin: string;
}

const RECIPE = fileURLToPath(new URL('../../deploy/cvm/', import.meta.url));
const CACHE = fileURLToPath(new URL('../../.cache/cvm/', import.meta.url));
const PROGRAMS = [
  ['mmdebstrap', 'mmdebstrap'],
  ['mksquashfs', 'squashfs-tools'],
  ['veritysetup', 'cryptsetup-bin'],
  ['cpio', 'cpio'],
  ['qemu-system-x86_64', 'qemu-system-x86'],
] as const;
const OF_FIRMWARE = [
  ['nasm', 'nasm'],
  ['iasl', 'acpica-tools'],
  ['curl', 'curl'],
  ['patch', 'patch'],
  ['g++', 'g++'],
] as const;
const MIRROR = 'http://deb.debian.org/debian';
const MEASURE = 'sev-snp-measure==0.0.13';

/** null: something cannot be had here, and the tests are skipped by its name. */
export const toolsOrNull = (): Tools | null =>
  orNull('the image for confidential VMs', () => {
    for (const [program, of] of [...PROGRAMS, ...OF_FIRMWARE]) debianProgram(program, of);
    debianFile('/usr/include/uuid/uuid.h', 'uuid-dev');
    return { firmware: firmware(), bin: measure() };
  });

/** The folder of Debian 13's mkfs.erofs and veritysetup, whose images differ from older ones; null as above. */
export const weightsToolsOrNull = (): string | null =>
  orNull('volumes of weights', () => {
    for (const [program, of] of PROGRAMS) debianProgram(program, of);
    return debian13();
  });

function orNull<T>(what: string, make: () => T): T | null {
  try {
    if (process.getuid?.() !== 0) throw new MissingPart('root, which mmdebstrap and chroot need');
    return make();
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: ${what}: this machine lacks ${error.message}`);
    return null;
  }
}

/** Programs of Debian 13 with its libraries beside them, run by its own loader. */
function debian13(): string {
  const bin = join(CACHE, 'debian13', 'bin');
  if (existsSync(bin)) return bin;
  mkdirSync(CACHE, { recursive: true });
  const made = mkdtempSync(join(CACHE, 'debian13-'));
  const root = join(CACHE, 'debian13', 'root');
  const { status, stderr } = spawnSync(
    'mmdebstrap',
    ['--variant=extract', '--include=erofs-utils,cryptsetup-bin', 'trixie', join(made, 'root'), MIRROR],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new MissingPart(`Debian 13's packages: ${stderr.slice(-500)}`);
  mkdirSync(join(made, 'bin'));
  for (const program of ['bin/mkfs.erofs', 'bin/fsck.erofs', 'sbin/veritysetup']) {
    const loader = `${root}/usr/lib64/ld-linux-x86-64.so.2 --library-path ${root}/usr/lib/x86_64-linux-gnu`;
    const path = join(made, 'bin', basename(program));
    writeFileSync(path, `#!/bin/sh\nexec ${loader} ${root}/usr/${program} "$@"\n`, { mode: 0o755 });
  }
  renameSync(made, join(CACHE, 'debian13'));
  return bin;
}

function firmware(): string {
  const script = join(RECIPE, 'firmware.sh');
  const folder = join(
    CACHE,
    `firmware-${createHash('sha256').update(readFileSync(script)).digest('hex').slice(0, 12)}`,
  );
  const path = join(folder, 'OVMF.fd');
  if (existsSync(path)) return path;
  console.log(`Building the firmware once, about five minutes; ${folder}`);
  const { status, stderr } = spawnSync(script, [folder], { encoding: 'utf8' });
  if (status === 0) return path;
  if (/curl: \(\d+\)/.test(stderr)) throw new MissingPart("Debian's sources");
  throw new Error(`firmware.sh ended with ${status}: ${stderr.slice(-2000)}`);
}

function measure(): string {
  const folder = join(CACHE, 'venv');
  const bin = join(folder, 'bin');
  if (existsSync(join(bin, 'sev-snp-measure'))) return bin;
  mkdirSync(CACHE, { recursive: true });
  for (const [command, args] of [
    ['python3', ['-m', 'venv', folder]],
    [join(bin, 'python'), ['-m', 'pip', 'install', '--disable-pip-version-check', '-q', MEASURE]],
  ] as const)
    if (spawnSync(command, args, { encoding: 'utf8' }).status !== 0) throw new MissingPart(`${MEASURE}, from PyPI`);
  return bin;
}
