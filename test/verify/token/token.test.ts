// Tokens as NVIDIA's verifiers returned them, one of each shape, and the verdict that each must get.
import { describe, expect, it } from 'vitest';
import { makeToken } from '../../../demo/twin/token.ts';
import { checkTokenDigests } from '../../../verify/token/digests.ts';
import { verifyTokenSignature } from '../../../verify/token/signature.ts';
import { parseToken } from '../../../verify/token/token.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';

const H100 = {
  name: 'GPU-0',
  nonce: '931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb',
  driver: '550.90.07',
  vbios: '96.00.9F.00.01',
  ueid: '478176379286082186618948445787393647364802107249',
  hwmodel: 'GH100 A01 GSP BROM',
  measres: 'success',
  secureBoot: true,
  debug: 'disabled',
};
const read = (name: string): string => vector(`nvidia/tokens/${name}.json`).toString();
const at = new Date('2026-11-21T12:00:00Z');

describe.skipIf(!vectorsPresent)('a genuine token', () => {
  it.each(['2.0', '3.0'])('of the Python verifier, claims %s, is read, rechecked and self-asserted', async (claims) => {
    const token = parseToken(read(`nvtrust-local-claims-${claims}`));
    expect(token).toMatchObject({ kind: 'nvtrust', issuer: 'LOCAL_GPU_VERIFIER', overallResult: true });
    expect(token.nonces).toEqual([H100.nonce, H100.nonce]);
    expect(token.devices).toEqual([expect.objectContaining({ ...H100, verifier: 'LOCAL_GPU_CLAIMS' })]);
    expect(token.envelope?.claims.iss).toBe('NV-Attestation-SDK');
    await expect(checkTokenDigests(token)).resolves.toMatchObject({ rechecked: 1 });
    await expect(verifyTokenSignature(token, { at })).resolves.toMatchObject({ signature: 'self-asserted' });
  });

  it('of nvattest is self-asserted, printed or by its detached EAT alone', async () => {
    const printed = read('nvattest-local-alg-none');
    for (const text of [printed, JSON.stringify((JSON.parse(printed) as { detached_eat: unknown }).detached_eat)]) {
      const token = parseToken(text);
      expect(token).toMatchObject({ kind: 'nvattest', issuer: 'NVAT-LOCAL-VERIFIER', overallResult: true });
      expect(token.nonces).toEqual(['11'.repeat(32), '11'.repeat(32)]);
      expect(token.devices[0]).toMatchObject({ driver: '580.159.03', vbios: '96.00.D9.00.01', verifier: null });
      await expect(checkTokenDigests(token)).resolves.toMatchObject({ rechecked: 1 });
      await expect(verifyTokenSignature(token, { at })).resolves.toMatchObject({ signature: 'self-asserted' });
    }
  });

  it('of NRAS is read and rechecked, and wants the key that signed it', async () => {
    const token = parseToken(read('nras-es384-detached-eat'));
    expect(token).toMatchObject({ kind: 'nras', issuer: 'https://nras.attestation.nvidia.com', overallResult: true });
    expect(token.devices).toEqual([expect.objectContaining(H100)]);
    await expect(checkTokenDigests(token)).resolves.toMatchObject({ rechecked: 1 });
    for (const keys of [undefined, { keys: [] }, { keys: [{ kty: 'EC', crv: 'P-384', kid: 'another', x: '', y: '' }] }])
      await expect(verifyTokenSignature(token, { at, keys })).rejects.toMatchObject({ code: 'token_key_unavailable' });
  });

  it('of NRAS, as a bare JWT, is read and says what it leaves out', async () => {
    const [[, jwt]] = JSON.parse(read('nras-es384-detached-eat')) as [[string, string]];
    for (const text of [jwt, `${jwt}\n`, JSON.stringify(jwt)]) {
      const token = parseToken(text);
      expect(token).toMatchObject({ kind: 'jwt', overallResult: true, devices: [], nonces: [H100.nonce] });
      const { rechecked, detail } = await checkTokenDigests(token);
      expect([rechecked, detail]).toEqual([0, 'a bare JWT, without the 1 submodules it names']);
    }
  });
});

describe('the simulated twin’s token', () => {
  it('has the shape of the Python verifier’s and says that it is simulated', async () => {
    const nonce = 'cd'.repeat(32);
    const subjects = [1, 2, 3].map((i) => ({ hwmodel: 'SIMULATED “H100”', ueid: `${i}` }));
    const token = parseToken(makeToken(nonce, subjects, at));
    expect(token).toMatchObject({ kind: 'nvtrust', issuer: 'SIMULATED-LOCAL_GPU_VERIFIER', overallResult: true });
    expect(token.nonces).toEqual([nonce, nonce, nonce, nonce]);
    expect(token.devices.map(({ name, ueid }) => [name, ueid])).toEqual([
      ['GPU-0', '1'],
      ['GPU-1', '2'],
      ['GPU-2', '3'],
    ]);
    await expect(checkTokenDigests(token)).resolves.toMatchObject({ rechecked: 3 });
    await expect(verifyTokenSignature(token, { at })).resolves.toMatchObject({ signature: 'self-asserted' });
  });
});
