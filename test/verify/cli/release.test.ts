// `countersign … --release`: where the release comes from, what is kept of it, and what is printed.
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pem } from '../../../demo/twin/authority.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { AT, attest, simulatedRoot } from '../maker.ts';
import { bundleOf, repository, sessionOf, statusOf, trustedRoot } from '../release/maker.ts';
import { amd, answerIn } from '../session-maker.ts';

const BIN = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
let folder: Folder;
let server: Server;
let gateway = '';
let served: { status: number; text: string };
const asked: string[] = [];
const bundle = bundleOf();
const both = `{"bundle":${bundle},"status":${statusOf()}}`;

beforeAll(async () => {
  folder = temporaryFolder();
  const put = (name: string, text: string) => writeFileSync(join(folder.path, name), text);
  put('answer.json', JSON.stringify(await answerIn(await sessionOf())));
  put('gpu.json', JSON.stringify(await attest()));
  put('root.pem', simulatedRoot + pem(amd.ark));
  put('trusted.json', trustedRoot);
  put('session.json', JSON.stringify(await sessionOf().then(({ cpu, gpu }) => ({ ...cpu, gpu }))));
  server = createServer((request, response) => {
    asked.push(request.url ?? '');
    response.writeHead(served.status, { 'content-type': 'application/json' }).end(served.text);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  folder.remove();
});

const ALWAYS = ['--allow-simulated', 'root.pem', '--without-reference-values', '--without-revocation', '--at'];

function countersign(...args: string[]): Promise<{ status: number; out: string }> {
  const all = [BIN, ...args, ...ALWAYS, AT.toISOString()];
  return new Promise((done) =>
    execFile(process.execPath, all, { cwd: folder.path, timeout: 30_000 }, (error, stdout, stderr) =>
      done({ status: error === null ? 0 : Number(error.code), out: stdout + stderr }),
    ),
  );
}
const named = ['--release', repository, '--trusted-root', 'trusted.json'];

describe('countersign verify --release', () => {
  it('asks the gateway, and says which release it is', async () => {
    served = { status: 200, text: both };
    const { status, out } = await countersign('verify', 'answer.json', ...named, '--gateway', `${gateway}/v1`);
    expect([status, out]).toEqual([0, expect.stringContaining('VALID')]);
    expect(asked.at(-1)).toBe('/.well-known/countersign/release');
    expect(out).toMatch(
      /software {3}v0\.3\.0 of example\/countersign, built from commit 1{40} by the public workflow, in a log that the caller trusts since 2025-05-02, weights Qwen\/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218/,
    );
    expect(out).toMatch(/status {5}fresh, of 2025-05-29T12:00:00Z: the current release/);
  });

  it('keeps it with `collateral`, and reads it again without a network', async () => {
    served = { status: 200, text: both };
    const kept = await countersign('collateral', 'answer.json', '--into', 'kept', ...named, '--gateway', gateway);
    expect([kept.status, kept.out]).toEqual([0, expect.stringContaining('1 files in kept')]);
    expect(JSON.parse(readFileSync(join(folder.path, 'kept/release.json'), 'utf8'))).toEqual(JSON.parse(both));
    const count = asked.length;
    const again = await countersign('verify', 'answer.json', ...named, '--collateral', 'kept', '--offline');
    expect([again.status, asked.length]).toEqual([0, count]);
    expect(again.out).toContain('v0.3.0 of example/countersign');
  });

  it('checks all answers of a folder, and a session', async () => {
    served = { status: 200, text: both };
    mkdirSync(join(folder.path, 'many'), { recursive: true });
    writeFileSync(join(folder.path, 'many/a.json'), readFileSync(join(folder.path, 'answer.json')));
    writeFileSync(join(folder.path, 'many/b.json'), readFileSync(join(folder.path, 'gpu.json')));
    const { status, out } = await countersign('verify', 'many', ...named, '--gateway', gateway);
    expect([status, out]).toEqual([1, expect.stringMatching(/a\.json +VALID|VALID.*a\.json/)]);
    expect(out).toMatch(/INVALID +none +policy_refused +many\/b\.json/);
    const session = await countersign('session', 'session.json', ...named, '--gateway', gateway, '--json');
    expect([session.status, JSON.parse(session.out.replace(/^fetching.*\n/gm, '')).claims.release.tag]).toEqual([
      0,
      'v0.3.0',
    ]);
  });

  it('is incomplete where there is no release, and invalid where it is another', async () => {
    const none = await countersign('verify', 'answer.json', ...named, '--offline');
    expect([none.status, none.out]).toEqual([3, expect.stringContaining('INCOMPLETE: release_unavailable')]);
    served = { status: 200, text: `{"bundle":${bundle}}` };
    const pinned = ['--release', `${repository}@v0.2.0`, '--trusted-root', 'trusted.json', '--gateway', gateway];
    const other = await countersign('verify', 'answer.json', ...pinned);
    expect([other.status, other.out]).toEqual([1, expect.stringContaining('INVALID: release_tag_mismatch')]);
    const unknown = await countersign('verify', 'answer.json', ...named, '--gateway', gateway);
    expect([unknown.status, unknown.out]).toEqual([3, expect.stringContaining('release_status_unavailable')]);
    const stays = await countersign(
      'verify',
      'answer.json',
      ...named.with(1, `${repository}@v0.3.0`),
      '--gateway',
      gateway,
    );
    expect([stays.status, stays.out]).toEqual([0, expect.stringContaining('absent: nobody shows whether')]);
  });

  it.each([
    [['--release'], 'the project has no public repository yet'],
    [['--release', '@v1.0.0'], 'the project has no public repository yet'],
    [['--release', 'https://github.com/o/r'], 'not OWNER/REPO'],
    [['--release', repository, '--reference', 'x.json'], 'one list at a time'],
    [['--gateway', 'http://127.0.0.1:1'], '--gateway is for the release that --release names'],
    [['--trusted-root', 'trusted.json'], '--trusted-root is for the release that --release names'],
    [
      ['--release', repository, '--trusted-root', 'answer.json'],
      '--trusted-root answer.json: trustedRoot cannot be used',
    ],
  ])('refuses %j', async (options, words) => {
    const { status, out } = await countersign('verify', 'answer.json', ...options);
    expect([status, out]).toEqual([2, expect.stringContaining(words)]);
  });

  it.each([
    ['no JSON', '<html>'],
    ['no JSON inside', '{"bundle":tru}'],
    ['no bundle', '{"status":null}'],
    ['a member twice', `{"bundle":{},"bundle":${bundle}}`],
    ['more than it reads', ' '.repeat(1_100_000)],
  ])('refuses %s of a gateway', async (_, text) => {
    served = { status: 200, text };
    const { status, out } = await countersign('verify', 'answer.json', ...named, '--gateway', gateway);
    expect([status, out]).toEqual([2, expect.stringContaining(gateway)]);
  });

  it('verifies after all that', async () => {
    served = { status: 200, text: both };
    expect((await countersign('verify', 'answer.json', ...named, '--gateway', gateway)).status).toBe(0);
  });
});
