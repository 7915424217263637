// What a release publishes to be expected: the steps that compute, compare and sign it, and those of the weekly status, with programs that build, sign
// and publish replaced.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { predicateType, readRelease, readStatement } from '../../verify/release/release-statement.ts';
import { temporaryFolder } from '../support/harness.ts';
import { COMPOSE, WEIGHTS } from '../support/launch-file.ts';
import { type Copy, copyOfRepository, ROOT } from './copy.ts';
import { runStep, workflowIn } from './workflow.ts';

const REPOSITORY = 'someone/countersign';
const TAG = 'v1.0.0';
const REVISION = '1'.repeat(40);
const folder = temporaryFolder();
const log = join(folder.path, 'calls');
const calls = () => readFileSync(log, 'utf8').trim().split('\n');
const logged = (name: string, more = '') => `echo "${name} $*" >> ${log}\n${more}`;
/** Installs a program that writes what it signs. */
const go = `printf '#!/bin/bash\\necho "cosign $*" >> ${log}\\ncp "$4" "$6"' > ${folder.path}/cosign; chmod +x ${folder.path}/cosign`;

let copy: Copy;
beforeAll(() => {
  copy = copyOfRepository();
  for (const [target, digits] of [
    ['gateway', '1'],
    ['sidecar', '2'],
  ] as const) {
    mkdirSync(join(copy.path, `all/image-${target}`), { recursive: true });
    writeFileSync(join(copy.path, `all/image-${target}/${target}`), `${target}@sha256:${digits.repeat(64)}\n`);
  }
  // Firmware and image are built in minutes, as root: here they are words.
  for (const [name, files] of [
    ['firmware.sh', ['OVMF.fd']],
    ['build.sh', ['vmlinuz', 'initrd', 'root.squashfs', 'root.verity', 'cmdline']],
  ] as const) {
    const lines = files.map((file) => `echo ${file === 'cmdline' ? 'roothash=00' : file} > "$1/${file}"`);
    writeFileSync(join(copy.path, 'deploy/cvm', name), `#!/bin/bash\n${lines.join('\n')}\n`, { mode: 0o755 });
  }
  mkdirSync(join(copy.path, '.cache/measure/bin'), { recursive: true });
  writeFileSync(join(copy.path, '.cache/measure/bin/sev-snp-measure'), `#!/bin/bash\nprintf '%096d' "$4"\n`, {
    mode: 0o755,
  });
  writeFileSync(log, '');
});
afterAll(() => {
  copy.remove();
  folder.remove();
});

describe('the list of a release', () => {
  it('is computed from images and weights by digest', async () => {
    const env = { TAG, REPOSITORY, REVISION, WEIGHTS: `${WEIGHTS.name}=${WEIGHTS.verity_root}` };
    const docker = `${logged('docker')}echo "$GATEWAY_IMAGE $SIDECAR_IMAGE $WEIGHTS_ROOT $MODEL" >> ${log}\ncat <<'END'\n${COMPOSE}\nEND`;
    const sudo = 'shift; exec "$@"';
    const where = { cwd: copy.path, env, programs: { docker, sudo } };
    expect(runStep('reference', 'Pin the images and the weights', where)).toMatchObject({ status: 0 });
    expect(calls().at(-1)).toBe(
      `gateway@sha256:${'1'.repeat(64)} sidecar@sha256:${'2'.repeat(64)} ${WEIGHTS.verity_root} Qwen/Qwen3-8B`,
    );
    expect(runStep('reference', 'Compute what to expect', where)).toMatchObject({
      said: expect.any(String),
      status: 0,
    });
    const statement = readFileSync(join(copy.path, 'expected/statement.json'));
    const named = { repository: REPOSITORY, ref: `refs/tags/${TAG}`, commit: REVISION };
    const { reference, weights } = await readRelease(new Uint8Array(statement), named);
    expect(weights).toEqual([{ launch: 'launch.json', ...WEIGHTS }]);
    expect(reference.cpu).toMatchObject([{ type: 'SEV_SNP', launch_in: 'host_data' }]);
    expect(readFileSync(join(copy.path, 'expected/image'), 'utf8')).toMatch(/ {2}OVMF\.fd\n(.+\n)+roothash=00\n$/);
  });

  it('is signed where both builds are the same, and nowhere else', () => {
    const all = join(folder.path, 'all');
    mkdirSync(all);
    for (const build of ['first', 'second'])
      cpSync(join(copy.path, 'expected'), join(all, `expected-${build}`), { recursive: true });
    const where = { cwd: folder.path, env: { TAG, RUNNER_TEMP: folder.path }, programs: { go } };
    mkdirSync(join(folder.path, '.git'));
    expect(runStep('attest', 'Compare the two builds', where)).toMatchObject({ status: 0 });
    expect(runStep('attest', 'Sign the statement', where)).toMatchObject({ status: 0 });
    expect(calls().at(-1)).toBe(
      'cosign attest-blob --yes --statement all/expected-first/statement.json --bundle release/release.sigstore.json',
    );
    expect(runStep('attest', 'Compare the two builds', { ...where, env: { ...where.env, TAG: 'v9.9.9' } }).status).toBe(
      1,
    );
    const other = join(folder.path, 'other');
    mkdirSync(join(other, '.git'), { recursive: true });
    mkdirSync(join(other, 'all/expected-second'), { recursive: true });
    cpSync(join(copy.path, 'expected'), join(other, 'all/expected-first'), { recursive: true });
    expect(runStep('attest', 'Compare the two builds', { ...where, cwd: other }).status).not.toBe(0);
  });
});

describe('the status', () => {
  const status = workflowIn('release-status.yml');
  const statement = Buffer.from(JSON.stringify({ predicate: { tag: TAG } }));
  const where = (withdrawn: string, current = TAG) => ({
    cwd: folder.path,
    env: { GH_TOKEN: 'none', GH_REPO: REPOSITORY, RUNNER_TEMP: folder.path },
    programs: {
      go,
      gh: logged(
        'gh',
        `case "$1 $2" in
        "release view") [ "$3" = release-status ] && exit 1; echo ${current} ;;
        "release download") echo '{"dsseEnvelope":{"payload":"${statement.toString('base64')}"}}' > release.sigstore.json ;;
        "api "*) echo '${withdrawn}' ;; esac`,
      ),
    },
  });

  it('names the current release and what was withdrawn, in the form that verifiers read', () => {
    const withdrawn = `[{"tag":"v0.9.0","statement_sha256":"${'f'.repeat(64)}","reason":"a hole"}]`;
    expect(runStep('status', 'Write the statement', where(withdrawn), status)).toMatchObject({ status: 0 });
    const text = new Uint8Array(readFileSync(join(folder.path, 'status.json')));
    const { subjects, predicate } = readStatement(text, predicateType(REPOSITORY, 'release-status'));
    expect([...subjects.keys()]).toEqual([TAG]);
    expect(predicate).toEqual({ version: 1, repository: REPOSITORY, current: TAG, withdrawn: JSON.parse(withdrawn) });
  });

  it('is not written about a release whose statement names another tag', () => {
    expect(runStep('status', 'Write the statement', where('[]', 'v2.0.0'), status).status).toBe(1);
    expect(runStep('status', 'Write the statement', where('[]'), status).status).toBe(0);
  });

  it('is signed and put where clients ask for it', () => {
    writeFileSync(log, '');
    expect(runStep('status', 'Sign and publish it', where('[]'), status)).toMatchObject({ status: 0 });
    expect(calls()).toEqual([
      'cosign attest-blob --yes --statement status.json --bundle release-status.sigstore.json',
      'gh release view release-status',
      expect.stringContaining('gh release create release-status --target main --prerelease --latest=false'),
      'gh release upload release-status release-status.sigstore.json --clobber',
    ]);
  });

  it('withdraws what the repository says, which is nothing yet', () => {
    expect(parse(readFileSync(join(ROOT, 'deploy/withdrawn.json'), 'utf8'))).toEqual([]);
  });
});
