// The next version, made as CONTRIBUTING.md says, in a copy of the repository.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Copy, copyOfRepository } from './copy.ts';

let copy: Copy;
function takesCopy(before: typeof beforeEach | typeof beforeAll, after: typeof afterEach | typeof afterAll): void {
  before(() => {
    copy = copyOfRepository();
  });
  after(() => copy.remove());
}

const read = (file: string) => readFileSync(join(copy.path, file), 'utf8');
const edit = (file: string, change: (text: string) => string) =>
  writeFileSync(join(copy.path, file), change(read(file)));
const jsonOf = (file: string) => JSON.parse(read(file));
const matchOf = (file: string, pattern: RegExp) => pattern.exec(read(file))?.[1];
const versions = (...args: string[]) => copy.run('npm', 'run', '-s', 'make', 'versions', '--', ...args);
const changeset = (...args: string[]) => copy.run('npm', 'run', '-s', 'changeset', '--', ...args);
const before = (): string => jsonOf('package.json').version;

/** Read here by other means than the script's own. */
const everywhere = () => ({
  root: jsonOf('package.json').version,
  lock: [jsonOf('package-lock.json').version, jsonOf('package-lock.json').packages[''].version],
  npm: jsonOf('packages/verify/package.json').version,
  pypi: matchOf('python/src/countersign_verify/common/version.py', /^__version__ = "([^"]*)"$/m),
  code: matchOf('verify/common/version.ts', /VERSION = '(.*)'/),
  image: matchOf('Dockerfile', /^ARG VERSION=(.*)$/m),
  chart: ['version', 'appVersion'].map((name) =>
    matchOf('deploy/helm/countersign/Chart.yaml', new RegExp(`^${name}: (.*)$`, 'm')),
  ),
});
const all = (version: string) => ({
  root: version,
  lock: [version, version],
  npm: version,
  pypi: version,
  code: version,
  image: version,
  chart: [version, version],
});

function next(version: string, step: 'patch' | 'minor' | 'major'): string {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  if (step === 'major') return `${major + 1}.0.0`;
  return step === 'minor' ? `${major}.${minor + 1}.0` : `${major}.${minor}.${patch + 1}`;
}

describe('the next version', () => {
  takesCopy(beforeEach, afterEach);

  it.each(['patch', 'minor', 'major'] as const)('is a %s everywhere when a changeset says so', (step) => {
    const version = next(before(), step);
    // What waits for the next release is not of this test.
    for (const name of readdirSync(join(copy.path, '.changeset')))
      if (name.endsWith('.md') && name !== 'README.md') rmSync(join(copy.path, '.changeset', name));
    edit('CHANGELOG.md', (text) =>
      text.replace(/## Unreleased\n[\s\S]*?(?=\n## \d)/, '## Unreleased\n\n### Added\n\n- **A thing** of this test.\n'),
    );
    writeFileSync(join(copy.path, '.changeset/a.md'), `---\n"countersign": ${step}\n---\n\nA thing.\n`);
    writeFileSync(join(copy.path, '.changeset/b.md'), '---\n"countersign": patch\n---\n\nAnother.\n');
    const locked = read('package-lock.json').length;
    expect(changeset('version')).toMatchObject({ status: 0 });
    expect(versions('--check').status).toBe(1);
    expect(versions()).toMatchObject({ status: 0 });
    expect(everywhere()).toEqual(all(version));
    expect(versions('--check')).toEqual({ status: 0, said: `${version} everywhere\n` });
    expect(versions('--check', version).status).toBe(0);
    expect(versions('--check', next(version, 'patch')).status).toBe(1);
    // Nothing but the two versions of ours.
    expect(Math.abs(read('package-lock.json').length - locked)).toBeLessThanOrEqual(2);
    expect(versions('--notes')).toEqual({ status: 0, said: '### Added\n\n- **A thing** of this test.\n' });
    expect(read('CHANGELOG.md')).toContain(
      `\n## Unreleased\n\n## ${version} - ${new Date().toISOString().slice(0, 10)}\n\n### Added\n`,
    );
    // Once more changes nothing.
    expect(versions()).toEqual({ status: 0, said: '' });
    copy.run('git', '-c', 'user.name=test', '-c', 'user.email=test@localhost', 'commit', '-qam', version);
    expect(changeset('git-tag')).toMatchObject({ status: 0 });
    expect(copy.run('git', 'tag')).toEqual({ status: 0, said: `v${version}\n` });
  });

  it('is refused when nothing says what users notice', () => {
    edit('CHANGELOG.md', (text) => text.replace(/^## Unreleased\n[\s\S]*?(?=^## )/m, '## Unreleased\n\n'));
    writeFileSync(join(copy.path, '.changeset/a.md'), '---\n"countersign": patch\n---\n\nA thing.\n');
    expect(changeset('version')).toMatchObject({ status: 0 });
    expect(versions()).toMatchObject({
      status: 1,
      said: expect.stringContaining('write down what users notice first'),
    });
  });
});

describe('the version', () => {
  const check = () => copy.run(process.execPath, 'scripts/versions.ts', '--check');
  takesCopy(beforeAll, afterAll);

  it.each([
    ['packages/verify/package.json', (text: string) => text.replace(/"version": ".*?"/, '"version": "9.9.9"')],
    [
      'python/src/countersign_verify/common/version.py',
      (text: string) => text.replace(/^__version__ = ".*"/m, '__version__ = "9.9.9"'),
    ],
    ['python/src/countersign_verify/common/version.py', (text: string) => text.replace(/^__version__ = .*\n/m, '')],
    ['verify/common/version.ts', (text: string) => text.replace(/VERSION = '.*'/, "VERSION = '9.9.9'")],
    ['Dockerfile', (text: string) => text.replace(/^ARG VERSION=.*$/m, 'ARG VERSION=9.9.9')],
    ['deploy/helm/countersign/Chart.yaml', (text: string) => text.replace(/^appVersion: .*$/m, 'appVersion: 9.9.9')],
    ['package-lock.json', (text: string) => text.replace(/"version": ".*?"/, '"version": "9.9.9"')],
    ['CHANGELOG.md', (text: string) => text.replace(/^## \d.*\n/m, '')],
  ])('is looked for in %s', (file, change) => {
    expect(check().status).toBe(0);
    const old = read(file);
    edit(file, change);
    expect(check()).toMatchObject({ status: 1, said: expect.stringContaining(`- ${file} has `) });
    edit(file, () => old);
  });
});
