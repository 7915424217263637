// Answers of a guest that a release lists, and the release: for the verifier, the command line and the gateway.
import { generateKeyPairSync, hash } from 'node:crypto';
import { pem } from '../../../demo/twin/authority.ts';
import { makeSnpReport, snpMember } from '../../../demo/twin/snp.ts';
import { releaseStatement, STATUS_SAID, statusStatement } from '../../../scripts/vectors/release-kit.ts';
import { makeBundle, makeKeys, makeReleaseWorld, rootOf, SAID } from '../../../scripts/vectors/release-world.ts';
import type { VerifyOptions } from '../../../verify/index.ts';
import { LAUNCH, LAUNCH_SHA256, WEIGHTS } from '../../support/launch-file.ts';
import { AT, simulatedRoot } from '../maker.ts';
import { amd, type MadeSession, makeSession, type Processor, snpLeaf } from '../session-maker.ts';

export const MEASUREMENT = 'a7'.repeat(48);
const DAY_MS = 86_400_000;

/** A processor that says so of its guest. */
export const guest =
  (measurement = MEASUREMENT): Processor =>
  (reportData) => {
    const edit = (report: Buffer) => {
      report.write(measurement, 0x90, 'hex');
      report.write(LAUNCH_SHA256, 0xc0, 'hex');
    };
    return snpMember(makeSnpReport('Genoa', snpLeaf, { reportData, edit }), [snpLeaf, amd.ask]);
  };

export async function sessionOf(processor: Processor = guest()): Promise<MadeSession> {
  const made = await makeSession({ processor, statement: { launch: LAUNCH_SHA256 } });
  return { ...made, cpu: { ...made.cpu, launch: LAUNCH } };
}

const world = makeReleaseWorld(makeKeys());
const REFERENCE = {
  version: 1,
  cpu: [{ type: 'SEV_SNP', measurement: [MEASUREMENT], launch_in: 'host_data' }],
  launch: [LAUNCH_SHA256],
};
export const statement = (tag = 'v0.3.0'): string =>
  releaseStatement({
    tag,
    files: { 'reference.json': JSON.stringify(REFERENCE), 'launch.json': LAUNCH },
    predicate: { weights: [{ launch: 'launch.json', ...WEIGHTS }] },
  });

/** `ago`: days before the answer. */
export const bundleOf = (tag = 'v0.3.0', ago = 30): string =>
  JSON.stringify(
    makeBundle(world, {
      payload: statement(tag),
      at: new Date(AT.getTime() - ago * DAY_MS),
      said: { ...SAID, ref: `refs/tags/${tag}` },
    }),
  );
export const statusOf = (parts: Parameters<typeof statusStatement>[0] = {}, ago = 3): string =>
  JSON.stringify(
    makeBundle(world, {
      payload: statusStatement({ current: 'v0.3.0', sha256: hash('sha256', statement(parts?.current)), ...parts }),
      at: new Date(AT.getTime() - ago * DAY_MS),
      said: STATUS_SAID,
    }),
  );
export const trustedRoot = JSON.stringify(rootOf(world));
export const repository = SAID.repository;

/** Everything but the release. */
export const options: VerifyOptions = {
  at: AT,
  roots: { device: simulatedRoot },
  without: { referenceValues: true, revocation: true },
  cpu: { roots: { amd: pem(amd.ark) } },
};

export const strangeKey = () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
