// Options that there are not: a misspelt one would be ignored, and with it what the caller demands.
import { expect, test } from 'vitest';
import { verifyingFetch } from '../../../verify/clients/fetch.ts';
import { sealedFetch } from '../../../verify/clients/sealed.ts';
import { appraiseCpu, appraiseSession } from '../../../verify/cpu.ts';
import { appraiseAttestation, appraiseEvidence, createCollateral, verifyAttestation } from '../../../verify/index.ts';

test.each([
  [{ polcy: { minLevel: 'gpu' } }, 'polcy', 'policy'],
  [{ simulatedroot: '' }, 'simulatedroot', 'simulatedRoot'],
  [{ expected: { reqest: '{}' } }, 'expected.reqest', 'expected.request'],
  [{ policy: { minLevl: 'gpu' } }, 'policy.minLevl', 'policy.minLevel'],
  [{ policy: { max_age_seconds: 1 } }, 'policy.max_age_seconds', 'policy.maxAgeSeconds'],
  [{ clocks: { tokens: new Date() } }, 'clocks.tokens', 'clocks.token'],
  [{ roots: { devices: '' } }, 'roots.devices', 'roots.device'],
  [{ without: { revokation: true } }, 'without.revokation', 'without.revocation'],
  [{ limits: { maxValue: 1 } }, 'limits.maxValue', 'limits.maxValues'],
  [{ cpu: { refrence: '' } }, 'cpu.refrence', 'cpu.reference'],
  [{ cpu: { policy: { product: [] } } }, 'cpu.policy.product', 'cpu.policy.products'],
  [{ cpu: { policy: { chip: [] } } }, 'cpu.policy.chip', 'cpu.policy.chips'],
  [{ cpu: { policy: { requireSMT: true } } }, 'cpu.policy.requireSMT', 'cpu.policy.requireSmtOff'],
  [{ cpu: { policy: { minTcb: { genoa: { snp: 99 } } } } }, 'cpu.policy.minTcb.genoa', 'cpu.policy.minTcb.Genoa'],
  [{ policy: { device: [] } }, 'policy.device', 'policy.devices'],
])('%j is refused', async (options, name, near) => {
  const refusal = new TypeError(`there is no option ${name}: the nearest is ${near}`);
  for (const verify of [verifyAttestation, appraiseAttestation, appraiseEvidence, appraiseSession])
    await expect(verify('{}', options as object)).rejects.toThrow(refusal);
  if ('expected' in options) return;
  expect(() => verifyingFetch(options as object)).toThrow(refusal);
  if ('clocks' in options) return;
  expect(() => sealedFetch({ url: 'https://gateway.example', ...(options as object) })).toThrow(refusal);
});

test('the options of clients, of a processor and of collateral are closed lists too', async () => {
  expect(() => verifyingFetch({ onVerifed: () => {} } as object)).toThrow(/onVerifed: the nearest is onVerified/);
  expect(() => verifyingFetch({ unprovenPath: [] } as object)).toThrow(/unprovenPath: the nearest is unprovenPaths/);
  expect(() => verifyingFetch({ expected: {} } as object)).toThrow(/there is no option expected/);
  const url = 'https://gateway.example';
  expect(() => sealedFetch({ url, edgeheader: {} } as never)).toThrow(/edgeheader: the nearest is edgeHeaders/);
  expect(() => sealedFetch({ url, at: new Date() } as never)).toThrow(/there is no option at/);
  expect(() => createCollateral({ fetched: fetch } as object)).toThrow(/fetched: the nearest is fetch/);
  await expect(appraiseCpu('{}', { expected: { reportdata: '' } } as object)).rejects.toThrow(
    /expected.reportdata: the nearest is expected.reportData/,
  );
});

test('every option that there is may be given, also as undefined', async () => {
  const policy = { maxAgeSeconds: 1, minLevel: undefined };
  const options = { at: new Date(), policy, expected: { request: '{}' }, cpu: { policy: {} }, session: undefined };
  expect((await appraiseAttestation('{}', options)).checks[0]).toMatchObject({ code: 'not_an_attestation' });
  expect(verifyingFetch({ policy, onVerified: () => {}, strict: true, stopAtFailure: false })).toBeTypeOf('function');
  expect(sealedFetch({ url: 'https://gateway.example', policy, challenge: true })).toBeTypeOf('function');
});
