// deploy/cvm: the image is the same bytes when it is built again, has no login, and starts nothing but its launch file. QEMU boots it without
// a TEE, in software alone.
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readReference } from '../../verify/cpu.ts';
import { temporaryFolder } from '../support/harness.ts';
import {
  BOOT_MS,
  type Boot,
  BUILD_MS,
  boot as bootImage,
  composeOf,
  disk as diskAt,
  launchOf,
  linesOf,
  RECIPE,
  run,
  sha256,
} from './guest.ts';
import { toolsOrNull } from './tools.ts';

const tools = toolsOrNull();

const folder = temporaryFolder();
afterAll(() => folder.remove());
const at = (...names: string[]) => join(folder.path, ...names);
const disk = (name: string, files: Readonly<Record<string, string>>) => diskAt(at(name), files);

/** Of the image that was built first. */
const boot = (options: Omit<Boot, 'image'>) => bootImage({ image: at('one'), ...options });

describe.skipIf(tools === null)('the image for confidential VMs', () => {
  const digest = (name: string) => `registry.invalid/${name}@sha256:${sha256(name)}`;
  const compose = composeOf({
    gateway: { image: digest('gateway') },
    sidecar: { image: digest('sidecar') },
    backend: { image: digest('backend'), command: ['model'] },
  });
  let launch = '';
  let good = '';

  beforeAll(() => {
    for (const name of ['one', 'two']) console.log(run(join(RECIPE, 'build.sh'), [at(name)]));
    launch = launchOf(compose);
    good = disk('good', { 'launch.json': launch, 'compose.json': compose });
  }, BUILD_MS);

  it('is bit for bit the same when it is built again', () => {
    const files = readdirSync(at('one')).sort();
    expect(files).toEqual(['cmdline', 'initrd', 'root.squashfs', 'root.verity', 'vmlinuz']);
    const digests = (name: string) => files.map((file) => [file, sha256(readFileSync(at(name, file)))]);
    expect(digests('two')).toEqual(digests('one'));
  });

  describe('as SEV-SNP measures it', () => {
    const reference = (name: string, env: Readonly<Record<string, string>> = {}) => {
      const PATH = `${tools?.bin}:${process.env.PATH}`;
      const args = [at(name), tools?.firmware ?? '', sha256(launch)];
      return readReference(run(join(RECIPE, 'reference.sh'), args, { VCPUS: '2 4', PATH, ...env }));
    };
    const measurements = (name: string, env = {}) =>
      reference(name, env).cpu.flatMap((guest) => (guest.type === 'SEV_SNP' ? guest.measurement : []));

    it('is a list that the verifier takes, of one value for each number of virtual processors', () => {
      const { cpu, launch: launches } = reference('one');
      expect([cpu[0]?.type, cpu[0]?.launch_in, launches]).toEqual(['SEV_SNP', 'host_data', [sha256(launch)]]);
      expect(new Set(measurements('one')).size).toBe(2);
      console.log(measurements('one').join('\n'));
    });

    it('is the same for the second build, and another for another command line, initrd or processor', () => {
      expect(measurements('two')).toEqual(measurements('one'));
      mkdirSync(at('other'));
      for (const file of ['cmdline', 'initrd', 'vmlinuz']) copyFileSync(at('one', file), at('other', file));
      const [two, four] = measurements('one');
      writeFileSync(at('other', 'cmdline'), `${readFileSync(at('one', 'cmdline'), 'utf8').trim()} init=/bin/sh\n`);
      expect(measurements('other')).not.toContain(two);
      copyFileSync(at('one', 'cmdline'), at('other', 'cmdline'));
      expect(measurements('other')).toEqual([two, four]);
      writeFileSync(at('other', 'initrd'), Buffer.concat([readFileSync(at('one', 'initrd')), Buffer.alloc(512)]));
      expect(measurements('other')).not.toContain(two);
      expect(measurements('one', { TYPES: 'EPYC-Milan' })).not.toContain(two);
    });
  });

  it('has no password, no shell to log in to, and no program that asks for either', () => {
    const list = run('unsquashfs', ['-l', at('one', 'root.squashfs')]);
    expect(list).toContain('/usr/lib/systemd/systemd\n');
    for (const program of ['agetty', 'login', 'su', 'sulogin', 'sshd', 'dropbear', 'apt', 'dpkg'])
      expect(list.split('\n').filter((path) => new RegExp(`/s?bin/${program}$`).test(path))).toEqual([]);
    const read = (path: string) => run('unsquashfs', ['-cat', at('one', 'root.squashfs'), path]);
    expect(read('etc/passwd').split('\n')[0]).toBe('root:x:0:0:root:/root:/usr/sbin/nologin');
    const open = read('etc/shadow')
      .split('\n')
      .filter((line) => line !== '' && !/^[^:]+:[!*]/.test(line));
    expect(open).toEqual([]);
    expect(read('etc/shadow')).toMatch(/^root:!/m);
    const entries = run('unsquashfs', ['-ll', at('one', 'root.squashfs')]);
    const masked = [...entries.matchAll(/\/etc\/systemd\/system\/(\S+)\.service -> \/dev\/null$/gm)].map(
      ([, unit]) => unit,
    );
    const gettys = ['getty@', 'serial-getty@', 'console-getty', 'container-getty@', 'autovt@'];
    expect(masked).toEqual(expect.arrayContaining([...gettys, 'debug-shell', 'emergency', 'rescue']));
  });

  describe('booted without a TEE', () => {
    const PANIC = /Kernel panic - not syncing: Attempted to kill init/;
    const refused = async (options: Omit<Boot, 'image'>, why: RegExp) => {
      const said = await boot(options);
      console.log(linesOf(said));
      expect(said).toMatch(why);
      expect(said).toMatch(PANIC);
      expect(said).not.toContain('systemd[1]');
    };

    it('refuses to start where nothing says which launch file is right', { timeout: BOOT_MS }, () =>
      refused({ config: good }, /REFUSED: nothing says which launch file is right/),
    );

    it('refuses another launch file', { timeout: BOOT_MS }, () =>
      refused(
        { config: good, launch: '00'.repeat(32) },
        new RegExp(`REFUSED: the launch file is ${sha256(launch)}, and the command line says 0{64}`),
      ),
    );

    it('refuses another compose file', { timeout: BOOT_MS }, async () => {
      const config = disk('compose', { 'launch.json': launch, 'compose.json': `${compose}\n` });
      await refused({ config, launch: sha256(launch) }, /REFUSED: compose\.json is not the one of the launch file/);
    });

    it('refuses to start without a launch file', { timeout: BOOT_MS }, async () => {
      await refused({ config: null, launch: sha256(launch) }, /REFUSED: there is no third disk/);
      const config = disk('half', { 'compose.json': compose });
      await refused({ config, launch: sha256(launch) }, /REFUSED: the third disk has no launch\.json/);
    });

    it('panics at the first block of its root that somebody changed', { timeout: BOOT_MS }, async () => {
      const root = at('changed.squashfs');
      copyFileSync(at('one', 'root.squashfs'), root);
      // When it was made, which nobody but dm-verity looks at: with any other time the root can be mounted and starts.
      const file = openSync(root, 'r+');
      writeSync(file, Buffer.alloc(4, 0x7f), 0, 4, 8);
      closeSync(file);
      const said = await boot({ config: good, launch: sha256(launch), root, until: /systemd\[1\]/ });
      expect(said).toMatch(/device-mapper: verity: \S+ data block 0 is corrupted/);
      expect(said).toMatch(/Kernel panic - not syncing: dm-verity device corrupted/);
      expect(said).not.toContain('systemd[1]');
    });

    it('starts what its launch file names, offers no login, and takes no unit from its host', {
      timeout: BOOT_MS,
    }, async () => {
      const unit =
        '[Service]\nType=oneshot\nExecStart=/bin/sh -c "echo THE-HOST-WAS-HERE >/dev/console"\n[Install]\nWantedBy=sysinit.target\n';
      writeFileSync(at('unit'), unit);
      const dropin = Buffer.from('[Unit]\nWants=p.service\n').toString('base64');
      const said = await boot({
        config: good,
        launch: sha256(launch),
        more: [
          ...['-fw_cfg', `name=opt/io.systemd.credentials/systemd.extra-unit.p.service,file=${at('unit')}`],
          ...['-smbios', `type=11,value=io.systemd.credential.binary:systemd.unit-dropin.multi-user.target=${dropin}`],
        ],
        until: /registry\.invalid[\s\S]*registry\.invalid[\s\S]*\n/,
      });
      console.log(said.split('\n').slice(-25).join('\n'));
      expect(said).toContain(`countersign: launch file ${sha256(launch)} is the one of the command line`);
      // There is no network: that Docker asks for the images is as far as it gets.
      expect(said).toMatch(/registry\.invalid/);
      expect(said).not.toContain('THE-HOST-WAS-HERE');
      expect(said).not.toMatch(/login:|Press Enter for maintenance|sh: can't access tty/);
    });
  });
});
