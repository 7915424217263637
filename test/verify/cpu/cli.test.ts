// `countersign cpu FILE`, over genuine evidence.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { caseOf, memberOf } from './cases.ts';

const CLI = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
let folder: Folder;
beforeAll(() => {
  folder = temporaryFolder();
});
afterAll(() => folder.remove());

function verifyCase(id: string, ...args: string[]) {
  const path = join(folder.path, `${id}.json`);
  writeFileSync(path, JSON.stringify(memberOf(caseOf(id))));
  const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, 'cpu', path, ...args], {
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

const AT = ['--at', '2026-11-22T00:00:00Z'];

describe.runIf(vectorsPresent)('countersign cpu', () => {
  it('prints each check and what the report claims, and that no software was compared', () => {
    const { status, stdout } = verifyCase('turin-v5-caci', ...AT, '--without-revocation', '--verbose');
    expect(stdout).toMatch(/^ {2}pass {2}cpu_signature /m);
    expect(stdout).toMatch(/^ {2}type {9}SEV_SNP, Turin$/m);
    expect(stdout).toMatch(/^ {2}measurement {2}[0-9a-f]{96}$/m);
    expect(stdout).toContain('which software ran');
    expect(stdout.trimEnd()).toMatch(/\nPASSED: a processor's evidence, about no answer$/);
    expect(status).toBe(0);
  });

  it('compares the guest with those of a reference file', () => {
    const { measurement, host_data } = JSON.parse(
      verifyCase('turin-v5-caci', ...AT, '--without-revocation', '--json').stdout,
    ).claims;
    const file = join(folder.path, 'reference.json');
    const judged = (own: string, launch: string) => {
      const guest = { type: 'SEV_SNP', measurement: [own], launch_in: 'host_data' };
      writeFileSync(file, JSON.stringify({ version: 1, cpu: [guest], launch: [launch] }));
      return verifyCase('turin-v5-caci', ...AT, '--without-revocation', '--verbose', '--reference', file);
    };
    const known = judged(measurement, host_data);
    expect(known.stdout).toMatch(/^ {2}pass {2}cpu_measurement /m);
    expect(known.stdout).toContain(`of launch file ${host_data}`);
    expect(known.stdout).not.toContain('which software ran');
    expect(judged('00'.repeat(48), host_data).stdout.trimEnd()).toMatch(/\nINVALID: measurement_mismatch: [^\n]+$/);
    expect(judged(measurement, '00'.repeat(32)).stdout.trimEnd()).toMatch(/\nINVALID: software_mismatch: [^\n]+$/);
    const unusable = judged('ab', host_data);
    expect([unusable.status, unusable.stderr]).toEqual([2, expect.stringContaining('cpu[0].measurement')]);
  });

  it("demands AMD's revocation list unless told otherwise", () => {
    const { status, stdout } = verifyCase('turin-v5-caci', ...AT);
    expect(stdout).toMatch(/\nINCOMPLETE: revocation_unavailable: .*; nothing was found wrong\nnext: .*AMD's/);
    expect(status).toBe(3);
  });

  it('refuses Milan unless it is named', () => {
    const strict = verifyCase('milan-v2', ...AT, '--without-revocation');
    expect(strict.stdout.trimEnd()).toMatch(/\nINVALID: cpu_policy_refused: [^\n]+$/);
    const named = verifyCase('milan-v2', ...AT, '--without-revocation', '--product', 'Milan');
    expect([named.status, named.stdout.trimEnd().split('\n').at(-1)]).toEqual([
      0,
      "PASSED: a processor's evidence, about no answer",
    ]);
  });

  it('compares what was given to be signed', () => {
    const claimed = JSON.parse(verifyCase('turin-v5-caci', ...AT, '--without-revocation', '--json').stdout).claims;
    const given = [...AT, '--without-revocation', '--verbose', '--report-data'];
    const right = verifyCase('turin-v5-caci', ...given, claimed.report_data);
    expect(right.stdout).toMatch(/^ {2}pass {2}cpu_binding /m);
    const wrong = verifyCase('turin-v5-caci', ...AT, '--without-revocation', '--report-data', 'ab'.repeat(32));
    expect(wrong.stdout.trimEnd()).toMatch(/\nINVALID: cpu_binding_mismatch: [^\n]+$/);
  });

  it.each([
    [['--report-data', 'abc'], '--report-data abc: not 1 to 64 bytes in hexadecimal digits'],
    [['--product', 'Rome'], '--product Rome: not one of Milan, Genoa, Turin'],
    [['--tcb', 'Fine'], '--tcb Fine: not one of UpToDate'],
    [['--request', 'x'], 'cpu has no --request, which is of verify'],
  ])('refuses %j with exit status 2', (args, message) => {
    const { status, stderr } = verifyCase('turin-v5-caci', ...args);
    expect(stderr).toContain(message);
    expect(status).toBe(2);
  });
});
