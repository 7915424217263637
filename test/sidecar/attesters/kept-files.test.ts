// The folder of what was fetched: its format, its limits, and what it leaves alone.
import { hash } from 'node:crypto';
import { readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createKeptFiles } from '../../../sidecar/common/kept-files.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
const said: string[] = [];
const create = (limits: { readonly max_files?: number; readonly max_bytes?: number } = {}) =>
  createKeptFiles({
    folder: folder.path,
    magic: 'test 1 ',
    kinds: ['rim', 'ocsp'],
    max_file_bytes: 1000,
    onFailure: (message) => said.push(message),
    ...limits,
  });
const fileOf = (kind: string, id: string) => join(folder.path, `${kind}-${hash('sha256', id)}`);
/** Written so many seconds ago. */
const age = (file: string, seconds: number) =>
  utimesSync(file, Date.now() / 1000 - seconds, Date.now() / 1000 - seconds);

beforeEach(() => {
  folder = temporaryFolder();
  said.length = 0;
});
afterEach(() => folder.remove());

test('a file is its magic, the checksum of the rest, the id and the contents', async () => {
  const contents = Buffer.of(0, 10, 255);
  await create().write('rim', 'an id', contents);
  const rest = Buffer.concat([Buffer.from('an id\n'), contents]);
  const expected = Buffer.concat([Buffer.from(`test 1 ${hash('sha256', rest)}\n`), rest]);
  expect(readFileSync(fileOf('rim', 'an id'))).toEqual(expected);
  expect(await create().read('rim', 'an id')).toEqual(new Uint8Array(contents));
  expect(await create().read('ocsp', 'an id')).toBeNull();
});

test('the files that were not written for longest go, by number and by size', async () => {
  for (const limits of [{ max_files: 2 }, { max_bytes: 2 * 300 }]) {
    const files = create(limits);
    for (const [i, id] of ['a', 'b', 'c'].entries()) {
      await files.write('rim', id, new Uint8Array(200));
      age(fileOf('rim', id), 10 - i);
    }
    expect(readdirSync(folder.path).sort()).toEqual(
      [`rim-${hash('sha256', 'b')}`, `rim-${hash('sha256', 'c')}`].sort(),
    );
  }
});

test('a half-written file of a process that was killed goes; a new one, and files that are not ours, stay', async () => {
  const [old, young, other] = [
    `${fileOf('rim', 'x')}.1.tmp`,
    `${fileOf('rim', 'y')}.2.tmp`,
    join(folder.path, 'a.tmp'),
  ];
  for (const file of [old, young, other]) writeFileSync(file, 'half');
  for (const file of [old, other]) age(file, 3600);
  await create().write('ocsp', 'z', new Uint8Array(1));
  expect(readdirSync(folder.path).map((name) => join(folder.path, name))).not.toContain(old);
  expect(readdirSync(folder.path).map((name) => join(folder.path, name))).toEqual(
    expect.arrayContaining([young, other]),
  );
});

test('a damaged file, one of something else, and one that is too large are said and removed', async () => {
  const files = create();
  await files.write('rim', 'right', new Uint8Array(9));
  await files.write('rim', 'damaged', new Uint8Array(9));
  writeFileSync(fileOf('rim', 'damaged'), 'nothing of the kind');
  writeFileSync(fileOf('rim', 'exchanged'), readFileSync(fileOf('rim', 'right')));
  writeFileSync(fileOf('rim', 'large'), Buffer.alloc(1001));
  for (const id of ['damaged', 'exchanged', 'large']) expect(await files.read('rim', id)).toBeNull();
  expect(said).toEqual([
    expect.stringContaining('is damaged (its checksum is another)'),
    expect.stringContaining('is damaged (it is of something else)'),
    expect.stringContaining('is damaged (too large)'),
  ]);
  expect(readdirSync(folder.path)).toEqual([`rim-${hash('sha256', 'right')}`]);
});
