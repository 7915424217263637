// RIMs of NVIDIA's, genuine and broken: the verdict that each must get.
import { describe, expect, it } from 'vitest';
import { matchMeasurements } from '../../../verify/gpu/reference-values.ts';
import { type Rim, verifyRim } from '../../../verify/gpu/rim/rim.ts';
import { parseReport } from '../../../verify/gpu/spdm/report.ts';
import { type Certificate, parsePem } from '../../../verify/x509/certificate.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { document, newSigner, signed } from './rim-maker.ts';

const roots = (name = 'rim-root'): Certificate[] => parsePem(vector(`nvidia/roots/${name}.pem`).toString());
const at = new Date('2025-09-01T00:00:00Z');
/** The signers of the 545.00 RIMs have expired earlier. */
const early = new Date('2024-06-15T00:00:00Z');
const H100_550 = 'nvidia/h100-550.90.07';
const H100_545 = 'nvidia/h100-545.00';
const DRIVER = `${H100_550}/NV_GPU_DRIVER_GH100_550.90.07.xml`;
const VBIOS = `${H100_550}/NV_GPU_VBIOS_1010_0200_882_96009F0001.xml`;

const verify = (path: string, time = at): Promise<Rim> => verifyRim(vector(path), { roots: roots(), at: time });
const hexReport = (path: string) => parseReport(Buffer.from(vector(path).toString().trim(), 'hex'));
const activeOf = (rim: Rim) => [...rim.measurements.values()].filter(({ active }) => active).length;

describe.skipIf(!vectorsPresent)('a genuine RIM', () => {
  it('verifies at an instant at which its signer was valid', async () => {
    const driver = await verify(DRIVER);
    const vbios = await verify(VBIOS);
    expect([driver.kind, driver.version, driver.product, activeOf(driver)]).toEqual([
      'driver',
      '550.90.07',
      'GH100',
      21,
    ]);
    expect([vbios.kind, vbios.version, vbios.product, activeOf(vbios)]).toEqual([
      'vbios',
      '96.00.9F.00.01',
      'GH100',
      12,
    ]);
    expect(driver.manufacturerId).toBe('5703');
    expect(driver.signer.map(({ subjectCommonName }) => subjectCommonName)).toEqual([
      'HCC RIM L4 Signer',
      'NVIDIA Reference Value L3 GH100 002',
      'NVIDIA Reference Value GH100 CA',
      'NVIDIA CoRIM signing Root CA',
    ]);
    expect(driver.measurements.get(32)?.values).toHaveLength(2);
    expect(driver.measurements.get(0)?.active).toBe(false);
  });

  it('is verified again at each clock, though its signature is not', async () => {
    await verify(DRIVER);
    await expect(verify(DRIVER, new Date('2026-06-01T02:08:30Z'))).rejects.toMatchObject({
      code: 'rim_signer_expired',
    });
    await expect(verify(DRIVER, new Date('2024-06-01T00:00:00Z'))).rejects.toMatchObject({
      code: 'rim_signer_expired',
    });
    await expect(verify(DRIVER)).resolves.toBeDefined();
  });

  it('is refused under roots that are not its own, whatever was verified before', async () => {
    const xml = vector(DRIVER);
    await verifyRim(xml, { roots: roots(), at });
    for (const others of [roots('device-identity-root'), newSigner().roots, []])
      await expect(verifyRim(xml, { roots: others, at })).rejects.toMatchObject({ code: 'rim_chain_invalid' });
  });

  it('is the same document as text and as bytes', async () => {
    const text = await verifyRim(vector(VBIOS).toString(), { roots: roots(), at });
    expect(text.measurements).toEqual((await verify(VBIOS)).measurements);
  });
});

describe.skipIf(!vectorsPresent)('a genuine report', () => {
  const facts = { driverVersion: '550.90.07', vbiosVersion: '96.00.9f.00.01' };
  const older = { driverVersion: '545.00', vbiosVersion: '96.00.5E.00.01' };

  it('matches its two RIMs in 33 measurements', async () => {
    const { blocks } = parseReport(vector(`${H100_550}/report.bin`));
    const rims = { driver: await verify(DRIVER), vbios: await verify(VBIOS) };
    expect(matchMeasurements(rims, blocks, facts)).toEqual({ matched: 33, driver: 21, vbios: 12, skipped: [] });
  });

  it('of driver 545.00 matches the RIMs made for it', async () => {
    const { blocks } = hexReport(`${H100_545}/report.hex`);
    const driver = await verify(`${H100_545}/Driver_RIM_test_no_gpu.swidtag`, early);
    const vbios = await verify(`${H100_545}/1010_0200_882_96005E0001_test_no_gpu.swidtag`, early);
    expect(matchMeasurements({ driver, vbios }, blocks, older).matched).toBe(33);
  });

  it('does not match a RIM of the same id and version with other values', async () => {
    const { blocks } = hexReport(`${H100_545}/report.hex`);
    const driver = await verify(`${H100_545}/Driver_RIM_test_no_gpu.swidtag`, early);
    const made = await verify(`${H100_545}/1010_0200_882_96005E0001_test_no_gpu.swidtag`, early);
    const vbios = await verify(`${H100_545}/1010_0200_882_96005E0001_PROD.swidtag`, early);
    expect([vbios.id, vbios.version]).toEqual([made.id, made.version]);
    expect(() => matchMeasurements({ driver, vbios }, blocks, older)).toThrow(
      expect.objectContaining({
        code: 'measurement_mismatch',
        message: 'the device does not match VBIOS RIM indices 1, 2, 3, 9',
      }),
    );
  });

  it('does not match RIMs for other versions', async () => {
    const { blocks } = parseReport(vector(`${H100_550}/report.bin`));
    const driver = await verify(DRIVER);
    const vbios = await verify(`${H100_545}/1010_0200_882_96005E0001_test_no_gpu.swidtag`, early);
    expect(() => matchMeasurements({ driver, vbios }, blocks, facts)).toThrow(
      expect.objectContaining({ code: 'rim_mismatch' }),
    );
  });
});

describe.skipIf(!vectorsPresent)('a broken RIM', () => {
  const FAULTS = [
    ['failure_duplicate_index', 'index 0 stands twice'],
    ['failure_empty_payload', 'the Payload has no measurement'],
    ['failure_invalid_alternatives', 'measurement 0: alternatives is not a whole number'],
    ['failure_invalid_size', 'measurement 0: size is not a whole number'],
    ['failure_missing_hash', 'measurement 0: Hash0 is missing'],
    ['failure_missing_x509_data', 'the document is not a SoftwareIdentity'],
    ['failure_no_payload', 'the document has no Payload'],
  ] as const;

  it.each(FAULTS)('%s is refused: %s', async (name, message) => {
    await expect(verify(`nvidia/rim-broken/${name}.xml`)).rejects.toMatchObject({ code: 'rim_malformed', message });
  });

  it('whose signature is another is refused for that, before its signer is looked at', async () => {
    for (const time of [at, new Date('2040-01-01T00:00:00Z')])
      await expect(verify('nvidia/rim-broken/incorrect_signature_driver_rim.xml', time)).rejects.toMatchObject({
        code: 'rim_signature_invalid',
      });
  });

  it('with one measured value changed, or made inactive, is refused', async () => {
    const xml = vector(VBIOS).toString();
    const changes = [
      xml.replace('8048dfd18fe229bf', '8048dfd18fe229be'),
      xml.replace('index="1" active="True"', 'index="1" active="False"'),
      xml.replace('colloquialVersion="96.00.9F.00.01"', 'colloquialVersion="96.00.9F.00.02"'),
      xml.replace('product="GH100"', 'product="GH101"'),
    ];
    for (const changed of changes) {
      expect(changed).not.toBe(xml);
      await expect(verifyRim(changed, { roots: roots(), at })).rejects.toMatchObject({ code: 'rim_signature_invalid' });
    }
  });
});

describe('a RIM of a test root', () => {
  it('is refused under NVIDIA’s root and accepted under its own', async () => {
    const signer = newSigner();
    const xml = signed(document(), signer);
    await expect(verifyRim(xml, { roots: signer.roots, at })).resolves.toMatchObject({ id: 'test-1.2.3' });
    if (vectorsPresent)
      await expect(verifyRim(xml, { roots: roots(), at })).rejects.toMatchObject({ code: 'rim_chain_invalid' });
  });
});
