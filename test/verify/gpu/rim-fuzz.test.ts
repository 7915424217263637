// A signed RIM cut short and with bits turned, all along it: refused with a code, or read as what was signed.
import { expect, it } from 'vitest';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { verifyRim } from '../../../verify/gpu/rim/rim.ts';
import { document, newSigner, resource, signed } from './rim-maker.ts';

const at = new Date('2025-09-01T00:00:00Z');
const signer = newSigner();
const xml = new TextEncoder().encode(signed(document({ payload: resource(0) + resource(1) }), signer));
const signatureAt = new TextDecoder().decode(xml).indexOf('<ds:Signature');
const outcome = (bytes: Uint8Array) =>
  verifyRim(bytes, { roots: signer.roots, at }).then(
    ({ signer: _, ...manifest }) => manifest,
    (error: unknown) => error,
  );

it('a RIM cut short anywhere is refused', async () => {
  for (let end = 0; end < xml.length; end += end < signatureAt ? 1 : 3)
    expect(await outcome(xml.subarray(0, end))).toBeInstanceOf(CheckFailure);
});

it('a RIM with a bit turned is refused, or says what it said before', async () => {
  const { signer: _, ...original } = await verifyRim(xml, { roots: signer.roots, at });
  let unchanged = 0;
  for (let i = 0; i < xml.length; i += 4) {
    const turned = Uint8Array.from(xml);
    turned[i] = (turned[i] ?? 0) ^ (1 << (i % 7));
    const result = await outcome(turned);
    if (result instanceof CheckFailure) continue;
    // What is not signed: the bits that base64 pads with, and the root that came along and does not count.
    expect(i).toBeGreaterThan(signatureAt);
    expect(result).toEqual(original);
    unchanged++;
  }
  expect(unchanged).toBeLessThan(xml.length / 20);
});
