// Programs that are wrong on purpose: the runner must see through every one of them.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { agrees, compare, count } from '../../scripts/conformance/compare.ts';
import { readManifest } from '../../scripts/conformance/manifest.ts';
import { temporaryFolder } from '../support/harness.ts';

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));
const RUNNER = ['scripts/conformance/main.ts'];
/** Nine cases: one valid, two incomplete, six invalid. */
const ONLY = ['--only', 'revocation.'];

function conformance(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...RUNNER, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

const cases = readManifest(VECTORS).cases.filter(({ file }) => file.startsWith('cases/revocation.'));

/** What the shell is told to do, with the case in $1. */
async function shell(script: string, timeout_ms = 20_000) {
  const rows = await compare(['sh', '-c', script, 'sh'], VECTORS, cases, { timeout_ms, max_output_bytes: 64 * 1024 });
  const counts = Object.fromEntries(Object.entries(count(rows)).filter(([, count]) => count > 0));
  return { agrees: agrees(rows), counts, rows };
}

describe('the runner', () => {
  it('ends with 0 for a program that is right', () => {
    const only = ['--only', 'revocation.pass.'];
    const { status, stdout } = conformance(...only, '--', process.execPath, 'scripts/conformance/verify.ts');
    expect({ status, stdout }).toEqual({ status: 0, stdout: '1 cases: 1 right, 0 differ, 0 not supported\n' });
  });

  it.each([
    ['accepts everything', 'echo valid none', { right: 1, accepted: 8 }],
    ['refuses everything', 'echo invalid revocation_invalid; exit 1', { right: 4, refused: 1, another: 4 }],
    ['takes what is missing for wrong', 'echo invalid revocation_unavailable; exit 1', { refused: 1, another: 8 }],
    ['is valid at another level', 'echo valid gpu', { accepted: 8, another: 1 }],
    ['prints nonsense', 'echo "all is well"', { broken: 9 }],
    ['prints nothing', 'exit 1', { broken: 9 }],
    ['says one thing and ends with another', 'echo valid none; exit 1', { broken: 9 }],
    ['says its verdict too early', 'echo valid none; echo done', { broken: 9 }],
    ['crashes', 'kill -SEGV $$', { broken: 9 }],
    ['crashes after its verdict', 'echo valid none; kill -KILL $$', { broken: 9 }],
    ['says that it was called wrongly', 'exit 2', { broken: 9 }],
    ['prints without end', 'while :; do echo valid none; done', { broken: 9 }],
    ['complains without end', 'while :; do echo no >&2; done', { broken: 9 }],
    ['supports nothing', 'exit 4', { unsupported: 9 }],
  ])('catches a program that %s', async (_what, script, counts) => {
    expect(await shell(script)).toMatchObject({ agrees: false, counts });
  });

  it('does not count what is not supported as agreement, nor as a difference', async () => {
    const script = 'case "$1" in *.pass.*) echo valid none;; *) exit 4;; esac';
    expect(await shell(script)).toMatchObject({ agrees: true, counts: { right: 1, unsupported: 8 } });
  });

  it('ends what hangs, with all that it started, and asks no further', async () => {
    const folder = temporaryFolder();
    try {
      const late = join(folder.path, 'late');
      const { agrees, counts, rows } = await shell(`(sleep 4; touch ${late}) & wait`, 1000);
      expect({ agrees, counts }).toEqual({ agrees: false, counts: { broken: 6, not_asked: 3 } });
      expect(rows[0]?.said).toBe('not done within 1 s');
      await wait(4000);
      expect(existsSync(late)).toBe(false);
    } finally {
      folder.remove();
    }
  });

  it('does not wait for what a program left behind', async () => {
    const began_ms = performance.now();
    expect(await shell('setsid sleep 15 & echo valid none')).toMatchObject({
      agrees: false,
      counts: { right: 1, accepted: 8 },
    });
    expect(performance.now() - began_ms).toBeLessThan(14_000);
  });

  it('ends the program when it is told to stop', async () => {
    const folder = temporaryFolder();
    try {
      const file = join(folder.path, 'pid');
      const runner = spawn(process.execPath, [
        ...RUNNER,
        ...ONLY,
        '--',
        'sh',
        '-c',
        `echo $$ >> ${file}; exec sleep 60`,
      ]);
      while (!existsSync(file) || readFileSync(file, 'utf8').split('\n').length < 3) await wait(20);
      runner.kill('SIGTERM');
      const [status] = await once(runner, 'exit');
      expect(status).toBe(1);
      for (const pid of readFileSync(file, 'utf8').trim().split('\n'))
        expect(() => process.kill(Number(pid), 0)).toThrow('ESRCH');
    } finally {
      folder.remove();
    }
  });

  it('shows the differences as a table', () => {
    const { stdout } = conformance('--only', 'revocation.fail.stale', '--', 'sh', '-c', 'echo valid none');
    expect(stdout).toBe(
      [
        'case                   expected                    the program says',
        'revocation.fail.stale  invalid revocation_invalid  valid none        accepted',
        '',
        '1 cases: 0 right, 1 differ (1 accepted what must be refused, 0 refused what is valid, 0 gave another code, 0 gave no verdict), 0 not supported',
        'The program was right on no case: that is no agreement.',
        '',
      ].join('\n'),
    );
  });

  it.each([
    [['--', './no-such-verifier'], './no-such-verifier cannot be run'],
    [['node', 'x'], 'no `--` before the program'],
    [['--'], 'no program is named'],
    [['--only', 'nothing', '--', 'true'], 'no case begins with nothing'],
    [['--timeout', '0', '--', 'true'], '--timeout takes 1 to 3600 seconds'],
    [['--wrong', '--', 'true'], "Unknown option '--wrong'"],
  ])('ends with 2 when called with %j', (args, said) => {
    const { status, stdout, stderr } = conformance(...args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain(said);
  });
});

describe('our program', () => {
  it.each([[[]], [['a', 'b']], [['no/such/file.json']]])('ends with 2 when called with %j', (args) => {
    const { status, stdout } = spawnSync(process.execPath, ['scripts/conformance/verify.ts', ...args], {
      encoding: 'utf8',
    });
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  });
});
