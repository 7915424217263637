// EAR of reports in which something failed: what each check says of its attester, and that nothing is affirmed beyond what passed.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { appraiseAttestation, CHECKS, type CheckName, CPU_CHECKS, type FailureCode } from '../../../verify/index.ts';
import { AT, a, attest, b, simulatedRoot } from '../maker.ts';
import { answerIn, makeSession, processorRoots } from '../session-maker.ts';
import { GPU, GPU_LABEL, judgedAs, KNOWN, reportOf, resultOf, SNP, submod } from './ear-reports.ts';

describe('a failing check', () => {
  const OF_THE_GPU: readonly (readonly [CheckName, FailureCode, string, Record<string, number>])[] = [
    ['report_form', 'report_malformed', 'none', { hardware: 1 }],
    ['report_nonce', 'report_nonce_mismatch', 'contraindicated', { hardware: 99 }],
    ['report_signature', 'report_signature_invalid', 'contraindicated', { hardware: 99 }],
    ['report_chain', 'chain_invalid', 'contraindicated', { hardware: 99 }],
    ['report_chain', 'certificate_expired', 'contraindicated', { hardware: 99 }],
    ['report_chain', 'untrusted_root', 'contraindicated', { hardware: 97 }],
    ['report_chain', 'simulated_root_refused', 'contraindicated', { hardware: 97 }],
    ['report_fwid', 'fwid_mismatch', 'contraindicated', { hardware: 99 }],
    ['revocation', 'revocation_unavailable', 'none', { hardware: 0 }],
    ['revocation', 'certificate_revoked', 'contraindicated', { hardware: 96 }],
    ['reference_values', 'rim_unavailable', 'none', { hardware: 0 }],
    ['reference_values', 'rim_signature_invalid', 'contraindicated', { hardware: 99 }],
    ['reference_values', 'measurement_mismatch', 'contraindicated', { hardware: 97 }],
    ['device_mode', 'debug_enabled', 'contraindicated', { configuration: 96 }],
    ['device_mode', 'device_not_confidential', 'contraindicated', { configuration: 96 }],
    ['topology', 'topology_mismatch', 'contraindicated', { configuration: 96 }],
  ];
  test.each(OF_THE_GPU)('of a device, %s %s: %s', (name, code, status, vector) => {
    const ear = resultOf(reportOf({ fail: { [name]: code } }));
    const [label = ''] = Object.keys(ear.submods).filter((one) => one !== 'cpu');
    expect(judgedAs(ear, label)).toEqual([status, vector]);
    expect(judgedAs(ear, 'cpu')).toEqual(['none', { hardware: 0 }]);
    expect([ear.ear_status, ear.ear_all_submods_bound]).toEqual([status, 'unknown']);
  });

  const OF_THE_CPU: typeof OF_THE_GPU = [
    ['cpu_form', 'cpu_malformed', 'none', { hardware: 1 }],
    ['cpu_form', 'cpu_unsupported', 'none', { hardware: 1 }],
    ['cpu_form', 'cpu_missing', 'none', { hardware: 0 }],
    ['cpu_signature', 'cpu_signature_invalid', 'contraindicated', { hardware: 99 }],
    ['cpu_chain', 'untrusted_root', 'contraindicated', { hardware: 97 }],
    ['cpu_identity', 'cpu_identity_mismatch', 'contraindicated', { hardware: 99 }],
    ['cpu_revocation', 'certificate_revoked', 'contraindicated', { hardware: 96 }],
    ['cpu_revocation', 'revocation_unavailable', 'none', { hardware: 0 }],
    ['cpu_binding', 'cpu_binding_mismatch', 'contraindicated', { 'instance-identity': 99 }],
    ['cpu_binding', 'session_expired', 'contraindicated', { 'instance-identity': 96 }],
    ['cpu_devices', 'cpu_devices_mismatch', 'contraindicated', { 'instance-identity': 97 }],
    ['cpu_answer', 'answer_signature_invalid', 'contraindicated', { 'instance-identity': 99 }],
    ['cpu_mode', 'debug_enabled', 'contraindicated', { configuration: 96, 'runtime-opaque': 96 }],
    ['cpu_mode', 'cpu_policy_refused', 'contraindicated', { configuration: 96 }],
    ['cpu_tcb', 'tcb_not_accepted', 'contraindicated', { hardware: 96 }],
    ['cpu_tcb', 'collateral_expired', 'none', { hardware: 0 }],
    ['cpu_tcb', 'collateral_invalid', 'contraindicated', { hardware: 99 }],
    ['cpu_measurement', 'measurement_mismatch', 'contraindicated', { executables: 33 }],
    ['cpu_software', 'software_mismatch', 'contraindicated', { executables: 33 }],
    ['cpu_software', 'event_log_mismatch', 'contraindicated', { executables: 99 }],
  ];
  test.each(OF_THE_CPU)('of the processor, %s %s: %s', (name, code, status, vector) => {
    const ear = resultOf(reportOf({ fail: { [name]: code } }));
    expect(judgedAs(ear, 'cpu')).toEqual([status, vector]);
    expect(judgedAs(ear, GPU_LABEL)).toEqual(['none', { hardware: 0 }]);
    const isOfBinding = ['cpu_binding', 'cpu_devices', 'cpu_answer'].includes(name);
    expect([ear.ear_status, ear.ear_all_submods_bound]).toEqual([status, isOfBinding ? 'false' : 'unknown']);
    expect(submod(ear, 'cpu')).not.toHaveProperty('ear_attester_claims');
  });

  test.each([
    ['raw_hash', 'raw_hash_mismatch', 'contraindicated'],
    ['token_signature', 'token_signature_invalid', 'contraindicated'],
    ['policy', 'policy_refused', 'contraindicated'],
    ['token_signature', 'token_key_unavailable', 'none'],
    ['form', 'not_json', 'none'],
  ] as const)('of neither, %s %s: affirms nothing, and the whole is %s', (name, code, status) => {
    const ear = resultOf(reportOf({ fail: { [name]: code } }));
    expect(Object.values(ear.submods).map(({ ear_status }) => ear_status)).toEqual(['none', 'none']);
    expect(ear.ear_status).toBe(status);
  });

  test('of several the worst counts', () => {
    const fail = {
      cpu_revocation: 'revocation_unavailable',
      cpu_tcb: 'tcb_not_accepted',
      cpu_chain: 'chain_invalid',
    } as const;
    expect(judgedAs(resultOf(reportOf({ fail })), 'cpu')).toEqual(['contraindicated', { hardware: 99 }]);
  });

  test('in what cannot be read at all leaves one submodule, of which nothing is said', async () => {
    for (const input of ['{', '{}', JSON.stringify({ raw: 'x', nonce: '00'.repeat(32), token: 'y' })]) {
      const ear = resultOf(await appraiseAttestation(input));
      expect(ear.submods).toEqual({ gpu: { ear_status: 'none', ear_trustworthiness_vector: { hardware: 0 } } });
      expect(ear.ear_status).not.toBe('affirming');
    }
  });

  test('whatever fails or is skipped: nothing is affirmed of an invalid report, and nothing bound that was not checked', () => {
    const names = [...CHECKS, ...CPU_CHECKS];
    const codes = [...OF_THE_GPU, ...OF_THE_CPU].map(([, code]) => code);
    const failing = fc.dictionary(fc.constantFrom(...names), fc.constantFrom(...codes), { maxKeys: 3 });
    const spec = fc.record({
      fail: failing,
      skip: fc.subarray(names),
      devices: fc.constantFrom([GPU], [], [GPU, { ...GPU, ueid: '2' }]),
      cpu: fc.constantFrom(null, {}, SNP, { software: KNOWN }),
    });
    fc.assert(
      fc.property(spec, (one) => {
        const report = reportOf(one);
        const ear = resultOf(report);
        const affirms = JSON.stringify(ear).includes('"affirming"');
        if (!report.valid) expect(affirms).toBe(false);
        if (ear.ear_all_submods_bound === 'true')
          for (const name of ['cpu_binding', 'cpu_devices'])
            expect(report.checks.find((check) => check.name === name)?.status).toBe('pass');
        // A category stands on checks that passed.
        const passed = (name: CheckName) =>
          report.checks.some((check) => check.name === name && check.status === 'pass');
        const { cpu } = ear.submods;
        if (report.valid && cpu !== undefined) {
          const { hardware = 0, configuration = 0, executables = 0 } = cpu.ear_trustworthiness_vector;
          if (hardware !== 0)
            for (const name of ['cpu_signature', 'cpu_chain', 'cpu_identity', 'cpu_revocation'] as const)
              expect([name, passed(name)]).toEqual([name, true]);
          if (hardware === 2) expect(passed('cpu_tcb')).toBe(true);
          if (hardware === 0) expect(cpu.ear_status).toBe('none');
          if (configuration !== 0) expect(passed('cpu_mode')).toBe(true);
          if (executables !== 0) expect(passed('cpu_measurement') && passed('cpu_software')).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('where the evidence is there and wrong', () => {
  test('another machine’s GPU: the binding is false, and neither is affirmed', async () => {
    const options = { simulatedRoot: simulatedRoot + processorRoots, at: AT };
    const report = await appraiseAttestation(await answerIn(await makeSession(), undefined, [b]), options);
    const real = { ...report, claims: { ...report.claims, simulated: false } };
    const ear = resultOf(real, options);
    expect(ear).toMatchObject({ ear_status: 'contraindicated', ear_all_submods_bound: 'false' });
    expect(judgedAs(ear, 'cpu')).toEqual(['contraindicated', { 'instance-identity': 97 }]);
  });

  test('a device twice: the second cannot be read as another', async () => {
    const report = await appraiseAttestation(await attest(undefined, [a, a]), { simulatedRoot, at: AT });
    expect(resultOf(report).submods['device/1']).toMatchObject({ ear_trustworthiness_vector: { hardware: 1 } });
  });
});
