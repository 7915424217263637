// What a release publishes, and who watches that nobody else does: `npm run make reference` and `npm run make watch-log`.
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { imagesIn, statementOf } from '../../scripts/reference.ts';
import {
  makeBundle,
  makeKeys,
  makeLeaf,
  makeReleaseWorld,
  SAID,
  type Said,
} from '../../scripts/vectors/release-world.ts';
import { runsOf, strangeIn } from '../../scripts/watch-log.ts';
import { temporaryFolder } from '../support/harness.ts';
import { LAUNCH, LAUNCH_SHA256, WEIGHTS } from '../support/launch-file.ts';

const RELEASED = {
  repository: SAID.repository,
  tag: 'v1.0.0',
  commit: SAID.commit,
  files: {
    'reference.json': JSON.stringify({
      version: 1,
      cpu: [{ type: 'SEV_SNP', measurement: ['ab'.repeat(48)], launch_in: 'host_data' }],
      launch: [LAUNCH_SHA256],
    }),
    'launch.json': LAUNCH,
  },
  images: { gateway: `gateway@sha256:${'ab'.repeat(32)}` },
};

describe('the statement of a release', () => {
  it('is one that verifiers take, with the weights of its launch file', async () => {
    const { predicate, subject } = JSON.parse(await statementOf(RELEASED));
    expect(predicate).toMatchObject({ tag: 'v1.0.0', weights: [{ launch: 'launch.json', ...WEIGHTS }] });
    expect(subject[1]).toEqual({ name: 'launch.json', digest: { sha256: LAUNCH_SHA256 } });
  });

  it.each([
    [
      'a list of another launch file',
      { files: { ...RELEASED.files, 'launch.json': '{"weights":[]}' } },
      'release_list_malformed',
    ],
    ['an image without its digest', { images: { gateway: 'gateway' } }, 'release_statement_malformed'],
    ['no tag of a release', { tag: 'a tag' }, 'release_statement_malformed'],
  ])('is not made of %s', async (_, change, code) => {
    await expect(statementOf({ ...RELEASED, ...change })).rejects.toMatchObject({ code });
    await statementOf(RELEASED);
  });

  it('has the images of the compose file', () => {
    const image = RELEASED.images.gateway;
    expect(imagesIn(`services:\n  gateway: { image: '${image}' }\n  other: {}\n`)).toEqual({ gateway: image });
  });

  it('is made by a command that says what it needs', async () => {
    const script = fileURLToPath(new URL('../../scripts/reference.ts', import.meta.url));
    const { code, stderr } = await run(script, ['out', 'compose.yaml']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--repository OWNER/REPO')]);
  });
});

function run(script: string, args: readonly string[]): Promise<{ code: number; stderr: string; stdout: string }> {
  return new Promise((done) =>
    execFile(process.execPath, [script, ...args], { timeout: 20_000 }, (error, stdout, stderr) =>
      done({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    ),
  );
}

describe('the log of certificates', () => {
  const world = makeReleaseWorld(makeKeys());
  const at = new Date('2026-06-01T12:00:00Z');
  const entryOf = (said: Said) => {
    const { der } = makeLeaf(world, said, { from: at, receipt: 'none' }).certificate;
    const length = Buffer.alloc(3);
    length.writeUIntBE(der.length, 0, 3);
    return { leaf_input: '', extra_data: Buffer.concat([length, der]).toString('base64') };
  };
  const released = { ...SAID, run: '7/attempts/1' };
  const bundle = JSON.stringify(makeBundle(world, { payload: '{}', at, said: released }));
  const of = (said: Said) => strangeIn(entryOf(said), SAID.repository, runsOf([bundle]));

  it.each([
    [
      'a run that made no release',
      { ...released, run: '8/attempts/1' },
      'release.yml@refs/tags/v1.0.0 by https://github.com/example/countersign/actions/runs/8',
    ],
    ['another branch', { ...released, ref: 'refs/heads/evil', run: '9/attempts/1' }, 'release.yml@refs/heads/evil'],
    ['a status of no run', { ...SAID, workflow: 'release-status.yml', ref: 'refs/heads/main' }, 'by no run'],
  ])('shows %s', (_, said, words) => {
    expect(of(said)).toContain(words);
  });

  it.each([
    ['the released one', released],
    ["another repository's", { ...SAID, repository: 'example/countersign-fork' }],
    ["another workflow's", { ...SAID, workflow: 'release-watch.yml' }],
  ])('shows nothing strange in %s', (_, said) => {
    expect(of(said)).toBeNull();
  });

  it('is read from where it was left, in as many parts as it gives, and again after something strange', async () => {
    const folder = temporaryFolder();
    const entries = [released, released, { ...SAID, run: '8' }, released].map(entryOf);
    let size = 2;
    const server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? '', 'http://x');
      const [start = 0, end = 0] = ['start', 'end'].map((name) => Number(searchParams.get(name)));
      // One at a time, as logs may.
      const body = pathname.endsWith('get-sth')
        ? { tree_size: size }
        : { entries: entries.slice(start, Math.min(end, start) + 1) };
      response.end(JSON.stringify(body));
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const log = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const [state, file] = ['state', 'bundle.json'].map((name) => join(folder.path, name)) as [string, string];
    writeFileSync(file, bundle);
    const script = fileURLToPath(new URL('../../scripts/watch-log.ts', import.meta.url));
    const watch = () => run(script, [state, file, '--repository', SAID.repository, '--log', log]);
    expect([(await watch()).code, readFileSync(state, 'utf8')]).toEqual([0, '2\n']);
    size = 4;
    for (let i = 0; i < 2; i++) {
      const { code, stderr, stdout } = await watch();
      expect([code, stderr, stdout]).toEqual([
        1,
        expect.stringContaining('no release made entry 2:'),
        '2 certificates read, 1 strange\n',
      ]);
    }
    writeFileSync(state, '3\n');
    expect([(await watch()).code, readFileSync(state, 'utf8')]).toEqual([0, '4\n']);
    server.close();
    expect((await watch()).code).toBe(3);
    folder.remove();
  });
});
