import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Folder, temporaryFolder } from '../support/harness.ts';

const FOLDER = fileURLToPath(new URL('../../deploy/systemd/', import.meta.url));
const UNITS = readdirSync(FOLDER).filter((name) => /\.(service|socket)$/.test(name));
/** systemd's own scale, in tenths: 0 is shut, 100 is open. The sidecar needs devices, the backend CUDA. */
const MOST_EXPOSED = { gateway: 13, sidecar: 16, backend: 34 };

const missing = spawnSync('systemd-analyze', ['--version']).error !== undefined;
if (missing) console.warn('SKIPPED: what systemd-analyze says of the units: it is not installed (Debian: systemd)');

describe.skipIf(missing)('the units, as systemd-analyze sees them', () => {
  let root: Folder;
  beforeAll(() => {
    // The programs that the units name are put where an operator would have them, so that nothing else is complained about.
    root = temporaryFolder();
    mkdirSync(join(root.path, 'units'));
    cpSync(FOLDER, join(root.path, 'units'), { recursive: true });
    for (const name of UNITS) {
      const path = join(root.path, 'units', name);
      writeFileSync(path, readFileSync(path, 'utf8').replace(/^ExecStart=\S+/m, 'ExecStart=/bin/true'));
    }
  });
  afterAll(() => root.remove());

  it.each(UNITS)('%s has no unknown directive, no wrong value, no missing unit', (name) => {
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', join(root.path, 'units', name)], {
      encoding: 'utf8',
      env: { ...process.env, SYSTEMD_UNIT_PATH: `${join(root.path, 'units')}:` },
    });
    expect([stderr, status]).toEqual(['', 0]);
  });

  it('would be complained about with a directive that systemd does not know', () => {
    const path = join(root.path, 'wrong.service');
    writeFileSync(path, '[Service]\nExecStart=/bin/true\nNoNewPriviliges=yes\n');
    const { stderr } = spawnSync('systemd-analyze', ['verify', path], { encoding: 'utf8' });
    expect(stderr).toContain("Unknown key 'NoNewPriviliges'");
  });

  it.each(Object.entries(MOST_EXPOSED))('the %s is exposed by %i tenths at most', (name, limit) => {
    const unit = join(FOLDER, `countersign-${name}.service`);
    const args = ['security', '--offline=true', `--threshold=${limit}`, '--no-pager', unit];
    const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    const overall = /Overall exposure level.*/.exec(stdout)?.[0];
    console.log(overall);
    expect([overall, status]).toEqual([overall, 0]);
  });

  it('name users and folders that sysusers and tmpfiles can make', () => {
    mkdirSync(join(root.path, 'etc'));
    execFileSync('systemd-sysusers', [`--root=${root.path}`, join(FOLDER, 'countersign.sysusers.conf')]);
    const made = readFileSync(join(root.path, 'etc/passwd'), 'utf8');
    expect(made).toMatch(/^countersign-sidecar:x?!?\*?:10001:10000:/m);
    expect(made).toMatch(/^countersign-gateway:x?!?\*?:10002:10000:/m);
  });
});
