// The GPU's part of the QEMU lines in deploy/cvm and docs/nodes, as QEMU reads it: with a device that any machine has in the GPU's place.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { debianProgram, MissingPart } from '../support/debian.ts';

function qemuOrNull(): string | null {
  try {
    return debianProgram('qemu-system-x86_64', 'qemu-system-x86');
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: the GPU in QEMU's lines: this machine lacks ${error.message}`);
    return null;
  }
}
const qemu = qemuOrNull();

/** Options of a page's line that give the guest its GPU. */
const optionsOf = (page: string): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/-(?:device (?:pcie-root-port|vfio-pci)|fw_cfg) ?[^\s`]*/g)].flatMap(
    ([option]) => option.split(' '),
  );

/** @returns QEMU's list of devices of a guest with these options. */
function guest(options: readonly string[]) {
  const args = [
    '-machine',
    'q35',
    '-m',
    '64',
    '-display',
    'none',
    '-nodefaults',
    '-S',
    '-monitor',
    'stdio',
    ...options,
  ];
  const { status, stdout, stderr } = spawnSync(qemu ?? '', args, {
    input: 'info qtree\nquit\n',
    encoding: 'utf8',
    timeout: 30_000,
  });
  return { status, devices: stdout, said: stderr };
}

describe.skipIf(qemu === null)('the GPU of the guest', () => {
  it.each(['deploy/cvm/README.md', 'docs/nodes/bare-metal-tdx.md'])(
    '%s: has a root port of its own, and room for its memory',
    (page) => {
      const options = optionsOf(page);
      expect(options).toEqual([
        '-device',
        expect.stringMatching(/^pcie-root-port,id=gpu0,/),
        '-device',
        expect.stringMatching(/^vfio-pci,host=[\w:.]+,bus=gpu0/),
        '-fw_cfg',
        'name=opt/ovmf/X-PciMmio64Mb,string=262144',
      ]);
      const here = options.map((option) => option.replace(/^vfio-pci,host=[^,]+/, 'virtio-rng-pci'));
      const { status, devices, said } = guest(here);
      expect([said, status]).toEqual(['', 0]);
      expect(devices).toMatch(/dev: pcie-root-port, id "gpu0"[\s\S]*bus: gpu0[\s\S]*dev: virtio-rng-pci/);
      // A port that is not there is refused, and a value that is none.
      expect(guest(here.map((option) => option.replace('bus=gpu0', 'bus=gpu1'))).status).toBe(1);
      expect(guest(here.map((option) => option.replace('string=', 'strings='))).status).toBe(1);
    },
  );
});
