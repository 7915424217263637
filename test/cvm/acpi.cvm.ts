// deploy/cvm: with the command line that build.sh writes no code of the host's ACPI tables runs, and nothing is written where they say. Each
// kernel boots beside control runs, in which it does; with a name that no call has, as in a kernel that renamed it, the marks are found too.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { debianProgram, MissingPart } from '../support/debian.ts';
import { temporaryFolder } from '../support/harness.ts';
import { BOOT_MS, boot, debianKernel, type Ended, type Kernel, MEMORY_MIB, type Start } from './boot.ts';

const RECIPE = fileURLToPath(new URL('../../deploy/cvm/', import.meta.url));
const folder = temporaryFolder();
afterAll(() => folder.remove());

/** What the tests run as the first process: says what it sees, reads both disks and asks the network. */
const PROBE = `#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs dev /dev
while read -r module; do $bb insmod "/modules/$module"; done </etc/modules
for tries in 1 2 3 4 5 6 7 8 9 10; do
  $bb grep -q ' probe.devices ' /proc/cmdline || break
  [ -b /dev/vda ] && [ -b /dev/nvme0n1 ] && [ -e /sys/class/net/eth0 ] && break
  $bb sleep 1
done
echo "PROBE acpi: $([ -e /sys/firmware/acpi ] || [ -e /sys/bus/acpi ] && echo runs || echo off)"
echo "PROBE devices: $($bb ls /sys/bus/acpi/devices 2>/dev/null | $bb grep EVIL | $bb tr '\\n' ' ')"
echo "PROBE processors: $($bb nproc)"
for disk in vda nvme0n1; do [ ! -b /dev/$disk ] || echo "PROBE $disk: $($bb head -c 9 /dev/$disk)"; done
[ ! -e /sys/class/net/eth0 ] || $bb ip address add 10.0.2.15/24 dev eth0 && $bb ip link set eth0 up && $bb ping -c 3 -W 5 10.0.2.2 | $bb sed -n 's/.* \\([0-9]*\\) packets received.*/PROBE ping: \\1/p'
$bb reboot -f
`;

/** Memory that Linux leaves as it is: what is found there came from a table. */
const MARKS_AT = 0x50000;
const FADT_MARK_AT = MARKS_AT + 0x100;
/** Tables whose code Linux loads beside the host's DSDT. */
const WITH_CODE = ['SSDT', 'PSDT', 'OSDT'] as const;

function missing(): string | null {
  try {
    for (const [program, of] of [
      ['qemu-system-x86_64', 'qemu-system-x86'],
      ['iasl', 'acpica-tools'],
      ['cpio', 'cpio'],
    ] as const)
      debianProgram(program, of);
    return null;
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    return error.message;
  }
}
const lacks = missing();
if (lacks !== null) console.warn(`SKIPPED: evil ACPI tables: this machine lacks ${lacks}`);

function kernelOrNull(suite: string): Kernel | null {
  if (lacks !== null) return null;
  try {
    return debianKernel(suite, join(folder.path, suite), join(RECIPE, 'init'), PROBE);
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: evil ACPI tables and this kernel: this machine lacks ${error.message}`);
    return null;
  }
}

const withChecksum = (table: Buffer): Buffer => {
  table[9] = 0;
  table[9] = -table.reduce((sum, byte) => sum + byte, 0) & 0xff;
  return table;
};

function written(name: string, table: Buffer): string {
  const path = join(folder.path, `${name}.table`);
  writeFileSync(path, withChecksum(table));
  return path;
}

/** A table whose code writes the table's own name into memory, and has a device. */
function evil(signature: string, index: number): string {
  const source = join(folder.path, `${signature}.dsl`);
  writeFileSync(
    source,
    `DefinitionBlock ("", "SSDT", 2, "EVIL", "EVIL${signature}", 1) {
      Scope (\\_SB) {
        Device (${signature}) {
          Name (_HID, "EVIL0001")
          Name (_UID, ${index})
          OperationRegion (MARK, SystemMemory, ${MARKS_AT + 16 * index}, 4)
          Field (MARK, DWordAcc, NoLock, Preserve) { WORD, 32 }
          Method (_INI) { Store (${Buffer.from(signature).readUInt32LE()}, WORD) }
        }
      }
    }`,
  );
  const { status, stdout } = spawnSync('iasl', ['-p', join(folder.path, signature), source], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`iasl: ${stdout}`);
  const table = readFileSync(join(folder.path, `${signature}.aml`));
  table.write(signature, 'latin1');
  return written(signature, table);
}

/** A FADT whose second block of events lies in memory: Linux clears eight bytes there by writing ones. Ports are as QEMU's. */
function forgedFadt(): string {
  const table = Buffer.alloc(244);
  table.write('FACP', 'latin1');
  table.writeUInt32LE(table.length, 4);
  table[8] = 3;
  table.write('EVIL  EVILFADT', 10, 'latin1');
  // FACS and DSDT are where QEMU and SeaBIOS put them in a guest of this size.
  const tables = MEMORY_MIB * (1 << 20) - 0x20000;
  for (const [offset, value] of [
    [36, tables],
    [40, tables + 0x40],
    [56, 0x600],
    [64, 0x604],
    [76, 0x608],
  ] as const)
    table.writeUInt32LE(value, offset);
  for (const [offset, value] of [
    [46, 9],
    [88, 4],
    [89, 2],
    [91, 4],
    [93, 16],
    [233, 128],
    [235, 1],
  ] as const)
    table[offset] = value;
  table.writeBigUInt64LE(BigInt(FADT_MARK_AT), 236);
  return written('FADT', table);
}

/** The lines of build.sh that make the command line, run by themselves. */
function commandLine(env: Readonly<Record<string, string>>) {
  const lines = readFileSync(join(RECIPE, 'build.sh'), 'utf8')
    .split('\n')
    .filter((line) => /^(no_aml=|case \$\{AML|echo "console=)/.test(line));
  writeFileSync(join(folder.path, 'hash'), 'a'.repeat(64));
  const variables = { PATH: process.env.PATH ?? '', out: folder.path, work: folder.path, ...env };
  const { status, stderr } = spawnSync('bash', ['-euc', lines.join('\n')], { env: variables, encoding: 'utf8' });
  return status === 0 ? readFileSync(join(folder.path, 'cmdline'), 'utf8').trim() : stderr;
}

const marks = ({ ram }: Ended): string[] =>
  WITH_CODE.map((_, index) => ram.toString('latin1', MARKS_AT + 16 * index, MARKS_AT + 16 * index + 4)).filter(
    (mark) => mark !== '\0\0\0\0',
  );
const fadtMark = ({ ram }: Ended) => ram.toString('hex', FADT_MARK_AT, FADT_MARK_AT + 8);
const seen = ({ console: said }: Ended) =>
  Object.fromEntries([...said.matchAll(/^PROBE ([^:]+): ([^\r\n]*?) *\r?$/gm)].map(([, name, value]) => [name, value]));

describe('the command line of the recipe', () => {
  const NO_AML =
    'initcall_blacklist=acpi_init pci=lastbus=255 pcie_ports=compat reboot=t erst_disable bert_disable hest_disable';

  it("leaves the host's AML out, unless AML=1 asks for it; another value is refused", () => {
    const root = `roothash=${'a'.repeat(64)}`;
    expect(commandLine({})).toBe(`console=ttyS0 panic=-1 systemd.import_credentials=no ${NO_AML} ${root}`);
    expect(commandLine({ AML: '0', COMMAND_LINE: 'more' })).toMatch(/ hest_disable roothash=a{64} more$/);
    expect(commandLine({ AML: '1' })).toBe(`console=ttyS0 panic=-1 systemd.import_credentials=no ${root}`);
    expect(commandLine({ AML: 'no' })).toMatch(/AML is 0 or 1/);
  });
});

describe.each([
  ['trixie', "the image's own"],
  ['trixie-backports', 'the newest'],
  ['bookworm', 'the oldest'],
])("evil ACPI tables and Debian %s's kernel, %s", (suite, _which) => {
  const kernel = kernelOrNull(suite);
  const started = async (
    name: string,
    command_line: string,
    tables: readonly string[],
    devices: Pick<Start, 'more' | 'processors'> = {},
  ) => {
    if (kernel === null) throw new Error('there is no kernel');
    const ended = await boot({ kernel, command_line, tables, folder: join(folder.path, suite, name), ...devices });
    const said = ended.console.split('\n').filter((line) => /PROBE|REFUSED|Oops|BUG:/.test(line));
    console.log([`${kernel.release}, ${name}`, ...said.map((line) => line.trim())].join('\n'));
    return ended;
  };
  const withCode = () => WITH_CODE.map(evil);
  const line = commandLine({});

  it.skipIf(kernel === null)('control: the code of all three runs', { timeout: BOOT_MS }, async () => {
    const ended = await started('control', `${commandLine({ AML: '1' })} rdinit=/probe`, withCode());
    expect(marks(ended)).toEqual([...WITH_CODE]);
    expect(seen(ended)).toMatchObject({ acpi: 'runs', devices: 'EVIL0001:00 EVIL0001:01 EVIL0001:02' });
  });

  it.skipIf(kernel === null)(
    'none of it runs; disk, NVMe and network behind root ports and four processors work',
    { timeout: BOOT_MS },
    async () => {
      const disk = (name: string) => {
        const path = join(folder.path, `${suite}-${name}`);
        writeFileSync(path, Buffer.concat([Buffer.from(`disk ${name}`)], 1 << 20));
        return `if=none,id=${name},file=${path},format=raw`;
      };
      const port = (id: string, chassis: number) => [
        '-device',
        `pcie-root-port,id=${id},bus=pcie.0,chassis=${chassis}`,
      ];
      const ended = await started('defended', `${line} probe.devices rdinit=/probe`, withCode(), {
        processors: 4,
        more: [
          ...['-drive', disk('data'), '-device', 'virtio-blk-pci,drive=data'],
          ...[...port('port1', 1), '-drive', disk('nvme'), '-device', 'nvme,drive=nvme,serial=1,bus=port1'],
          ...[
            ...port('port2', 2),
            '-netdev',
            'user,id=net,restrict=on',
            '-device',
            'virtio-net-pci,netdev=net,bus=port2',
          ],
        ],
      });
      expect(marks(ended)).toEqual([]);
      expect(seen(ended)).toEqual({
        acpi: 'off',
        devices: '',
        processors: '4',
        vda: 'disk data',
        nvme0n1: 'disk nvme',
        ping: '3',
      });
    },
  );

  it.skipIf(kernel === null)(
    'a kernel whose acpi_init has another name: the code is found to run, and the guest refuses to start',
    { timeout: 2 * BOOT_MS },
    async () => {
      const ended = await started('renamed', line.replace('=acpi_init', '=acpi_other'), withCode());
      expect(marks(ended)).toEqual([...WITH_CODE]);
      expect(ended.console).toMatch(/countersign: REFUSED: ACPI runs in spite of the command line/);
      // By its right name the same guest is past that check.
      const right = await started('named', line.replace('roothash', 'roothush'), withCode());
      expect(right.console).toMatch(/countersign: REFUSED: the command line has no roothash/);
      expect(marks(right)).toEqual([]);
    },
  );

  it.skipIf(kernel === null)(
    'a forged FADT has Linux write to memory in the control run, and not otherwise',
    { timeout: 2 * BOOT_MS },
    async () => {
      const control = await started('FADT control', `${commandLine({ AML: '1' })} rdinit=/probe`, [forgedFadt()]);
      expect([fadtMark(control), seen(control).acpi]).toEqual(['ff'.repeat(8), 'runs']);
      const ended = await started('FADT', `${line} rdinit=/probe`, [forgedFadt()]);
      expect([fadtMark(ended), seen(ended).acpi]).toEqual(['00'.repeat(8), 'off']);
    },
  );
});
