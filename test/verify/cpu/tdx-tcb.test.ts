import { describe, expect, test } from 'vitest';
import { certify, makeCrl, newKeys, pem } from '../../../demo/twin/authority.ts';
import {
  type CollateralSpec,
  FROM,
  level,
  makeCollateral,
  module,
  svnLevel,
  svns,
  TO,
} from '../../../demo/twin/tdx.ts';
import type { CpuVerifyOptions, TdxCollateral } from '../../../verify/cpu/cpu-options.ts';
import { intel, other, type Parts, ROOTS, refuse, stateOf } from './tdx-bench.ts';

describe('cpu_tcb: collateral', () => {
  const of = (code: string) => [['cpu_tcb', code]];
  test('none', async () => expect(await refuse({ collateral: null })).toEqual(of('collateral_unavailable')));
  test('one byte of a text is changed', async () => {
    const change = (name: 'tcb_info' | 'qe_identity') => (all: TdxCollateral) => ({
      ...all,
      [name]: all[name].replace('UpToDate', 'UpToDatE'),
    });
    expect(await refuse({ edit: change('tcb_info') })).toEqual(of('collateral_invalid'));
    expect(await refuse({ edit: change('qe_identity') })).toEqual(of('collateral_invalid'));
  });
  test('a text that is written again is another', async () => {
    const again = (all: TdxCollateral) => ({ ...all, tcb_info: JSON.stringify(JSON.parse(all.tcb_info)) });
    expect(await refuse({ edit: again })).toEqual(of('collateral_invalid'));
  });
  test('the two texts exchanged', async () => {
    const exchanged = (all: TdxCollateral) => ({
      ...all,
      tcb_info: all.qe_identity,
      tcb_info_signature: all.qe_identity_signature,
    });
    expect(await refuse({ edit: exchanged })).toEqual(of('collateral_invalid'));
  });
  test.each([
    ['SGX, not TDX', { id: 'SGX' }],
    ['another version', { version: 2 }],
    ['another FMSPC', { fmspc: 'B0C06F000000' }],
    ['another PCE', { pceId: '0001' }],
    ['no levels', { tcbLevels: undefined }],
    ['a status that is not known', { tcbLevels: [level(svns(), svns(), 0, 'Fine')] }],
    ['fifteen components', { tcbLevels: [level([1], svns(), 0, 'UpToDate')] }],
    ['a time that is none', { nextUpdate: '2026-13-01T00:00:00Z' }],
    ['more levels than there are', { tcbLevels: Array(300).fill(0) }],
  ])('TCB info: %s', async (_, tcbInfo) => {
    expect(await refuse({ collateral: { tcbInfo } })).toEqual(of('collateral_invalid'));
  });
  test("the quoting enclave's identity of SGX", async () => {
    const collateral = { qeIdentity: { id: 'QE' } };
    expect(await refuse({ collateral })).toEqual(of('collateral_invalid'));
  });
  test.each([
    ['TCB info', { tcbInfo: { nextUpdate: '2026-05-31T00:00:00Z' } }],
    ['TCB info, of the future', { tcbInfo: { issueDate: '2026-06-02T00:00:00Z' } }],
    ['the identity', { qeIdentity: { nextUpdate: '2026-05-31T00:00:00Z' } }],
    ['the root’s list', { rootCrl: makeCrl(intel.root, { thisUpdate: FROM, nextUpdate: FROM }) }],
    ['the PCK’s list', { pckCrl: makeCrl(intel.authority, { thisUpdate: TO, nextUpdate: TO }) }],
    ['the signer', { signer: certify({ cn: 'Intel SGX TCB Signing', notAfter: FROM }, newKeys('P-256'), intel.root) }],
  ])('out of its window: %s', async (_, collateral) => {
    expect(await refuse({ collateral })).toEqual(of('collateral_expired'));
  });
  test('signed by somebody whom the root names for something else, or not at all', async () => {
    const keys = newKeys('P-256');
    const below = certify({ cn: 'Intel SGX TCB Signing' }, keys, intel.authority);
    const signers: CollateralSpec[] = [
      { signer: certify({ cn: 'Intel SGX PCK Certificate' }, keys, intel.root) },
      { signer: other.signer, chain: pem(other.signer, other.root) },
      { signer: other.signer, chain: pem(other.signer, intel.root) },
      { signer: below, chain: pem(below, intel.authority, intel.root) },
      { signer: intel.root, chain: pem(intel.root) },
      { chain: '' },
    ];
    for (const collateral of signers) expect(await refuse({ collateral })).toEqual(of('collateral_invalid'));
  });
  test("the simulated root's collateral does not serve a quote under another root", async () => {
    const options = { roots: ROOTS, simulatedRoots: pem(other.root) };
    const collateral = { signer: other.signer, chain: pem(other.signer, other.root) };
    expect(await refuse({ collateral, options })).toEqual(of('collateral_invalid'));
  });
  test("the caller's own wins where it holds", async () => {
    const own = makeCollateral(intel);
    const stale = makeCollateral(intel, {
      tcbInfo: { nextUpdate: '2026-05-31T00:00:00Z' },
    });
    const given = (tdx: TdxCollateral): CpuVerifyOptions => ({ collateral: { tdx } });
    expect(await refuse({ collateral: null, options: given(own) })).toEqual([]);
    expect(await refuse({ edit: () => stale, options: given(own) })).toEqual([]);
    expect(await refuse({ options: given(stale) })).toEqual([]);
    expect(await refuse({ edit: () => stale, options: given(stale) })).toEqual(of('collateral_expired'));
    expect(await refuse({ edit: () => stale })).toEqual(of('collateral_expired'));
    expect(await refuse({ options: given({ ...own, tcb_info: '{}' }) })).toEqual(of('collateral_invalid'));
  });
  test('an evaluation that is older than the caller asks', async () => {
    expect(await refuse({ options: { policy: { minTcbEvaluation: 19 } } })).toEqual(of('tcb_not_accepted'));
    expect(await refuse({ options: { policy: { minTcbEvaluation: 18 } } })).toEqual([]);
  });
});

describe('cpu_tcb: the level, by Intel’s rule', () => {
  const notAccepted = [['cpu_tcb', 'tcb_not_accepted']];
  const statuses = (parts: Parts) => Promise.all([stateOf(parts), refuse(parts)]);
  test('one component lower is the next level, and below all there is none', async () => {
    expect(await statuses({ pck: { cpuSvn: svns(2, 3, 2, 2, 4, 1, 0, 5) } })).toEqual(['OutOfDate', notAccepted]);
    expect(await statuses({ pck: { pceSvn: 12 } })).toEqual(['OutOfDate', notAccepted]);
    expect(await statuses({ pck: { cpuSvn: svns(1) } })).toEqual(['NotSupported', notAccepted]);
    expect(await statuses({ pck: { pceSvn: 4 } })).toEqual(['NotSupported', notAccepted]);
  });
  test('the first two TDX components count where the module has no identity of its own', async () => {
    const lower = {
      tcbInfo: { tcbLevels: [level(svns(), svns(9, 0, 3), 0, 'UpToDate')] },
    };
    expect(await stateOf({ collateral: lower })).toBe('UpToDate');
    expect(await stateOf({ collateral: lower, quote: { teeTcbSvn: [6, 0, 3] } })).toBe('NotSupported');
    expect(await stateOf({ collateral: lower, quote: { teeTcbSvn: [9, 0, 3] } })).toBe('UpToDate');
    expect(await stateOf({ collateral: lower, quote: { teeTcbSvn: [6, 1, 2] } })).toBe('NotSupported');
  });
  test('the module’s own level lowers the platform’s', async () => {
    expect(await statuses({ quote: { version: 4, teeTcbSvn: [4, 1, 3] } })).toEqual(['OutOfDate', notAccepted]);
    expect(await statuses({ quote: { teeTcbSvn: [2, 1, 3] } })).toEqual(['Revoked', notAccepted]);
    expect(await statuses({ quote: { teeTcbSvn: [1, 1, 3] } })).toEqual(['NotSupported', notAccepted]);
    expect(await statuses({ quote: { teeTcbSvn: [9, 2, 3] } })).toEqual(['NotSupported', notAccepted]);
    expect(await statuses({ quote: { teeTcbSvn: [3, 3, 3] } })).toEqual(['UpToDate', []]);
  });
  test('the quoting enclave’s level lowers it too', async () => {
    expect(await statuses({ quote: { qeSvn: 3 } })).toEqual(['OutOfDate', notAccepted]);
    expect(await statuses({ quote: { qeSvn: 1 } })).toEqual(['Revoked', notAccepted]);
    expect(await statuses({ quote: { qeSvn: 0 } })).toEqual(['NotSupported', notAccepted]);
  });
  test.each([
    ['SWHardeningNeeded', 'OutOfDate'],
    ['ConfigurationNeeded', 'OutOfDateConfigurationNeeded'],
    ['ConfigurationAndSWHardeningNeeded', 'OutOfDateConfigurationNeeded'],
    ['OutOfDate', 'OutOfDate'],
    ['OutOfDateConfigurationNeeded', 'OutOfDateConfigurationNeeded'],
    ['Revoked', 'Revoked'],
  ])('%s with an old enclave is %s', async (status, lowered) => {
    const collateral = {
      tcbInfo: { tcbLevels: [level(svns(), svns(), 0, status)] },
    };
    expect(await stateOf({ collateral })).toBe(status);
    expect(await stateOf({ collateral, quote: { qeSvn: 3 } })).toBe(lowered);
  });
  test('a relaunch is advised where only the guest’s launch is out of date', async () => {
    const quote = { teeTcbSvn: [4, 1, 3], teeTcbSvn2: [6, 1, 3] };
    expect(await statuses({ quote })).toEqual(['TDRelaunchAdvised', notAccepted]);
    expect(await stateOf({ quote: { ...quote, teeTcbSvn2: [5, 1, 3] } })).toBe('OutOfDate');
    expect(await stateOf({ quote: { ...quote, teeTcbSvn2: [6, 1, 2] } })).toBe('OutOfDate');
    expect(await stateOf({ quote: { ...quote, teeTcbSvn2: [3, 3, 3] } })).toBe('TDRelaunchAdvised');
    expect(await stateOf({ quote: { ...quote, teeTcbSvn2: [9, 7, 3] } })).toBe('NotSupported');
    expect(await stateOf({ quote: { ...quote, teeTcbSvn2: [5, 0, 3] } })).toBe('TDRelaunchAdvised');
    expect(await stateOf({ quote: { ...quote, body: 2 } })).toBe('OutOfDate');
    expect(await stateOf({ quote: { ...quote, qeSvn: 3 } })).toBe('OutOfDate');
    expect(await stateOf({ quote, pck: { pceSvn: 12 } })).toBe('OutOfDate');
  });
  test('and says so where configuration is needed besides', async () => {
    const tcbInfo = { tcbLevels: [level(svns(), svns(5, 0, 3), 0, 'ConfigurationNeeded')] };
    const quote = { teeTcbSvn: [4, 1, 3], teeTcbSvn2: [6, 1, 3] };
    expect(await stateOf({ collateral: { tcbInfo }, quote })).toBe('TDRelaunchAdvisedConfigurationNeeded');
  });
  test('what the caller accepts by name passes; Revoked and no level never do', async () => {
    const tcb = ['UpToDate', 'OutOfDate', 'TDRelaunchAdvised', 'Revoked', 'NotSupported'] as const;
    const options = { policy: { tcb } };
    expect(await refuse({ pck: { pceSvn: 12 }, options })).toEqual([]);
    expect(await refuse({ quote: { teeTcbSvn: [4, 1, 3], teeTcbSvn2: [6, 1, 3] }, options })).toEqual([]);
    expect(await refuse({ quote: { qeSvn: 1 }, options })).toEqual(notAccepted);
    expect(await refuse({ pck: { pceSvn: 4 }, options })).toEqual(notAccepted);
    expect(await refuse({ options: { policy: { tcb: [] } } })).toEqual(notAccepted);
  });
  test('a TCB info of before modules had identities', async () => {
    const tcbInfo = { tdxModuleIdentities: undefined };
    expect(await stateOf({ collateral: { tcbInfo }, quote: { teeTcbSvn: [5, 0, 3] } })).toBe('UpToDate');
    expect(await stateOf({ collateral: { tcbInfo } })).toBe('NotSupported');
  });
  test('identities are found by their name, whatever its case', async () => {
    const tcbInfo = { tdxModuleIdentities: [module('tdx_1f', svnLevel(1, 'UpToDate'))] };
    expect(await stateOf({ collateral: { tcbInfo }, quote: { teeTcbSvn: [1, 0x1f, 3] } })).toBe('UpToDate');
  });
});
