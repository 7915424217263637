// A system that lacks what every verification needs is named, and nothing is said of what was given.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { AT, attest, simulatedRoot } from './maker.ts';

beforeEach(() => vi.resetModules());
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

it('names P-384 where WebCrypto has no such curve, and tries again the next time', async () => {
  const attestation = await attest();
  const { appraiseAttestation, appraiseEvidence, UnsupportedSystemError } = await import('../../verify/index.ts');
  const { appraiseCpu, appraiseSession } = await import('../../verify/cpu.ts');
  const importKey = vi
    .spyOn(crypto.subtle, 'importKey')
    .mockRejectedValue(new DOMException('Unrecognized namedCurve', 'NotSupportedError'));
  for (const appraise of [appraiseAttestation, appraiseEvidence, appraiseCpu, appraiseSession]) {
    const error = await appraise(attestation).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(UnsupportedSystemError);
    expect(error).toMatchObject({ code: 'webcrypto_unsupported', message: expect.stringContaining('P-384') });
  }
  importKey.mockRestore();
  expect(await appraiseAttestation(attestation, { simulatedRoot, at: AT })).toMatchObject({ valid: true });
});

it('names WebCrypto where there is none', async () => {
  const attestation = await attest();
  const { appraiseAttestation } = await import('../../verify/index.ts');
  vi.stubGlobal('crypto', {});
  await expect(appraiseAttestation(attestation)).rejects.toThrow(/no WebCrypto/);
});
