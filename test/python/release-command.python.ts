// `countersign … --release` of npm and of PyPI: the same lines, and the same exit status.
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pem } from '../../demo/twin/authority.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import kinds from '../verify/cli/kinds.json' with { type: 'json' };
import { AT, attest, simulatedRoot } from '../verify/maker.ts';
import { bundleOf, repository, sessionOf, statusOf, trustedRoot } from '../verify/release/maker.ts';
import { amd, answerIn } from '../verify/session-maker.ts';
import { PACKAGE, python, SKIPPED } from './package.ts';

const BIN = fileURLToPath(new URL('../../bin/countersign.js', import.meta.url));
const bundle = bundleOf();
const both = `{"bundle":${bundle},"status":${statusOf()}}`;
let folder: Folder;
let server: Server;
let gateway = '';
let served = '';

beforeAll(async () => {
  folder = temporaryFolder();
  mkdirSync(join(folder.path, 'many'));
  const put = (name: string, text: string) => writeFileSync(join(folder.path, name), text);
  const session = await sessionOf();
  const answer = JSON.stringify(await answerIn(session));
  put('answer.json', answer);
  put('many/a.json', answer);
  put('many/b.json', JSON.stringify(await attest()));
  put('evidence.json', kinds.files.evidence.text);
  put('root.pem', simulatedRoot + pem(amd.ark));
  put('trusted.json', trustedRoot);
  put('session.json', JSON.stringify({ ...session.cpu, gpu: session.gpu }));
  server = createServer((_, response) => void response.writeHead(served === '' ? 404 : 200).end(served));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  folder.remove();
});

const ALWAYS = ['--allow-simulated', 'root.pem', '--without-reference-values', '--without-revocation', '--at'];

interface Ran {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

function run(program: string, args: readonly string[]): Promise<Ran> {
  const options = { cwd: folder.path, timeout: 60_000, env: { ...process.env, PYTHONPATH: `${PACKAGE}src` } };
  return new Promise((done) =>
    execFile(program, [...args, ...ALWAYS, AT.toISOString()], options, (error, out, err) =>
      // The name of the option in each language's library.
      done({ status: error === null ? 0 : Number(error.code), out, err: err.replace('trusted_root', 'trustedRoot') }),
    ),
  );
}

async function inBoth(...args: string[]): Promise<Ran> {
  const [npm, pypi] = await Promise.all([
    run(process.execPath, [BIN, ...args]),
    run(python ?? '', ['-B', '-m', 'countersign_verify', ...args]),
  ]);
  if (args.includes('--json')) {
    expect(JSON.parse(pypi.out)).toEqual(JSON.parse(npm.out));
    expect([pypi.status, pypi.err]).toEqual([npm.status, npm.err]);
  } else expect(pypi).toEqual(npm);
  return npm;
}

const named = ['--release', repository, '--trusted-root', 'trusted.json'];
const pinned = ['--release', `${repository}@v0.3.0`, '--trusted-root', 'trusted.json'];

describe.skipIf(python === null)(`countersign --release, of npm and of PyPI${SKIPPED}`, () => {
  it('asks a gateway, and says which release it is', async () => {
    served = both;
    const short = await inBoth('verify', 'answer.json', ...named, '--gateway', `${gateway}/v1/`);
    expect([short.status, short.out]).toEqual([0, expect.stringContaining('the current release')]);
    const whole = await inBoth('verify', 'answer.json', ...named, '--gateway', gateway, '--verbose');
    expect(whole.out).toContain('  release   v0.3.0 of example/countersign, status fresh');
    const json = await inBoth('verify', 'answer.json', ...named, '--gateway', gateway, '--json');
    expect([json.status, JSON.parse(json.out).claims.release.tag]).toEqual([0, 'v0.3.0']);
    const session = await inBoth('session', 'session.json', ...named, '--gateway', gateway);
    expect([session.status, session.out]).toEqual([0, expect.stringContaining('the current release')]);
    const several = await inBoth('verify', 'many', ...named, '--gateway', gateway);
    expect([several.status, several.out]).toEqual([1, expect.stringMatching(/policy_refused +many\/b\.json/)]);
  });

  it('keeps it with `collateral`, and reads it again without a network', async () => {
    served = both;
    const kept = join(folder.path, 'kept/release.json');
    const collateral = ['collateral', 'answer.json', '--into', 'kept', ...named, '--gateway', gateway];
    expect((await run(python ?? '', ['-B', '-m', 'countersign_verify', ...collateral])).err).toContain(
      '1 files in kept',
    );
    const text = readFileSync(kept, 'utf8');
    expect((await run(process.execPath, [BIN, ...collateral])).status).toBe(0);
    expect(readFileSync(kept, 'utf8')).toBe(text);
    const again = await inBoth('verify', 'answer.json', ...named, '--collateral', 'kept', '--offline');
    expect([again.status, again.out]).toEqual([0, expect.stringContaining('v0.3.0 of example/countersign')]);
  });

  it('is incomplete where there is none, and says that a status is absent or was withdrawn', async () => {
    served = '';
    expect((await inBoth('verify', 'answer.json', ...named, '--offline')).status).toBe(3);
    served = `{"bundle":${bundle}}`;
    expect((await inBoth('verify', 'answer.json', ...named, '--gateway', gateway)).status).toBe(3);
    const absent = await inBoth('verify', 'answer.json', ...pinned, '--gateway', gateway);
    expect([absent.status, absent.out]).toEqual([0, expect.stringContaining('absent: nobody shows whether')]);
    const other = ['--release', `${repository}@v0.2.0`, '--trusted-root', 'trusted.json', '--gateway', gateway];
    expect((await inBoth('verify', 'answer.json', ...other)).out).toContain('INVALID: release_tag_mismatch');
  });

  it('has no use for evidence of devices, which shows no guest', async () => {
    served = both;
    const collateral = ['--into', 'into', ...named, '--gateway', gateway];
    const refused = await inBoth('collateral', 'evidence.json', ...collateral);
    expect([refused.status, refused.err]).toEqual([2, expect.stringContaining('--release has no use for evidence')]);
  });

  it.each([
    [['--release']],
    [['--release', '@v1.0.0']],
    [['--release', 'https://github.com/o/r']],
    [['--release', repository, '--reference', 'x.json']],
    [['--gateway', 'http://127.0.0.1:1']],
    [['--trusted-root', 'trusted.json']],
    [['--release', repository, '--trusted-root', 'answer.json']],
    [['--release', repository, '--trusted-root', 'none.json']],
  ])('refuses %j', async (options) => {
    expect((await inBoth('verify', 'answer.json', ...options)).status).toBe(2);
  });

  it.each([
    ['no JSON', '<html>'],
    ['no bundle', '{"status":null}'],
    ['a member twice', `{"bundle":{},"bundle":${bundle}}`],
    ['more than it reads', ' '.repeat(1_100_000)],
  ])('refuses %s of a gateway, and takes a release after it', async (_, text) => {
    served = text;
    expect((await inBoth('verify', 'answer.json', ...named, '--gateway', gateway)).status).toBe(2);
    served = both;
    expect((await inBoth('verify', 'answer.json', ...named, '--gateway', gateway)).status).toBe(0);
  });
});
