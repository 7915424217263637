// A release without its uploads: every step of the workflow that needs no network and no right of ours runs here as it stands in the file.
import { spawnSync } from 'node:child_process';
import { cpSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tool } from '../deploy/tools.ts';
import { temporaryFolder } from '../support/harness.ts';
import { type Copy, copyOfRepository, ROOT } from './copy.ts';
import { ACTIONLINT, VENV } from './setup.ts';
import { FILE, runStep, workflow } from './workflow.ts';

const REPOSITORY = 'someone/countersign';
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
const TAG = `v${version}`;
const jobs = Object.entries(workflow.jobs);
const scripts = jobs.flatMap(([job, { steps }]) =>
  steps.flatMap(({ name, run }) => (run === undefined ? [] : [[`${job}: ${name ?? run}`, run] as const])),
);

describe('the workflow', () => {
  it('is what actionlint and shellcheck would have it be', () => {
    const lint = (text: string) => {
      const { status, stdout } = spawnSync(ACTIONLINT, ['-no-color', '-'], { input: text, encoding: 'utf8' });
      return { status, stdout };
    };
    const text = readFileSync(FILE, 'utf8');
    expect(lint(text)).toEqual({ status: 0, stdout: '' });
    for (const other of ['ci', 'nightly', 'release-status', 'release-watch'])
      expect([other, lint(readFileSync(join(dirname(FILE), `${other}.yml`), 'utf8'))]).toEqual([
        other,
        { status: 0, stdout: '' },
      ]);
    expect(lint(text.replace('needs: test', 'needs: tests')).status).toBe(1);
    expect(lint(text.replace('"v$(jq', 'v$(jq')).stdout).toContain('shellcheck');
  });

  it.each(scripts)('has a script that bash can read: %s', (_name, run) => {
    expect(spawnSync('bash', ['-n', '-c', run], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
    expect(run).toMatch(/^set -euo pipefail\n|^\.ci\/run$/);
    // What GitHub fills into a script could be read as a part of it.
    expect(run).not.toContain('${{');
  });

  it('gives the right to publish to jobs that run no code of the repository, images apart, which build in a container', () => {
    expect(workflow.permissions).toEqual({});
    const may = (job: string) =>
      Object.entries(workflow.jobs[job]?.permissions ?? {}).filter(([, to]) => to === 'write');
    const checksOut = jobs.filter(([, { steps }]) => steps.some(({ uses }) => uses?.startsWith('actions/checkout@')));
    expect(checksOut.map(([job]) => [job, may(job).map(([what]) => what)])).toEqual([
      ['test', []],
      ['packages', []],
      ['images', ['id-token', 'packages']],
      ['reference', []],
    ]);
    for (const job of ['attest', 'chart', 'npm', 'pypi', 'github'])
      expect(may(job)).toContainEqual(['id-token', 'write']);
  });

  it('publishes after everything is built and tested, and the release last', () => {
    const needs = Object.fromEntries(jobs.map(([job, { needs: of = [] }]) => [job, [of].flat()]));
    expect(needs).toEqual({
      test: [],
      packages: ['test'],
      images: ['test'],
      reference: ['images'],
      attest: ['reference'],
      npm: ['packages', 'images'],
      chart: ['packages', 'images'],
      pypi: ['packages', 'images'],
      github: ['npm', 'pypi', 'chart', 'attest'],
    });
  });

  it.each([
    [TAG, 0],
    [version, 1],
    ['v9.9.9', 1],
    [`${TAG}-rc.1`, 1],
    ['v', 1],
  ])('ends at the tag %s with %i', (tag, status) => {
    expect(runStep('test', 'The tag is the version', { cwd: ROOT, env: { TAG: tag } }).status).toBe(status);
  });
});

describe('a release', () => {
  let copy: Copy;
  /** As download-artifact lays it out for the jobs that publish. */
  const folder = temporaryFolder();
  const step = (name: string) => runStep('packages', name, { cwd: copy.path, env: { TAG, REPOSITORY } });
  const released = () => join(copy.path, 'build/release');
  const filesOf = (archive: string, ...args: string[]) =>
    spawnSync('tar', ['-tzf', join(released(), 'files', archive), ...args], { encoding: 'utf8' })
      .stdout.trim()
      .split('\n');

  beforeAll(() => {
    copy = copyOfRepository();
    mkdirSync(join(copy.path, '.cache'));
    symlinkSync(VENV, join(copy.path, '.cache/release'));
  });
  afterAll(() => {
    copy.remove();
    folder.remove();
  });

  it('has one version', () => {
    expect(step('Every place has this version')).toEqual({ status: 0, said: `${version} everywhere\n` });
    const other = { cwd: copy.path, env: { TAG: 'v9.9.9', REPOSITORY } };
    expect(runStep('packages', 'Every place has this version', other).status).toBe(1);
  });

  it('has an npm package of compiled code, a README, a manual page and a licence, and nothing else', () => {
    expect(step('Build the npm package')).toMatchObject({ status: 0 });
    const dry = copy.run('npm', 'publish', '--dry-run', '--json', '--offline', './packages/verify');
    expect(dry.status).toBe(0);
    const files = filesOf(`countersign-verify-${version}.tgz`).map((file) => file.replace(/^package\//, ''));
    for (const file of files)
      expect(file).toMatch(
        /^(package\.json|README\.md|LICENSE|man\/countersign\.1|dist\/[\w/.-]+\.(js|d\.ts|js\.map|d\.ts\.map))$/,
      );
    for (const file of ['package.json', 'README.md', 'LICENSE', 'dist/verify/index.js', 'dist/verify/index.d.ts'])
      expect(files).toContain(file);
    for (const file of files) expect(dry.said).toContain(JSON.stringify(file));
    const manifest = JSON.parse(readFileSync(join(copy.path, 'packages/verify/package.json'), 'utf8'));
    expect(manifest).toMatchObject({ name: '@countersign/verify', version });
    expect(manifest.private).toBeUndefined();
    expect(manifest.repository).toEqual({ type: 'git', url: `git+https://github.com/${REPOSITORY}.git` });
    // Maps that name sources which are not in the package lead nowhere.
    for (const file of files.filter((one) => one.endsWith('.js.map'))) {
      const map = JSON.parse(readFileSync(join(copy.path, 'packages/verify', file), 'utf8'));
      expect(map.sourcesContent?.length, file).toBe(map.sources.length);
    }
  });

  it('does not publish the repository itself', () => {
    // A dry run says nothing of it: npm looks when it would upload, here to where nobody listens.
    const nowhere = ['--registry', 'http://127.0.0.1:9/', '--//127.0.0.1:9/:_authToken=none', '--fetch-retries', '0'];
    const { status, said } = copy.run('npm', 'publish', '--ignore-scripts', ...nowhere);
    expect(status).not.toBe(0);
    expect(said).toContain('code EPRIVATE');
  });

  it('has a Python package that twine finds nothing wrong with', () => {
    const { status, said } = step('Build the Python package');
    expect({ status, passed: said.match(/PASSED/g)?.length }).toEqual({ status: 0, passed: 2 });
    const wheel = readdirSync(join(released(), 'files')).find((file) => file.endsWith('.whl')) ?? '';
    expect(wheel).toBe(`countersign_verify-${version}-py3-none-any.whl`);
    const { stdout } = spawnSync('python3', ['-m', 'zipfile', '-l', join(released(), 'files', wheel)], {
      encoding: 'utf8',
    });
    const [, ...files] = stdout
      .trim()
      .split('\n')
      .map((line) => line.split(/\s/, 1)[0] ?? '');
    for (const file of files)
      expect(file).toMatch(/^countersign_verify(-[\d.]+\.dist-info\/[\w./]+|\/([\w/]+\.py|py\.typed|[\w/]+\.pem))$/);
    expect(files).toContain('countersign_verify/py.typed');
    for (const file of filesOf(`countersign_verify-${version}.tar.gz`))
      expect(file).toMatch(
        new RegExp(
          `^countersign_verify-${version}/(src/|tests/|(README.md|LICENSE|pyproject.toml|PKG-INFO|.gitignore)$)`,
        ),
      );
  });

  it('has a chart that holds its alerts', () => {
    expect(step('Lay out the chart')).toMatchObject({ status: 0 });
    const [here, alerts] = [join(released(), 'chart/files/alerts.yaml'), join(copy.path, 'docs/alerts.yaml')];
    expect([lstatSync(here).isSymbolicLink(), readFileSync(here, 'utf8')]).toEqual([
      false,
      readFileSync(alerts, 'utf8'),
    ]);
  });

  it('has notes and checksums of every file', () => {
    expect(step('Notes and checksums')).toMatchObject({ status: 0 });
    expect(readFileSync(join(released(), 'notes.md'), 'utf8')).toMatch(/^### Added\n/);
    const files = readdirSync(join(released(), 'files')).sort();
    expect(files).toEqual(
      [
        'SHA256SUMS',
        `countersign_verify-${version}-py3-none-any.whl`,
        `countersign_verify-${version}.tar.gz`,
        `countersign-verify-${version}.tgz`,
        `source-${version}.tar.gz`,
      ].sort(),
    );
    const sums = readFileSync(join(released(), 'files/SHA256SUMS'), 'utf8').trim().split('\n');
    expect(sums.map((line) => line.slice(66)).sort()).toEqual(files.filter((file) => file !== 'SHA256SUMS'));
    expect(filesOf(`source-${version}.tar.gz`)).toContain(`countersign-${version}/package.json`);
  });

  describe('goes out', () => {
    const calls = () => readFileSync(join(folder.path, 'calls'), 'utf8').trim().split('\n');
    /** Each writes down how it was called. */
    const logged = (program: string, more = '') => `echo "${program} $*" >> ${join(folder.path, 'calls')}\n${more}`;

    beforeAll(() => {
      cpSync(released(), folder.path, { recursive: true });
      mkdirSync(join(folder.path, '.git'));
      for (const target of ['gateway', 'sidecar']) {
        mkdirSync(join(folder.path, `all/image-${target}`), { recursive: true });
        const name = `ghcr.io/${REPOSITORY}-${target}:${version}@sha256:${'0'.repeat(64)}\n`;
        writeFileSync(join(folder.path, `all/image-${target}/${target}`), name);
      }
      cpSync(released(), join(folder.path, 'all/packages'), { recursive: true });
      const list = join(folder.path, 'all/release-list');
      mkdirSync(list);
      const weights = [{ name: 'org/model@1', verity_root: 'ab'.repeat(32) }];
      writeFileSync(join(list, 'statement.json'), JSON.stringify({ predicate: { weights } }));
      writeFileSync(join(list, 'image'), 'roothash=00\n');
      for (const name of ['launch.json', 'reference.json', 'release.sigstore.json', 'pinned.json'])
        writeFileSync(join(list, name), '{}');
    });

    it('as a chart that names the images by digest, signed', async () => {
      writeFileSync(join(folder.path, 'calls'), '');
      const digest = `sha256:${'1'.repeat(64)}`;
      const helm = await tool('helm');
      const push = `case "$1" in package) ${helm} "$@" ;; push) echo "Digest: ${digest}" >&2 ;; registry) cat >/dev/null ;; esac`;
      for (const [name, script] of [
        ['helm', logged('helm', push)],
        ['cosign', logged('cosign')],
      ] as const)
        writeFileSync(join(folder.path, name), `#!/bin/bash\nset -euo pipefail\n${script}\n`, { mode: 0o755 });
      const summary = join(folder.path, 'summary');
      const env = { TAG, REPOSITORY, RUNNER_TEMP: folder.path, USER: 'someone', TOKEN: 'none' };
      const where = {
        cwd: folder.path,
        env: { ...env, GITHUB_STEP_SUMMARY: summary },
        programs: { docker: logged('docker', 'cat >/dev/null') },
      };
      expect(runStep('chart', 'Package the chart with the images of this release', where)).toMatchObject({ status: 0 });
      expect(runStep('chart', 'Push and sign the chart', where)).toMatchObject({ status: 0 });
      const charts = `ghcr.io/${REPOSITORY}/charts`;
      expect(calls()).toEqual([
        'helm package all/packages/chart --destination .',
        'helm registry login ghcr.io --username someone --password-stdin',
        `helm push countersign-${version}.tgz oci://${charts}`,
        'docker login ghcr.io --username someone --password-stdin',
        `cosign sign --yes ${charts}/countersign@${digest}`,
      ]);
      expect(readFileSync(join(folder.path, 'image/chart'), 'utf8')).toBe(
        `${charts}/countersign:${version}@${digest}\n`,
      );
      // As an operator would install it.
      const chart = join(folder.path, `countersign-${version}.tgz`);
      const set = ['--set', 'prometheusRule.enabled=true'];
      const { stdout } = spawnSync(helm, ['template', 'x', chart, ...set], { encoding: 'utf8' });
      for (const target of ['gateway', 'sidecar'])
        expect(stdout).toContain(`image: ghcr.io/${REPOSITORY}-${target}:${version}@sha256:000`);
      expect(stdout).toContain('alert: CountersignDown');
    });

    it('on npm with provenance, and a version before a release under another name than latest', () => {
      const publish = (TAG: string) => {
        writeFileSync(join(folder.path, 'calls'), '');
        // npm itself, as far as it goes without a network.
        const npx = logged('npx', '[ "$1" = --yes ]; shift 2; npm "$@" --dry-run --offline --provenance=false');
        return runStep('npm', 'Publish with provenance', { cwd: folder.path, env: { TAG }, programs: { npx } });
      };
      const tarball = `./files/countersign-verify-${version}.tgz`;
      const options = '--provenance --access public';
      const result = publish(TAG);
      expect(result.said).toContain(`+ @countersign/verify@${version}`);
      expect(result.status).toBe(0);
      expect(calls()).toEqual([`npx --yes ${workflow.env.NPM} publish ${tarball} ${options} --tag latest`]);
      publish('v1.0.0-rc.1');
      expect(calls()).toEqual([`npx --yes ${workflow.env.NPM} publish ${tarball} ${options} --tag next`]);
    });

    it('on PyPI with an attestation for each file', () => {
      writeFileSync(join(folder.path, 'calls'), '');
      const tool = (name: string, more = '') =>
        `cat > tools/bin/${name} <<'END'\n#!/bin/bash\n${logged(name, more)}\nEND\nchmod +x tools/bin/${name}`;
      const sign = 'shift; for file in "$@"; do echo {} > "$file.publish.attestation"; done';
      const python3 = [
        logged('python3'),
        'mkdir -p tools/bin',
        tool('pip'),
        tool('uv'),
        tool('pypi-attestations', sign),
      ].join('\n');
      const where = { cwd: folder.path, env: { TAG }, programs: { python3 } };
      expect(runStep('pypi', 'Publish with attestations', where)).toMatchObject({ status: 0 });
      const { UV, PYPI_ATTESTATIONS } = workflow.jobs.pypi?.env ?? {};
      const [wheel, source] = [
        `files/countersign_verify-${version}-py3-none-any.whl`,
        `files/countersign_verify-${version}.tar.gz`,
      ];
      expect(calls()).toEqual([
        'python3 -m venv tools',
        `pip install --disable-pip-version-check -q ${UV} ${PYPI_ATTESTATIONS}`,
        `pypi-attestations sign ${wheel} ${source}`,
        `uv publish --trusted-publishing always ${wheel} ${wheel}.publish.attestation ${source} ${source}.publish.attestation`,
      ]);
    });

    it('on GitHub with signed checksums, and the images by digest in its notes', () => {
      writeFileSync(join(folder.path, 'calls'), '');
      const cosign = join(folder.path, 'cosign');
      const go = `${logged('go')}\nprintf '#!/bin/bash\\necho "cosign $*" >> ${join(folder.path, 'calls')}\\ntouch "$4"' > ${cosign}; chmod +x ${cosign}`;
      const env = { TAG, RUNNER_TEMP: folder.path, GH_TOKEN: 'none', GH_REPO: REPOSITORY };
      const where = { cwd: folder.path, env, programs: { go, gh: logged('gh') } };
      expect(runStep('github', 'Sign the checksums', where)).toMatchObject({ status: 0 });
      expect(runStep('github', 'Publish the release', where)).toMatchObject({ status: 0 });
      const [, sign, release, status] = calls();
      expect(status).toBe('gh workflow run release-status.yml --ref main');
      expect(sign).toBe('cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS');
      const files = readdirSync(join(folder.path, 'all/packages/files')).map((file) => `all/packages/files/${file}`);
      expect(files).toHaveLength(6);
      expect(
        release
          ?.split(' ')
          .filter((word) => word.startsWith('all/packages/files/'))
          .sort(),
      ).toEqual(files.sort());
      expect(release).toContain(`gh release create ${TAG} --verify-tag --title ${TAG} --notes-file`);
      expect(release).not.toContain('--prerelease');
      for (const name of ['launch.json', 'reference.json', 'release.sigstore.json', 'compose.json'])
        expect(release?.split(' ')).toContain(`list/${name}`);
      const notes = readFileSync(join(folder.path, 'all/packages/notes.md'), 'utf8');
      expect(notes).toContain(`\n### Images and chart\n\n- \`ghcr.io/${REPOSITORY}-gateway:${version}@sha256:000`);
      expect(notes).toContain('- `roothash=00`\n- weights org/model@1: abab');
      expect(notes).toMatch(/- statement `[0-9a-f]{64}`\n/);
    });

    it('nowhere when a file is not the one that was built', () => {
      writeFileSync(join(folder.path, 'calls'), '');
      const [wheel = ''] = readdirSync(join(folder.path, 'files')).filter((file) => file.endsWith('.whl'));
      writeFileSync(join(folder.path, 'files', wheel), 'another');
      writeFileSync(join(folder.path, 'all/packages/files', wheel), 'another');
      const programs = { npx: logged('npx'), python3: logged('python3'), go: logged('go') };
      const env = { TAG, RUNNER_TEMP: folder.path };
      for (const [job, name] of [
        ['npm', 'Publish with provenance'],
        ['pypi', 'Publish with attestations'],
        ['github', 'Sign the checksums'],
      ] as const)
        expect(runStep(job, name, { cwd: folder.path, env, programs })).toMatchObject({
          status: 1,
          said: expect.stringContaining(`${wheel}: FAILED`),
        });
      // cosign is installed before, and not called.
      expect(calls()).toEqual([expect.stringMatching(/^go install /)]);
    });
  });
});
