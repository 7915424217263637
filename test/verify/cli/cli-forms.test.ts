// `countersign export` and `countersign verify --session`: what is printed, and with which exit status.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { exportCmw } from '../../../verify/cmw.ts';
import { commandLine } from '../../support/cli.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { AT, simulatedRoot, streamed, transcript } from '../maker.ts';
import { answerIn, makeSession, processorRoots, statementDigest } from '../session-maker.ts';

let folder: Folder;
const file = (name: string, content: string | Uint8Array) => {
  const path = join(folder.path, name);
  writeFileSync(path, content);
  return path;
};

const run = commandLine();

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

test.each([
  ['ear', '--json prints the report', (path: string) => ['verify', path, '--ear']],
  ['cvm1', '--cmw exports the evidence', (path: string) => ['export', path, '--cvm1']],
])('--%s of earlier versions is refused, with what remains: %s', (name, remains, args) => {
  const refused = {
    status: 2,
    stdout: '',
    stderr: `countersign: there is no --${name} any more: ${remains}\nsee --help\n`,
  };
  expect(run(...args(saved))).toMatchObject(refused);
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
    }
  }, 60_000);

  test('exits 1 with a code for what cannot be exported', () => {
    const { cpu: _, ...bare } = answer;
    for (const [content, code] of [
      ['{', 'not_json'],
      ['{}', 'not_an_attestation'],
      [JSON.stringify({ ...bare, evidence: undefined }), 'evidence_missing'],
      [JSON.stringify({ ...answer, cpu: { ...answer.cpu, type: 'X' } }), 'cpu_unsupported'],
    ] as const)
      expect(run('export', file('bad.json', content), '--cmw')).toMatchObject({
        status: 1,
        stdout: '',
        stderr: expect.stringMatching(new RegExp(`^countersign: ${code}: [^\\n]+\\n$`)),
      });
  });

  test.each([
    [[], 'a FILE is needed'],
    [['x'], 'export needs --cmw'],
    [['gone.json', '--cmw'], 'no such file'],
  ])('exits 2 where it is used wrongly: %j', (args, message) => {
    expect(run('export', ...args)).toMatchObject({ status: 2, stdout: '', stderr: expect.stringContaining(message) });
    expect(run('verify', saved, '--cmw').status).toBe(2);
  });
});
