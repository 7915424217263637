// `.ci/run` with an npm of the test's own: what fails ends nothing, and the last line counts over all.
import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { ROOT } from '../support/process.ts';

let folder: Folder;
beforeEach(() => {
  folder?.remove();
  folder = temporaryFolder();
});
afterAll(() => folder.remove());

/** `script` is the npm: `$*` is what it is asked for, COUNTS_FILE where a suite says what it counted. */
function ci(script: string) {
  const npm = join(folder.path, 'npm');
  writeFileSync(npm, `#!/bin/sh\necho "$*" >>"${folder.path}/asked"\ncase "$*" in\n${script}\nesac\n`);
  chmodSync(npm, 0o755);
  const { status, stdout } = spawnSync(join(ROOT, '.ci/run'), {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${folder.path}:${process.env.PATH}` },
  });
  const asked = readFileSync(join(folder.path, 'asked'), 'utf8').trim().split('\n');
  return { status, last: stdout.trim().split('\n').at(-1), asked };
}

const COUNTED = 'test | "run test:with"*) echo "10 0" >"$COUNTS_FILE" ;;';
const ALL = ['ci --no-audit --no-fund', 'run check', 'run lint', 'test'].concat(
  ['clients', 'python', 'package', 'page'].map((suite) => `run test:with ${suite}`),
);

describe('.ci/run', () => {
  it('runs everything, and counts it', () => {
    expect(ci(COUNTED)).toEqual({ status: 0, last: '53 passed, 0 failed', asked: ALL });
  });

  it('goes on after what fails, which is counted', () => {
    const failing = `"run lint") exit 1 ;;\n"run test:with python") echo "7 2" >"$COUNTS_FILE"; exit 1 ;;\n`;
    expect(ci(failing + COUNTED)).toEqual({ status: 1, last: '49 passed, 3 failed', asked: ALL });
  });

  it('counts a suite that ends before it has counted', () => {
    expect(ci(`"run test:with page") exit 1 ;;\n${COUNTED}`)).toMatchObject({
      status: 1,
      last: '43 passed, 1 failed',
    });
    expect(ci(`"run test:with page") echo "4 0" >"$COUNTS_FILE"; exit 1 ;;\n${COUNTED}`)).toMatchObject({
      status: 1,
      last: '47 passed, 1 failed',
    });
  });

  it('ends where nothing can be installed', () => {
    expect(ci('ci*) exit 1 ;;')).toEqual({ status: 1, last: '0 passed, 1 failed', asked: [ALL[0]] });
    folder.remove();
    folder = temporaryFolder();
    expect(ci(COUNTED).status).toBe(0);
  });
});
