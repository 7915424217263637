// What the image's build does with what deploy/nvattest holds: NVIDIA's package by its hash, version 2 or newer, or a word that it is absent.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type Folder, temporaryFolder } from '../support/harness.ts';

const DOCKERFILE = readFileSync(fileURLToPath(new URL('../../Dockerfile', import.meta.url)), 'utf8');
const PACKAGE = 'the package';

let folder: Folder;
beforeEach(() => {
  folder = temporaryFolder();
  mkdirSync(join(folder.path, 'bin'));
  mkdirSync(join(folder.path, 'nvattest'));
});
afterEach(() => folder.remove());

function program(name: string, body: string): void {
  const path = join(folder.path, 'bin', name);
  writeFileSync(path, `#!/bin/sh\n${body}\n`);
  chmodSync(path, 0o755);
}

/** The step of the build, over a folder of the test's, with an apt-get that installs nothing. */
function build({ listed, version }: { listed: string | null; version: string }) {
  program('apt-get', 'exit 0');
  program('nvattest', `echo '{ "nvattest": "${version}" }'`);
  if (listed !== null) {
    writeFileSync(join(folder.path, 'nvattest/nvattest.deb'), PACKAGE);
    writeFileSync(join(folder.path, 'nvattest/SHA256SUMS'), `${listed}  nvattest.deb\n`);
  }
  const step = /&& (if ls \/nvattest\/\*\.deb .*?; fi) \\\n/s.exec(DOCKERFILE)?.[1] ?? 'exit 99';
  const script = step.replaceAll('\\\n', ' ').replaceAll('/nvattest/*.deb', `${folder.path}/nvattest/*.deb`);
  const { status, stdout, stderr } = spawnSync(
    'sh',
    ['-c', script.replaceAll('cd /nvattest', `cd ${folder.path}/nvattest`)],
    {
      encoding: 'utf8',
      env: { PATH: `${folder.path}/bin:/usr/bin:/bin` },
    },
  );
  return { status, said: stdout + stderr };
}

const hash = createHash('sha256').update(PACKAGE).digest('hex');

it('takes a package whose hash is listed, from version 2 on', () => {
  expect(build({ listed: hash, version: '2.0.0.1790976895' })).toMatchObject({ status: 0 });
});

it.each([
  ['of another hash', '0'.repeat(64), '2.0.0'],
  ['older than 2', hash, '1.2.1'],
])('ends at a package %s', (_, listed, version) => {
  expect(build({ listed, version })).toEqual({
    status: 1,
    said: expect.stringMatching(/nvattest: what is in deploy\/nvattest/),
  });
});

it('says that nvattest is absent where nothing was handed in', () => {
  expect(build({ listed: null, version: '' })).toEqual({
    status: 0,
    said: expect.stringMatching(/^nvattest is absent/),
  });
});
