// What the tests of deploy/cvm need: programs of Debian, the firmware, which is built once into .cache/cvm, and sev-snp-measure from PyPI.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
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
  ['nasm', 'nasm'],
  ['iasl', 'acpica-tools'],
  ['curl', 'curl'],
  ['patch', 'patch'],
  ['g++', 'g++'],
] as const;
const MEASURE = 'sev-snp-measure==0.0.13';

/** null: something cannot be had here, and the tests are skipped by its name. */
export function toolsOrNull(): Tools | null {
  try {
    if (process.getuid?.() !== 0) throw new MissingPart('root, which mmdebstrap and chroot need');
    for (const [program, of] of PROGRAMS) debianProgram(program, of);
    debianFile('/usr/include/uuid/uuid.h', 'uuid-dev');
    return { firmware: firmware(), bin: measure() };
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: the image for confidential VMs: this machine lacks ${error.message}`);
    return null;
  }
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
