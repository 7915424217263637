// `countersign verify … --ear` and `countersign export`: what is printed, and with which exit status.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { APPRAISAL_CLAIMS, type Ear } from '../../../verify/forms/ear.ts';
import { exportCmw, exportCvm1 } from '../../../verify/forms/export.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { caseOf, memberOf } from '../cpu/cases.ts';
import { wellFormed } from '../forms/ear-reports.ts';
import { AT, simulatedRoot, streamed, transcript } from '../maker.ts';
import { answerIn, makeSession, processorRoots, statementDigest } from '../session-maker.ts';

const CLI = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));

let folder: Folder;
const file = (name: string, content: string | Uint8Array) => {
  const path = join(folder.path, name);
  writeFileSync(path, content);
  return path;
};

function run(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

const earOf = (stdout: string): Ear => wellFormed(JSON.parse(stdout));

const session = await makeSession();
const answer = await answerIn(session);
let given: string[];
let saved: string;
let alone: string;
beforeAll(() => {
  folder = temporaryFolder();
  given = [
    '--allow-simulated',
    file('roots.pem', simulatedRoot + processorRoots),
    '--at',
    AT.toISOString(),
    '--offline',
  ];
  saved = file('attestation.json', JSON.stringify(answer));
  alone = file('session.json', JSON.stringify({ ...session.cpu, gpu: session.gpu }));
});
afterAll(() => folder.remove());

describe('countersign verify --ear', () => {
  test('prints the result and nothing else, with the exit status of the report', () => {
    const before = Math.floor(Date.now() / 1000);
    for (const [command, path] of [
      ['verify', saved],
      ['session', alone],
    ] as const) {
      const { status, stdout } = run(command, path, '--ear', ...given);
      const ear = earOf(stdout);
      expect(status).toBe(0);
      expect(ear.ear_verifier_id.build).toBe(`countersign ${version}`);
      expect(ear.iat).toBeGreaterThanOrEqual(before);
      expect(ear.iat).toBeLessThanOrEqual(Date.now() / 1000);
      expect(ear[APPRAISAL_CLAIMS]).toMatchObject({ valid: true, simulated: true, as_of: AT.toISOString() });
      expect(stdout).not.toContain('affirming');
      expect(Object.keys(ear.submods).sort()).toEqual(['cpu', expect.stringMatching(/^gpu\/\d+$/)]);
    }
    const refused = run('verify', saved, '--ear', '--at', AT.toISOString(), '--offline');
    expect(refused.status).toBe(1);
    expect(earOf(refused.stdout)).toMatchObject({ ear_status: 'contraindicated' });
    expect(run('verify', file('nothing.json', '{'), '--ear')).toMatchObject({ status: 1 });
  });

  test('is another form than --json, and of verify alone', () => {
    for (const args of [
      ['verify', saved, '--ear', '--json'],
      ['export', saved, '--cmw', '--ear'],
      ['collateral', saved, '--into', folder.path, '--ear'],
    ])
      expect(run(...args)).toMatchObject({ status: 2, stdout: '', stderr: expect.stringContaining('--ear') });
  });

  test.runIf(vectorsPresent)('of genuine evidence says what was compared', () => {
    const cpu = file('cpu.json', JSON.stringify(memberOf(caseOf('turin-v5-caci'))));
    const turin = run('cpu', cpu, '--at', '2026-11-22T00:00:00Z', '--without-revocation', '--ear');
    expect(turin.status).toBe(0);
    expect(earOf(turin.stdout)).toMatchObject({
      ear_all_submods_bound: 'unknown',
      submods: { cpu: { ear_status: 'none', ear_trustworthiness_vector: { configuration: 2 } } },
    });
    const [device] = JSON.parse(vector('nvidia/h100-590.12/evidence.json').toString());
    const evidence = file('evidence.json', JSON.stringify([device]));
    const without = ['--without-reference-values', '--without-revocation', '--offline'];
    const bare = earOf(run('evidence', evidence, ...without, '--ear').stdout);
    expect(bare).toMatchObject({ ear_status: 'none', [APPRAISAL_CLAIMS]: { valid: true, level: 'gpu' } });
  });
});

test('--session: the policy judges the attestation that names it', () => {
  const cpu = { statement_sha256: statementDigest(session), signature: answer.cpu.signature };
  const short = file('short.json', JSON.stringify({ ...answer, cpu }));
  const quoted = file('quoted.json', JSON.stringify(readFileSync(alone, 'utf8')));
  const last = (...args: string[]) => {
    const { status, stdout, stderr } = run('verify', short, ...given, ...args);
    return [status, /^(INVALID: \w+|VALID.*)/m.exec(stdout)?.[0] ?? '', stderr];
  };
  expect(last()).toEqual([1, 'INVALID: cpu_missing', '']);
  for (const held of [alone, quoted])
    expect(last('--session', held, '--max-age', '300', '--max-batch', '1')).toEqual([0, 'VALID (level: none)', '']);
  expect(last('--session', alone, '--max-age', '300', '--at', new Date(+AT + 900_000).toISOString())).toEqual([
    1,
    'INVALID: too_old',
    '',
  ]);
  expect(last('--session', alone, '--require-level', 'gpu')).toEqual([1, 'INVALID: policy_refused', '']);
  expect(last('--session', saved, '--max-age', '300')).toEqual([2, '', expect.stringContaining('--session')]);
});

describe('countersign export', () => {
  test('prints what the library exports', async () => {
    const stream = await answerIn(session, await streamed());
    for (const [path, input] of [
      [saved, answer],
      [alone, { ...session.cpu, gpu: session.gpu }],
      [file('stream.txt', transcript(stream)), stream],
    ] as const) {
      const cmw = run('export', path, '--cmw');
      expect([cmw.status, cmw.stderr, JSON.parse(cmw.stdout)]).toEqual([0, '', await exportCmw(input)]);
      const cvm1 = run('export', path, '--cvm1');
      expect([cvm1.status, cvm1.stderr, JSON.parse(cvm1.stdout)]).toEqual([0, '', await exportCvm1(input)]);
    }
  }, 60_000);

  test('exits 1 with a code for what cannot be exported', () => {
    const { cpu: _, ...bare } = answer;
    for (const [content, form, code] of [
      ['{', '--cmw', 'not_json'],
      ['{}', '--cvm1', 'not_an_attestation'],
      [JSON.stringify(bare), '--cvm1', 'cpu_missing'],
      [JSON.stringify({ ...answer, cpu: { ...answer.cpu, type: 'X' } }), '--cmw', 'cpu_unsupported'],
    ] as const)
      expect(run('export', file('bad.json', content), form)).toMatchObject({
        status: 1,
        stdout: '',
        stderr: expect.stringMatching(new RegExp(`^countersign: ${code}: [^\\n]+\\n$`)),
      });
  });

  test.each([
    [[], 'a FILE is needed'],
    [['x'], '--cmw and --cvm1'],
    [['x', '--cmw', '--cvm1'], '--cmw and --cvm1'],
    [['gone.json', '--cmw'], 'no such file'],
  ])('exits 2 where it is used wrongly: %j', (args, message) => {
    expect(run('export', ...args)).toMatchObject({ status: 2, stdout: '', stderr: expect.stringContaining(message) });
    expect(run('verify', saved, '--cmw').status).toBe(2);
  });
});
