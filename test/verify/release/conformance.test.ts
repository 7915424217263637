// Genuine bundles of Sigstore's public conformance set: what its name says must be refused is refused, and the others verify.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PUBLIC_ROOT } from '../../../verify/release/public-root.ts';
import { verifySigned } from '../../../verify/release/signed.ts';
import { readBundle, readMaterial } from '../../../verify/release/sigstore-bundle.ts';
import { readTrustedRoot } from '../../../verify/release/trusted-root.ts';
import { genuineVectors, vectorPath, vectorsPresent } from '../../support/vectors.ts';

const names = [...new Set(genuineVectors().map(({ path }) => path.split('/')))]
  .filter(([room]) => room === 'sigstore')
  .map(([, name = '']) => name);
/** What those without an envelope are signatures of. */
const ARTIFACT = `DO NOT MODIFY ME!

this is "a.txt", a sample input for sigstore-conformance's test suite.

DO NOT MODIFY ME!
`;

async function verify(name: string): Promise<unknown> {
  const folder = vectorPath(join('sigstore', name));
  const own = readdirSync(folder).includes('trusted_root.json');
  const root = readTrustedRoot(own ? readFileSync(join(folder, 'trusted_root.json'), 'utf8') : PUBLIC_ROOT);
  const text = readFileSync(join(folder, 'bundle.sigstore.json'), 'utf8');
  const { verificationMaterial, messageSignature, dsseEnvelope } = JSON.parse(text);
  if (dsseEnvelope !== undefined) return verifySigned(readBundle(text), root, null);
  const signature = new Uint8Array(Buffer.from(messageSignature.signature, 'base64'));
  const signed = new TextEncoder().encode(ARTIFACT);
  return verifySigned({ ...readMaterial(verificationMaterial), signature, signed }, root, null);
}

describe.skipIf(!vectorsPresent)("Sigstore's conformance set", () => {
  test.each([...new Set(names)])('%s', async (name) => {
    const result = await verify(name).then(
      () => 'verifies',
      (error: Error) => error.name,
    );
    if (name.endsWith('_fail')) expect(result).toMatch(/^(CheckFailure|FormError)$/);
    else expect(result).toBe('verifies');
  });

  test('has both, and logs of both versions', () => {
    expect(names.filter((name) => name.endsWith('_fail')).length).toBeGreaterThan(10);
    expect(names.filter((name) => !name.endsWith('_fail')).length).toBeGreaterThan(5);
  });
});
