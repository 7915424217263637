// `countersign weights` without its programs: what it refuses, and the stream that it gives to mkfs.erofs. test/cvm makes real volumes.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type Entry, listFolder } from '../../auditor/weights/folder.ts';
import { type FileDigest, tarOf } from '../../auditor/weights/tar.ts';
import { temporaryFolder } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const at = (...names: string[]) => join(folder.path, ...names);
const sha256 = (data: string | Buffer) => createHash('sha256').update(data).digest('hex');
const paths = (entries: readonly Entry[]) => entries.map(({ path }) => path);

beforeEach(() => {
  rmSync(at('w'), { recursive: true, force: true });
  mkdirSync(at('w', 'a'), { recursive: true });
  mkdirSync(at('w', 'a-b'));
  writeFileSync(at('w', 'config.json'), '{}');
  writeFileSync(at('w', 'a', 'z'), 'z');
  writeFileSync(at('w', 'a-b', 'y'), 'y');
});

async function tar(entries: readonly Entry[], onFile: (file: FileDigest) => void = () => {}): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of tarOf(entries, onFile)) parts.push(part);
  return Buffer.concat(parts);
}

describe('a folder of weights', () => {
  it('is listed in the order of its names, each folder before what is in it', () => {
    expect(paths(listFolder(at('w')))).toEqual(['', 'a', 'a/z', 'a-b', 'a-b/y', 'config.json']);
  });

  it("may be a snapshot of a hub's cache, whose files are links into the same repository", () => {
    const repository = at('w', 'models--acme--tiny');
    mkdirSync(join(repository, 'snapshots', '0123'), { recursive: true });
    mkdirSync(join(repository, 'blobs'));
    writeFileSync(join(repository, 'blobs', 'abc'), 'weights');
    const link = join(repository, 'snapshots', '0123', 'model.safetensors');
    symlinkSync('../../blobs/abc', link);
    expect(paths(listFolder(join(repository, 'snapshots', '0123')))).toEqual(['', 'model.safetensors']);
    // Out of the repository, though still in the cache.
    writeFileSync(at('w', 'elsewhere'), 'x');
    symlinkSync('../../../elsewhere', join(repository, 'snapshots', '0123', 'other'));
    expect(() => listFolder(join(repository, 'snapshots', '0123'))).toThrow(
      /other: leads out of .*models--acme--tiny$/,
    );
    rmSync(join(repository, 'snapshots', '0123', 'other'));
    expect(listFolder(join(repository, 'snapshots', '0123'))).toHaveLength(2);
  });

  it.each<[string, () => void, RegExp]>([
    ['a link out of it', () => symlinkSync('/etc/hostname', at('w', 'x')), /x: leads out of /],
    [
      'a link out of it that begins like it',
      () => {
        mkdirSync(at('w2'), { recursive: true });
        symlinkSync('../w2', at('w', 'x'));
      },
      /x: leads out of /,
    ],
    ['a link to nothing', () => symlinkSync('nothing', at('w', 'x')), /x: there is no such file/],
    ['a link back to a folder that it is in', () => symlinkSync('..', at('w', 'a', 'x')), /x: leads back to a folder/],
    ['a line break in a name', () => writeFileSync(at('w', 'a\nb'), ''), /a name in it has a line break/],
    ['an escape in a name', () => writeFileSync(at('w', 'a\x1b[2J'), ''), /a name in it has a line break/],
    ['a mark that turns text around', () => writeFileSync(at('w', 'a\u202eb'), ''), /a name in it has a line break/],
    ['a name that is not UTF-8', () => writeFileSync(Buffer.from(`${at('w')}/\xff`, 'latin1'), ''), /not UTF-8/],
    ['a pipe', () => execFileSync('mkfifo', [at('w', 'x')]), /x: neither a file nor a folder/],
    ["a hub client's own folder", () => mkdirSync(at('w', '.cache')), /\.cache: no weights/],
    [
      'no files',
      () => {
        for (const name of readdirSync(at('w'))) rmSync(at('w', name), { recursive: true });
      },
      /no files in it/,
    ],
  ])('is refused with %s', (_what, spoil, why) => {
    expect(listFolder(at('w'))).toHaveLength(6);
    spoil();
    expect(() => listFolder(at('w'))).toThrow(why);
  });
});

describe('the stream', () => {
  it('holds every file, of root, of no time and with one mode, whatever they are on the disk', async () => {
    const long = 'n'.repeat(200);
    mkdirSync(at('w', long));
    writeFileSync(at('w', long, `é ${long}`), Buffer.alloc(1500, 7));
    const files: FileDigest[] = [];
    const first = await tar(listFolder(at('w')), (file) => files.push(file));
    const seven = { path: `${long}/é ${long}`, size: 1500, sha256: sha256(Buffer.alloc(1500, 7)) };
    expect(files).toEqual([
      { path: 'a/z', size: 1, sha256: sha256('z') },
      { path: 'a-b/y', size: 1, sha256: sha256('y') },
      { path: 'config.json', size: 2, sha256: sha256('{}') },
      seven,
    ]);
    mkdirSync(at('out'));
    expect(spawnSync('tar', ['-xf', '-', '-C', at('out')], { input: first }).stderr.toString()).toBe('');
    expect(readFileSync(at('out', seven.path))).toEqual(Buffer.alloc(1500, 7));
    expect(paths(listFolder(at('out')))).toEqual(paths(listFolder(at('w'))));
    const listed = spawnSync('tar', ['-tvf', '-', '--numeric-owner', '--utc', '--quoting-style=escape'], {
      input: first,
    });
    const lines = listed.stdout.toString().trim().split('\n');
    for (const line of lines) expect(line).toMatch(/^(drwxr-xr-x|-rw-r--r--) 0\/0 +\d+ 1970-01-01 00:00 \.\//);
    chmodSync(at('w', 'config.json'), 0o777);
    chmodSync(at('w', 'a'), 0o700);
    utimesSync(at('w', 'a', 'z'), 1, 1);
    expect(sha256(await tar(listFolder(at('w'))))).toBe(sha256(first));
  });

  it('gives sizes beyond 8 GiB in a record of their own', async () => {
    const [, , file] = listFolder(at('w'));
    const stream = tarOf([{ ...(file as Entry), size: 9 * 2 ** 30 }], () => {});
    const { value } = await stream.next();
    expect((value as Buffer).toString('latin1')).toMatch(/\n19 size=9663676416\n/);
    await expect(stream.next()).resolves.toMatchObject({ done: false });
    await expect(stream.next()).rejects.toThrow('a/z: changed while it was read');
  });

  it('ends where a file changes between the list and its end', async () => {
    const entries = listFolder(at('w'));
    appendFileSync(at('w', 'a-b', 'y'), 'more');
    await expect(tar(entries)).rejects.toThrow('a-b/y: changed while it was read');
    const again = listFolder(at('w'));
    const stream = tarOf(again, () => {});
    // The header and the bytes of a/z, and nothing yet about its end.
    for (let i = 0; i < 4; i++) await stream.next();
    writeFileSync(at('w', 'a', 'z'), 'Z');
    await expect(stream.next()).rejects.toThrow('a/z: changed while it was read');
    await expect(tar(listFolder(at('w')))).resolves.toBeInstanceOf(Buffer);
  });
});

describe('countersign weights', () => {
  const weights = async (args: readonly string[], PATH = process.env.PATH ?? '') => {
    const child = startProcess('bin/countersign.js', ['weights', ...args], { PATH });
    return { code: (await child.exited).code, output: child.output() };
  };
  const NAME = ['--name', 'acme/tiny@0123'];

  it.each<[string, string[], RegExp]>([
    ['no name', ['w', '-o', 'out'], /needs --name ORG\/MODEL@REVISION/],
    ['a name without its revision', ['w', '--name', 'acme/tiny', '-o', 'out'], /needs --name/],
    ['a name with a quote', ['w', '--name', 'acme/"@0', '-o', 'out'], /needs --name/],
    ['no place for the volume', ['w', ...NAME], /needs -o OUT/],
    ['no folder', [...NAME, '-o', 'out'], /a FILE is needed/],
    ['a name beside --check', ['w', ...NAME, '--check', 'x'], /--check takes the name from FILE/],
    ['a file that it did not write', ['w', '--check', '/etc/hostname'], /not what countersign weights wrote/],
  ])('refuses %s', async (_what, args, why) => {
    const { code, output } = await weights(args);
    expect([code, output]).toEqual([2, expect.stringMatching(why)]);
  });

  it('says which package has the programs that are missing, and keeps nothing', async () => {
    const before = readdirSync(folder.path);
    const { code, output } = await weights([at('w'), ...NAME, '-o', at('volume')], '/nowhere');
    expect(code).toBe(2);
    // Where /usr/sbin has Debian 12's, it is too old.
    expect(output).toMatch(/mkfs\.erofs is (not installed|1\.[0-7])[\s\S]*next: Debian 13 has both programs/);
    expect(readdirSync(folder.path)).toEqual(before);
  });

  it('refuses older programs, and what they say when they fail, and keeps nothing', async () => {
    mkdirSync(at('bin'));
    const program = (name: string, text: string) => {
      writeFileSync(at('bin', name), `#!/bin/sh\n${text}\n`);
      chmodSync(at('bin', name), 0o755);
    };
    const PATH = `${at('bin')}:${process.env.PATH}`;
    const make = () => weights([at('w'), ...NAME, '-o', at('volume')], PATH);
    program('veritysetup', 'echo "veritysetup 2.7.5"');
    program('mkfs.erofs', 'echo "mkfs.erofs 1.8.5"');
    const before = readdirSync(folder.path);
    expect((await make()).output).toMatch(/mkfs\.erofs is 1\.8\.5, and makes another image than 1\.8\.6/);
    program('mkfs.erofs', '[ "$1" = -V ] && exec echo "mkfs.erofs (erofs-utils) 1.8.6"; echo "no room" >&2; exit 3');
    expect((await make()).output).toMatch(/mkfs\.erofs ended with 3: no room/);
    expect(readdirSync(folder.path)).toEqual(before);
  });
});
