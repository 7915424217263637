// Weights from a folder to a guest: `countersign weights` with Debian 13's programs, and what deploy/cvm does with right and wrong volumes.
// QEMU boots the guest without a TEE, in software alone.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  cpSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkEventLog, runtimePayload } from '../../verify/cpu/evidence/event-log.ts';
import { temporaryFolder } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';
import { BOOT_MS, BUILD_MS, boot, composeOf, disk, launchOf, linesOf, RECIPE, run, sha256 } from './guest.ts';
import { weightsToolsOrNull } from './tools.ts';
import { countersignWeights, type Made, makeWeights } from './volumes.ts';

const bin = weightsToolsOrNull();
const folder = temporaryFolder();
afterAll(() => folder.remove());
const at = (...names: string[]) => join(folder.path, ...names);
const PATH = `${bin}:${process.env.PATH}`;
const NAME = 'acme/tiny@0123456789abcdef';

const weights = (...args: string[]) => countersignWeights(bin ?? '', ...args);
const make = (source: string, out: string, name = NAME) => makeWeights(bin ?? '', source, out, name);
const digests = ({ disks }: Made) => disks.map((file) => sha256(readFileSync(file)));

/** What a model's folder holds, with bytes that no file system needs. */
function writeModel(path: string, seed = 1): void {
  mkdirSync(join(path, 'tokenizer'), { recursive: true });
  writeFileSync(join(path, 'config.json'), JSON.stringify({ model_type: 'tiny', seed }));
  writeFileSync(join(path, 'tokenizer', 'vocab.txt'), 'a\nb\n');
  const noise = Buffer.alloc(1_500_000);
  for (let i = 0, state = seed; i < noise.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    noise[i] = state >>> 24;
  }
  writeFileSync(join(path, 'model.safetensors'), noise);
}

/** A copy of a file, with another byte where `offset` says. */
function flipped(file: string, offset: number): string {
  const copy = `${file}.${offset}`;
  cpSync(file, copy);
  const opened = openSync(copy, 'r+');
  const byte = Buffer.alloc(1);
  readSync(opened, byte, 0, 1, offset);
  writeSync(opened, Buffer.of((byte[0] ?? 0) ^ 1), 0, 1, offset);
  closeSync(opened);
  return copy;
}

describe.skipIf(bin === null)('countersign weights', () => {
  let first: Made;
  beforeAll(async () => {
    writeModel(at('model'));
    first = await make(at('model'), at('first'));
  });

  it('gives the same files the same root, whatever their order, times, modes, and links', async () => {
    // As a hub's client keeps it, and written in another order.
    const repository = at('hub', 'models--acme--tiny');
    const snapshot = join(repository, 'snapshots', '0123');
    mkdirSync(join(snapshot, 'tokenizer'), { recursive: true, mode: 0o700 });
    mkdirSync(join(repository, 'blobs'));
    for (const [i, path] of ['model.safetensors', 'tokenizer/vocab.txt', 'config.json'].entries()) {
      cpSync(at('model', path), join(repository, 'blobs', String(i)));
      utimesSync(join(repository, 'blobs', String(i)), i, i);
      symlinkSync(join(repository, 'blobs', String(i)), join(snapshot, path));
    }
    const second = await make(snapshot, at('second'));
    expect(second.verity_root).toBe(first.verity_root);
    expect(digests(second)).toEqual(digests(first));
    const info = readFileSync(at('first', 'weights.json'), 'utf8');
    expect(readFileSync(at('second', 'weights.json'), 'utf8')).toBe(info);
    const { name, revision, verity_root, files, sizes } = JSON.parse(info);
    expect([name, revision, verity_root]).toEqual([NAME, '0123456789abcdef', first.verity_root]);
    expect(files[1]).toEqual({
      path: 'model.safetensors',
      size: 1_500_000,
      sha256: sha256(readFileSync(at('model', 'model.safetensors'))),
    });
    expect(sizes.image).toBe(statSync(first.disks[0]).size);
    run(join(bin ?? '', 'fsck.erofs'), ['--extract', first.disks[0]]);
  });

  it("is what the page's commands make, and what Modelwrap's do", () => {
    const page = readFileSync(new URL('../../docs/weights.md', import.meta.url), 'utf8');
    const [, commands = ''] = /```sh\n(name=[\s\S]*?)```/.exec(page) ?? [];
    const script = commands.replace(/^name=.*$/m, `name=${NAME} DIR=${at('model')}`);
    mkdirSync(at('by-hand'));
    const made = spawnSync('bash', ['-euo', 'pipefail', '-c', script], {
      cwd: at('by-hand'),
      env: { ...process.env, PATH },
      encoding: 'utf8',
    });
    expect([made.stderr, made.stdout]).toEqual(['', expect.stringContaining(first.verity_root)]);
    const { parameters } = JSON.parse(readFileSync(at('first', 'weights.json'), 'utf8'));
    run(join(bin ?? '', 'mkfs.erofs'), [
      '--quiet',
      '--all-root',
      '-T0',
      `-U${parameters.uuid}`,
      at('modelwrap'),
      at('model'),
    ]);
    expect(sha256(readFileSync(at('modelwrap')))).toBe(digests(first)[0]);
  });

  it('gives another root for another byte, and for another name', async () => {
    writeModel(at('other'), 2);
    const roots = [
      first.verity_root,
      (await make(at('other'), at('out-other'))).verity_root,
      (await make(at('model'), at('out-name'), 'acme/tiny@1')).verity_root,
    ];
    expect(new Set(roots).size).toBe(3);
  });

  it('makes it again with --check, says what differs, and keeps nothing', async () => {
    const file = at('first', 'weights.json');
    const same = await weights(at('model'), '--check', file);
    expect(same).toEqual({ code: 0, output: `${first.verity_root}\nthe same: ${NAME}\n` });
    cpSync(at('model'), at('changed'), { recursive: true });
    rmSync(at('changed', 'config.json'));
    writeFileSync(at('changed', 'tokenizer', 'vocab.txt'), 'c\n');
    writeFileSync(at('changed', 'more'), '');
    const { code, output } = await weights(at('changed'), '--check', file);
    expect(code).toBe(1);
    expect(output).toContain(`not the root of ${NAME} in the file: ${first.verity_root}`);
    expect(output.trim().split('\n').slice(2).sort()).toEqual([
      '"config.json": missing',
      '"more": not in the file',
      '"tokenizer/vocab.txt": other bytes',
    ]);
    expect(readdirSync(at('first')).sort()).toEqual(['weights.erofs', 'weights.json', 'weights.verity']);
  });

  it('refuses a folder that changes while it is read, and keeps nothing; then takes it', async () => {
    cpSync(at('model'), at('moving'), { recursive: true });
    // Between the stream's end and the second look: mkfs.erofs is slow, and somebody adds a file.
    mkdirSync(at('slow'));
    const slow = `#!/bin/sh\n[ "$1" = -V ] || touch ${at('moving', 'late')}\nexec ${join(bin ?? '', 'mkfs.erofs')} "$@"\n`;
    writeFileSync(at('slow', 'mkfs.erofs'), slow, { mode: 0o755 });
    const before = readdirSync(folder.path).sort();
    const child = startProcess('bin/countersign.js', ['weights', at('moving'), '--name', NAME, '-o', at('late')], {
      PATH: `${at('slow')}:${PATH}`,
    });
    expect((await child.exited).code).toBe(2);
    expect(child.output()).toMatch(/moving: changed while it was read/);
    expect(readdirSync(folder.path).sort()).toEqual(before);
    rmSync(at('moving', 'late'));
    expect((await make(at('moving'), at('late'))).verity_root).toBe(first.verity_root);
    const again = await weights(at('moving'), '--name', NAME, '-o', at('late'));
    expect([again.code, again.output]).toEqual([2, expect.stringMatching(/late: is there already/)]);
  });
});

describe.skipIf(bin === null)('the weights of a guest', () => {
  const digest = (name: string) => `registry.invalid/${name}@sha256:${sha256(name)}`;
  const compose = composeOf({ backend: { image: digest('backend') } });
  let image = '';
  let one: Made;
  let two: Made;

  beforeAll(async () => {
    // In the image of this test alone: a unit that reads all weights before Docker starts.
    const files = at('files');
    mkdirSync(join(files, 'etc/systemd/system/sysinit.target.wants'), { recursive: true });
    const unit = [
      ...['[Unit]', 'DefaultDependencies=no', 'Before=sysinit.target', '[Service]', 'Type=oneshot'],
      'ExecStart=/bin/sh -c "mount | grep /run/weights >/dev/console; cd /run/weights && sha256sum */model.safetensors >/dev/console 2>&1; touch */config.json 2>/dev/console"',
    ];
    writeFileSync(join(files, 'etc/systemd/system/read-weights.service'), unit.join('\n'));
    symlinkSync('../read-weights.service', join(files, 'etc/systemd/system/sysinit.target.wants/read-weights.service'));
    image = at('image');
    console.log(run(join(RECIPE, 'build.sh'), [image], { FILES: files }));
    writeModel(at('one'), 1);
    writeModel(at('two'), 2);
    one = await make(at('one'), at('volume-one'), 'acme/one@1');
    two = await make(at('two'), at('volume-two'), 'acme/two@2');
  }, BUILD_MS);

  let disks = 0;
  /** A guest of this launch file. */
  const start = (launch: string, more: Omit<Parameters<typeof boot>[0], 'image' | 'config'>, text = compose) => {
    const config = disk(at(`config-${disks++}`), { 'launch.json': launch, 'compose.json': text });
    return boot({ image, config, launch: sha256(launch), ...more });
  };
  const named = ({ name, verity_root }: Made) => ({ name, verity_root });
  const PANIC = /Kernel panic - not syncing: Attempted to kill init/;
  const STARTED = /systemd\[1\]/;

  const READ = (weights: Made, seed: number) => {
    writeModel(at(`seed-${seed}`), seed);
    const hash = sha256(readFileSync(at(`seed-${seed}`, 'model.safetensors')));
    return new RegExp(`${hash}\\s+${weights.verity_root}/model\\.safetensors`);
  };
  /** What is good, after something that was not. */
  const good = async () => {
    const said = await start(launchOf(compose, [one, two].map(named)), {
      disks: [...one.disks, ...two.disks],
      until: /Read-only file system\s/,
    });
    console.log(linesOf(said));
    return said;
  };

  it('are mounted read-only by their roots, each where its root says, before anything starts', {
    timeout: BOOT_MS,
  }, async () => {
    const said = await good();
    for (const { name, verity_root } of [one, two]) {
      expect(said).toContain(`countersign: weights ${name} ${verity_root}`);
      expect(said).toMatch(new RegExp(`on /run/weights/${verity_root} type erofs \\(ro,nosuid,nodev,noexec,`));
    }
    expect(said).toMatch(READ(one, 1));
    expect(said).toMatch(READ(two, 2));
    expect(said).toMatch(/touch: .*Read-only file system/);
  });

  it("have TDX's register RTMR3 extended with the launch file's digest, by an event that verifiers replay", async () => {
    const first = at('initrd');
    mkdirSync(first);
    run('sh', ['-c', `gzip -dc ${join(image, 'initrd')} | cpio -idm --quiet -D ${first}`]);
    // The kernel extends by what is written to its file; here a file keeps it.
    const launch = sha256('a launch file');
    run('chroot', [first, '/rtmr3.sh', '/register', launch, '/log']);
    const written = readFileSync(join(first, 'register'));
    expect(written).toHaveLength(48);
    const zero = Buffer.alloc(48);
    const extended = createHash('sha384').update(zero).update(written).digest();
    const { value } = await checkEventLog([zero, zero, zero, extended], readFileSync(join(first, 'log')));
    expect(value.explainsRtmr3).toBe(true);
    const payload = runtimePayload(value.events, 'countersign-launch');
    expect(Buffer.from(payload ?? []).toString('hex')).toBe(launch);
  });

  const LAUNCHES: [string, () => string, RegExp][] = [
    [
      'version 3',
      () => launchOf(compose, [one].map(named), { version: 3 }),
      /launch\.json is no launch file of version 2/,
    ],
    ['version 1', () => JSON.stringify({ version: 1, compose_sha256: sha256(compose) }), /no launch file of version 2/],
    [
      'a text that is not the one its digest names',
      () => launchOf(compose, [one].map(named), { compose: compose.replace('backend', 'backdoor') }),
      /the text in launch\.json is not the compose\.json that its digest names/,
    ],
    [
      'a digest that is not the one of its text',
      () => launchOf(compose, [one].map(named), { compose_sha256: sha256('other') }),
      /compose\.json is not the one of the launch file/,
    ],
    [
      'a root that is not 64 digits',
      () => launchOf(compose, [{ name: one.name, verity_root: one.verity_root.slice(1) }]),
      /a verity_root that is not 64 hexadecimal digits/,
    ],
    [
      'a root in capitals',
      () => launchOf(compose, [{ name: one.name, verity_root: `${one.verity_root.slice(0, -1)}A` }]),
      /a verity_root that is not 64 hexadecimal digits/,
    ],
    [
      'no root',
      () => launchOf(compose, [{ name: one.name } as Made]),
      /a verity_root that is not 64 hexadecimal digits/,
    ],
  ];
  it.each(LAUNCHES)('are refused by a launch file of %s', { timeout: BOOT_MS }, async (_what, launch, why) => {
    const said = await start(launch(), { disks: one.disks, until: STARTED });
    console.log(linesOf(said));
    expect(said).toMatch(why);
    expect(said).toMatch(PANIC);
    expect(said).not.toMatch(STARTED);
  });

  const shorter = (file: string, bytes: number) => {
    const copy = `${file}.short`;
    cpSync(file, copy);
    truncateSync(copy, statSync(file).size - bytes);
    return copy;
  };
  const DISKS: [string, () => readonly string[], RegExp][] = [
    ['a disk too few', () => one.disks.slice(0, 1), /the launch file needs 5 disks, and there are 4/],
    ['a disk that nobody named', () => [...one.disks, two.disks[0]], /the launch file needs 5 disks, and there are 6/],
    ['the volume of another root', () => two.disks, /metadata block 1 is corrupted[\s\S]*dm-verity device corrupted/],
    [
      "another root's tree",
      () => [one.disks[0], two.disks[1]],
      /metadata block 1 is corrupted[\s\S]*dm-verity device corrupted/,
    ],
    [
      'a flipped byte in its superblock',
      () => [flipped(one.disks[0], 1100), one.disks[1]],
      /data block 0 is corrupted/,
    ],
    ['a flipped byte in its tree', () => [one.disks[0], flipped(one.disks[1], 4100)], /metadata block 1 is corrupted/],
    [
      'a disk that ends early',
      () => [shorter(one.disks[0], 4096), one.disks[1]],
      /weights acme\/one@1: vdd has \d+ blocks, and the file system on it \d+/,
    ],
    [
      'a tree that ends early',
      () => [one.disks[0], shorter(one.disks[1], 8192)],
      /vdd and vde are no volume with its hash tree/,
    ],
  ];
  it.each(DISKS)('are refused with %s', { timeout: BOOT_MS }, async (_what, spoiled, why) => {
    const said = await start(launchOf(compose, [named(one)]), { disks: spoiled(), until: STARTED });
    console.log(linesOf(said));
    expect(said).toMatch(why);
    expect(said).toMatch(/Kernel panic/);
    expect(said).not.toMatch(STARTED);
  });

  it('are refused under another name, and a root that is given twice', { timeout: BOOT_MS }, async () => {
    const other = await start(launchOf(compose, [{ ...named(one), name: 'acme/other@1' }]), {
      disks: one.disks,
      until: STARTED,
    });
    expect(other).toMatch(/metadata block 1 is corrupted[\s\S]*dm-verity device corrupted/);
    const twice = await start(launchOf(compose, [named(one), { ...named(one), name: 'acme/other@1' }]), {
      disks: [...one.disks, ...one.disks],
      until: STARTED,
    });
    expect(twice).toMatch(/weights acme\/other@1: another entry has the same verity_root/);
    for (const said of [other, twice]) expect(said).not.toMatch(STARTED);
  });

  it('end the guest at the first read of a byte that somebody changed, and nothing before', {
    timeout: BOOT_MS,
  }, async () => {
    const size = statSync(one.disks[0]).size;
    const said = await start(launchOf(compose, [named(one)]), {
      disks: [flipped(one.disks[0], size - 5000), one.disks[1]],
      until: READ(one, 1),
    });
    console.log(linesOf(said));
    expect(said).toMatch(STARTED);
    expect(said).toMatch(
      /verity: \S+ data block \d+ is corrupted[\s\S]*Kernel panic - not syncing: dm-verity device corrupted/,
    );
    expect(said).not.toMatch(READ(one, 1));
    expect(await good()).toMatch(READ(one, 1));
  });
});
