// EAR, made of reports: what each level claims.
import { describe, expect, test } from 'vitest';
import { pem } from '../../../sidecar/cpu/simulated/authority.ts';
import { appraiseCpu, appraiseSession, type CpuClaims, verifySession } from '../../../verify/cpu.ts';
import { APPRAISAL_CLAIMS, earOfCpu } from '../../../verify/forms/ear.ts';
import { appraiseAttestation, appraiseEvidence, createCollateral, type VerifyOptions } from '../../../verify/index.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { caseOf, cases, memberOf, ofKind, optionsOf } from '../cpu/cases.ts';
import { CLOCKS, h100, h100Rims, ocspResponses } from '../gpu/genuine.ts';
import { AT, attest, EXCHANGE, simulatedRoot } from '../maker.ts';
import {
  amd,
  answerIn,
  intel,
  makeSession,
  processorRoots,
  signAnswer,
  statementDigest,
  tdx,
} from '../session-maker.ts';
import {
  CPU,
  GPU,
  GPU_LABEL,
  ISSUED,
  judgedAs,
  KNOWN,
  MADE,
  NONCE,
  reportOf,
  resultOf,
  SNP,
  type Spec,
  submod,
  wellFormed,
} from './ear-reports.ts';

describe('a result', () => {
  test('says who made it, when, as of when, and what our own report says', () => {
    const report = reportOf();
    const ear = resultOf(report, { at: AT });
    expect(ear.iat).toBe(Math.floor(ISSUED.getTime() / 1000));
    expect(ear.ear_verifier_id).toEqual({ developer: 'Countersign', build: 'countersign 9.9.9' });
    const { valid, level, checks, proven, not_proven } = report;
    expect(ear[APPRAISAL_CLAIMS]).toEqual({
      valid,
      level,
      simulated: false,
      as_of: AT.toISOString(),
      checks,
      proven,
      not_proven,
    });
    expect(resultOf(report)[APPRAISAL_CLAIMS].as_of).toBe(ISSUED.toISOString());
    expect(APPRAISAL_CLAIMS).toMatch(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  test('gives the claims of the evidence and those of the appraisal apart, and what each attester signed', () => {
    const ear = resultOf(reportOf());
    const { measurements_matched, ...evidence } = GPU;
    expect(submod(ear, GPU_LABEL)).toMatchObject({
      eat_nonce: Buffer.from(NONCE, 'hex').toString('base64url'),
      ear_attester_claims: { [APPRAISAL_CLAIMS]: evidence },
      ear_verifier_claims: { [APPRAISAL_CLAIMS]: { measurements_matched } },
    });
    const cpu = submod(ear, 'cpu');
    expect(cpu.eat_nonce).toBe(Buffer.from(CPU.report_data, 'hex').toString('base64url'));
    expect(cpu.ear_attester_claims).toMatchObject({
      tdx_mrtd: CPU.measurement,
      tdx_rtmr0: CPU.rtmrs?.[0],
      tdx_rtmr3: CPU.rtmrs?.[3],
      tdx_mrconfigid: CPU.host_data,
      [APPRAISAL_CLAIMS]: { type: 'TDX', fmspc: CPU.fmspc },
    });
    expect(cpu.ear_verifier_claims).toEqual({ [APPRAISAL_CLAIMS]: { tcb_status: 'UpToDate', advisories: [] } });
    const amds = submod(resultOf(reportOf({ cpu: SNP })), 'cpu').ear_attester_claims ?? {};
    expect(Object.keys(amds)).toEqual([APPRAISAL_CLAIMS]);
    expect(submod(resultOf(reportOf({ cpu: { type: 'AZURE_TDX' } })), 'cpu')).not.toHaveProperty('eat_nonce');
  });

  test('has a submodule for each device, by its kind and number, and never two under one label', () => {
    const other = { ...GPU, kind: 'switch', ueid: '17' } as const;
    const ear = resultOf(reportOf({ devices: [GPU, other, GPU], cpu: null }));
    expect(Object.keys(ear.submods)).toEqual([GPU_LABEL, 'nvswitch/17', 'device/2']);
    const unread = resultOf(
      reportOf({ devices: [GPU, other], fail: { 'report_signature[0]': 'report_signature_invalid' } }),
    );
    expect(Object.keys(unread.submods).sort()).toEqual(['cpu', 'device/0', 'nvswitch/17']);
    expect(judgedAs(unread, 'device/0')).toEqual(['contraindicated', { hardware: 99 }]);
    expect(judgedAs(unread, 'nvswitch/17')).toEqual(['none', { hardware: 0 }]);
  });
});

describe('of each level', () => {
  test.each(['SEV_SNP', 'TDX'])('twin, %s: affirms nothing, and says that it is simulated', async (type) => {
    const options = { simulatedRoot: simulatedRoot + processorRoots, at: AT };
    const session = await makeSession(type === 'TDX' ? { processor: tdx } : {});
    for (const report of [
      await appraiseAttestation(await answerIn(session), options),
      await appraiseSession({ ...session.cpu, gpu: session.gpu }, options),
    ]) {
      expect([report.valid, report.level]).toEqual([true, 'none']);
      const ear = resultOf(report, options);
      expect(JSON.stringify(ear)).not.toContain('affirming');
      expect(ear).toMatchObject({ ear_status: 'none', ear_all_submods_bound: 'unknown' });
      for (const one of Object.values(ear.submods))
        expect(one).toEqual({
          ear_status: 'none',
          ear_trustworthiness_vector: { hardware: 0 },
          ear_verifier_claims: { [APPRAISAL_CLAIMS]: { simulated: true } },
        });
      expect(ear[APPRAISAL_CLAIMS]).toMatchObject({ simulated: true, level: 'none' });
    }
  });

  test('a simulated processor beside a real GPU affirms neither', () => {
    const report = reportOf();
    const ear = resultOf({ ...report, level: 'none', claims: { ...report.claims, simulated: true } });
    expect(JSON.stringify(ear)).not.toContain('affirming');
  });

  test('gpu: hardware and configuration where both were compared, nothing where they were not', () => {
    const whole = resultOf(reportOf({ cpu: null }));
    expect(judgedAs(whole, GPU_LABEL)).toEqual(['affirming', { hardware: 2, configuration: 2 }]);
    expect(whole).toMatchObject({ ear_status: 'affirming', ear_all_submods_bound: 'unknown' });
    for (const skip of ['reference_values', 'revocation', 'report_nonce'] as const)
      expect(judgedAs(resultOf(reportOf({ cpu: null, skip: [skip] })), GPU_LABEL)).toEqual([
        'none',
        { configuration: 2 },
      ]);
    const bare = resultOf(reportOf({ cpu: null, skip: ['reference_values', 'revocation', 'device_mode'] }));
    expect(judgedAs(bare, GPU_LABEL)).toEqual(['none', { hardware: 0 }]);
    expect(bare.ear_status).toBe('none');
  });

  test('gpu+cpu, TDX: hardware, configuration and opacity, by the status that Intel gives', () => {
    const ear = resultOf(reportOf());
    expect(judgedAs(ear, 'cpu')).toEqual(['affirming', { hardware: 2, configuration: 2, 'runtime-opaque': 2 }]);
    expect(ear).toMatchObject({ ear_status: 'affirming', ear_all_submods_bound: 'true' });
    const accepted = resultOf(reportOf({ cpu: { tcb_status: 'SWHardeningNeeded' } }));
    expect(judgedAs(accepted, 'cpu')).toEqual(['warning', { hardware: 32, configuration: 2 }]);
    expect(accepted.ear_status).toBe('warning');
  });

  test('gpu+cpu, SEV-SNP: as AR4SI means it where the firmware had a minimum to meet, else on the caller’s terms', () => {
    const judged = (spec: Spec) => judgedAs(resultOf(reportOf(spec)), 'cpu');
    expect(judged({ cpu: SNP })).toEqual(['affirming', { hardware: 2, configuration: 2, 'runtime-opaque': 2 }]);
    expect(judged({ cpu: SNP, skip: ['cpu_tcb'] })).toEqual(['affirming', { hardware: -2, configuration: 2 }]);
    expect(judged({ cpu: SNP, skip: ['cpu_revocation'] })).toEqual(['none', { configuration: 2 }]);
    expect(judged({ cpu: { ...SNP, vmpl: 2 } })).toEqual(['affirming', { hardware: 2, 'runtime-opaque': 2 }]);
    expect(judged({ cpu: { ...SNP, vmpl: 2 }, skip: ['cpu_revocation'] })).toEqual(['none', { hardware: 0 }]);
  });

  test('measured: executables as of the boot, by another value where something was left out', () => {
    const vector = (cpu: Partial<CpuClaims>) =>
      submod(resultOf(reportOf({ cpu: { software: KNOWN, ...cpu } })), 'cpu').ear_trustworthiness_vector;
    expect(vector({})).toEqual({ hardware: 2, configuration: 2, 'runtime-opaque': 2, executables: 3 });
    expect(vector({ software: { ...KNOWN, uncompared: 'ACPI tables' } })).toMatchObject({ executables: -2 });
    expect(vector({ ...SNP, vmpl: 1 })).toMatchObject({ configuration: 2 });
    // An event log alone passes cpu_software, and says nothing of what is approved.
    expect(vector({ software: null })).not.toHaveProperty('executables');
  });

  test('the same from reports as they are made, under roots of the caller’s own: on the caller’s terms, never as the makers’', async () => {
    const base: VerifyOptions = {
      at: AT,
      roots: { device: simulatedRoot },
      without: { referenceValues: true, revocation: true },
    };
    const roots = { amd: pem(amd.ark), intel: pem(intel.root) };
    const collateral = { ...base, without: { referenceValues: true } };
    const answer = await answerIn(await makeSession({ processor: tdx }));
    const options = { ...base, cpu: { roots } };
    const { level, ...report } = await appraiseAttestation(answer, options);
    expect(level).toBe('gpu+cpu');
    const ear = resultOf({ level, ...report }, options);
    const [gpu = ''] = Object.keys(ear.submods).filter((label) => label.startsWith('gpu/'));
    expect(judgedAs(ear, gpu)).toEqual(['none', { hardware: 0 }]);
    // Revocation was left out.
    expect(judgedAs(ear, 'cpu')).toEqual(['none', { configuration: -2 }]);
    expect(ear.ear_all_submods_bound).toBe('true');
    const asked = await appraiseAttestation(answer, { ...collateral, cpu: { roots } });
    expect(asked.checks.find(({ name }) => name === 'revocation')).toMatchObject({ code: 'revocation_unavailable' });
    const undecided = resultOf(asked, options);
    expect(undecided).toMatchObject({ ear_status: 'none', ear_all_submods_bound: 'unknown' });
    expect(judgedAs(undecided, gpu)).toEqual(['none', { hardware: 0 }]);

    const member = JSON.stringify({ ...answer.cpu, signature: undefined, statement: undefined, gpu_sha256: undefined });
    const alone = await appraiseCpu(member, { at: AT, roots });
    expect(wellFormed(earOfCpu(alone, { at: AT, roots }, MADE)).submods.cpu?.ear_trustworthiness_vector).toEqual({
      hardware: -2,
      configuration: -2,
      'runtime-opaque': -2,
    });
  });

  test('a session that was verified before is bound, and not claimed again', async () => {
    const options: VerifyOptions = {
      at: AT,
      roots: { device: simulatedRoot },
      without: { referenceValues: true, revocation: true },
      cpu: { roots: { amd: pem(amd.ark), intel: pem(intel.root) } },
    };
    const made = await makeSession();
    const { session } = await verifySession({ ...made.cpu, gpu: made.gpu }, options);
    const answer = await attest({ ...EXCHANGE, session: statementDigest(made) });
    const cpu = { statement_sha256: statementDigest(made), signature: signAnswer(made, answer) };
    const report = await appraiseAttestation({ ...answer, cpu }, { ...options, session });
    expect([report.valid, report.level]).toEqual([true, 'gpu+cpu']);
    const ear = resultOf(report, options);
    expect(submod(ear, 'cpu')).toEqual({ ear_status: 'none', ear_trustworthiness_vector: { hardware: 0 } });
    expect(ear.ear_all_submods_bound).toBe('true');
  });
});

describe.runIf(vectorsPresent)('genuine evidence', () => {
  test('an H100 with all its endorsements, judged at a time for each: on the caller’s terms', async () => {
    const options = {
      clocks: CLOCKS,
      collateral: createCollateral({ rims: h100Rims(), ocsp: ocspResponses() }),
    };
    const report = await appraiseEvidence([h100()], options);
    expect([report.valid, report.level]).toEqual([true, 'gpu']);
    const ear = resultOf(report, options);
    const [label = ''] = Object.keys(ear.submods);
    expect(label).toBe(`gpu/${report.claims.devices[0]?.ueid}`);
    expect(judgedAs(ear, label)).toEqual(['affirming', { hardware: -2, configuration: -2 }]);
    const alone = await appraiseEvidence([h100()], {
      without: { referenceValues: true, revocation: true },
      at: CLOCKS.report,
    });
    expect(judgedAs(resultOf(alone, { at: CLOCKS.report }), label)).toEqual(['none', { hardware: 0 }]);
    expect(resultOf(await appraiseEvidence([h100()])).ear_status).not.toBe('affirming');
  });

  test('every processor of the vectors: affirmed only where the verdict is valid, by what passed', async () => {
    const seen: Record<string, number> = {};
    for (const one of [...ofKind('snp', 'tdx', 'az-snp', 'az-tdx')]) {
      const options = optionsOf(one);
      const report = await appraiseCpu(JSON.stringify(memberOf(one)), options);
      const ear = wellFormed(earOfCpu(report, options, MADE));
      const { ear_status, ear_trustworthiness_vector: vector } = submod(ear, 'cpu');
      expect(Object.keys(ear.submods)).toEqual(['cpu']);
      if (!report.valid) expect([one.id, ['none', 'contraindicated'].includes(ear_status)]).toEqual([one.id, true]);
      const status = report.claims?.tcb_status;
      if (report.valid && one.kind === 'tdx')
        expect([one.id, vector.hardware]).toEqual([one.id, status === 'UpToDate' ? 2 : 32]);
      if (report.valid && one.kind === 'snp')
        expect([one.id, vector]).toEqual([one.id, report.claims?.vmpl === 0 ? { configuration: 2 } : { hardware: 0 }]);
      seen[ear_status] = (seen[ear_status] ?? 0) + 1;
    }
    expect(cases.length).toBeGreaterThan(40);
    expect(Object.keys(seen).sort()).toEqual(['affirming', 'contraindicated', 'none', 'warning']);
  });

  test('a genuine quote that Intel calls up to date: what it signed stands in the claims', async () => {
    const one = caseOf('v4-gcp-cos113');
    const options = optionsOf(one);
    const report = await appraiseCpu(JSON.stringify(memberOf(one)), options);
    const ear = wellFormed(earOfCpu(report, options, MADE));
    expect(submod(ear, 'cpu').ear_attester_claims).toMatchObject({ tdx_mrtd: report.claims?.measurement });
    const { eat_nonce = '' } = submod(ear, 'cpu');
    expect(Buffer.from(eat_nonce, 'base64url').toString('hex')).toBe(report.claims?.report_data);
  });
});
