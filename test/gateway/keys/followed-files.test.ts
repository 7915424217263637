import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { followFiles } from '../../../gateway/keys/followed-files.ts';
import { eventually, type Folder, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder.remove());

it('a changed file is read once it rests, and not while it is being written', async () => {
  const file = join(folder.path, 'file');
  writeFileSync(file, 'before\n');
  const read: string[] = [];
  const close = followFiles((text) => void read.push(text(file)), 300);
  writeFileSync(file, '');
  let lines = 0;
  await new Promise<void>((resolve) => {
    const writing = setInterval(() => {
      appendFileSync(file, 'line\n');
      if (++lines < 60) return;
      clearInterval(writing);
      resolve();
    }, 20);
  });
  expect(read).toEqual(['before\n']);
  await eventually(() => read.length > 1);
  expect(read[1]).toBe('line\n'.repeat(lines));
  writeFileSync(file, 'after\n');
  await eventually(() => read.length > 2);
  expect(read[2]).toBe('after\n');
  close();
});
