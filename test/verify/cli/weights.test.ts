// `--weights FILE|ROOT`, and how report and page name the weights of a known guest.
import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pem } from '../../../demo/twin/authority.ts';
import { makeSnpReport, snpMember } from '../../../demo/twin/snp.ts';
import { readStored } from '../../../page/proof/subject.ts';
import { concluded } from '../../../page/proof/verdict.ts';
import { printReport } from '../../../verify/cli/report.ts';
import { appraiseAttestation } from '../../../verify/index.ts';
import { commandLine } from '../../support/cli.ts';
import { temporaryFolder } from '../../support/harness.ts';
import { LAUNCH, LAUNCH_1, WEIGHTS } from '../../support/launch-file.ts';
import { AT, simulatedRoot } from '../maker.ts';
import { amd, answerIn, makeSession, processorRoots, snpLeaf } from '../session-maker.ts';

const run = commandLine();
const folder = temporaryFolder();
afterAll(() => folder.remove());
const write = (name: string, value: unknown): string => {
  const path = join(folder.path, name);
  writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value));
  return path;
};

const MEASUREMENT = 'a7'.repeat(48);
const guest = { type: 'SEV_SNP', measurement: [MEASUREMENT], launch_in: 'host_data' } as const;
const referenceOf = (launch: string) => ({ version: 1, cpu: [guest], launch: [hash('sha256', launch)] }) as const;

/** An answer of a guest that was started with this launch file. */
async function answerOf(launch: string) {
  const digest = hash('sha256', launch);
  const edit = (report: Buffer) => report.write(MEASUREMENT, 0x90, 'hex');
  const hostData = Buffer.from(digest, 'hex');
  const session = await makeSession({
    processor: (reportData) =>
      snpMember(makeSnpReport('Genoa', snpLeaf, { reportData, hostData, edit }), [snpLeaf, amd.ask]),
    statement: { launch: digest },
  });
  return answerIn({ ...session, cpu: { ...session.cpu, launch } });
}

describe('countersign --weights', () => {
  const checks = ['--at', AT.toISOString(), '--offline', '--without-reference-values', '--without-revocation'];
  let known: readonly string[] = [];
  beforeAll(async () => {
    const root = write('root.pem', simulatedRoot + processorRoots);
    const answer = write('answer.json', await answerOf(LAUNCH));
    known = [answer, ...checks, '--allow-simulated', root, '--reference', write('list.json', referenceOf(LAUNCH))];
  });

  it.each([
    ['a root', WEIGHTS.verity_root],
    ['a root in capitals', WEIGHTS.verity_root.toUpperCase()],
    ['weights.json', ''],
  ])('takes %s', (_, given) => {
    const { status, stdout } = run(...known, '--weights', given || write('weights.json', WEIGHTS));
    expect(stdout).toContain(`\n  weights    ${WEIGHTS.name}, root ${WEIGHTS.verity_root}\n`);
    expect(status).toBe(0);
  });

  it('refuses other weights, and says so in its last line', () => {
    const { status, stdout } = run(...known, '--weights', 'ef'.repeat(32));
    expect(stdout).toContain(`FAIL  cpu_weights  weights_mismatch: the launch file's weights are ${WEIGHTS.name}`);
    expect(stdout).toMatch(/\nINVALID: weights_mismatch: the machine was started with other weights than yours\n$/);
    expect(status).toBe(1);
  });

  it.each([
    ['no weights.json', '{}', /^countersign: --weights .*: weights: neither a verity root nor an object/],
    ['no JSON', 'ROOT', /^countersign: --weights .*: weights: neither a verity root nor JSON/],
  ])('cannot use %s', (_, text, message) => {
    const { status, stderr } = run(...known, '--weights', write('other.json', text));
    expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
    expect(run(...known).status).toBe(0);
  });

  it('demands level measured, for which a list names the software', () => {
    const genuine = run(known[0] ?? '', ...checks, '--weights', WEIGHTS.verity_root);
    expect(genuine.stdout).toContain('the level is none; the caller accepts measured or more');
    const unlisted = run(...known.slice(0, -2), '--weights', WEIGHTS.verity_root);
    expect(unlisted.stdout).toMatch(/\nINVALID: weights_missing: no weights are proven\nnext: .*--reference FILE\n$/);
    expect([genuine.status, unlisted.status, run(...known).status]).toEqual([1, 1, 0]);
  });
});

describe('a known guest', () => {
  const reported = async (launch: string) => {
    const answer = await answerOf(launch);
    const report = await appraiseAttestation(answer, {
      at: AT,
      roots: { device: simulatedRoot },
      without: { referenceValues: true, revocation: true },
      cpu: { roots: { amd: pem(amd.ark) }, reference: referenceOf(launch) },
    });
    expect(report.level).toBe('measured');
    const subject = readStored(Buffer.from(JSON.stringify(answer)), 'linked');
    const software = concluded(report, subject, AT).claims.find(({ title }) => title === 'Which software')?.text;
    const circumstances = { offline: true, now: AT };
    const printing = { verbose: true, coloured: false, at: AT, circumstances, stranger: null };
    return { software, text: printReport(report, 'attestation', printing) };
  };

  it('has its weights on the page and in the long report', async () => {
    const { software, text } = await reported(LAUNCH);
    expect(software).toContain(
      `It names backend, gateway, ready, sidecar, tsm. Its engine loads the weights ${WEIGHTS.name}.`,
    );
    expect(text).toContain(`            weights ${WEIGHTS.name}, root ${WEIGHTS.verity_root}\n`);
    expect(text).toContain(`\n  + Which weights: ${WEIGHTS.name}, root ${WEIGHTS.verity_root}`);
  });

  it('has none there, of a launch file of version 1', async () => {
    const { software, text } = await reported(LAUNCH_1);
    expect(software).toContain('Its writer names backend, gateway, sidecar.');
    expect(software).not.toContain('weights');
    expect(text).toContain("\n  - Which model's weights ran.\n");
  });
});
