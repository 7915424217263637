// The twin's B200 and NVSwitch against genuine reports: the same blocks, the same fields of the same sizes, the same kinds of names.
import { describe, expect, test } from 'vitest';
import { DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import { fwidOf } from '../../../verify/gpu/nvidia.ts';
import { type Certificate, parsePem } from '../../../verify/x509/certificate.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { B200, type Model, NVSWITCH } from '../../twin/models.ts';
import { makeReport } from '../../twin/report.ts';

const REQUEST_BYTES = 37;

/** Blocks, and each field's type and size in order. */
function formOf(report: Buffer) {
  const response = report.subarray(REQUEST_BYTES);
  const record_bytes = response.readUIntLE(5, 3);
  const opaque_at = 8 + record_bytes + 32;
  const opaque = response.subarray(opaque_at + 2, opaque_at + 2 + response.readUInt16LE(opaque_at));
  const sizes = new Map<number, number>();
  for (let at = 0; at < opaque.length; at += 4 + opaque.readUInt16LE(at + 2))
    sizes.set(opaque.readUInt16LE(at), opaque.readUInt16LE(at + 2));
  return { blocks: response[4], record_bytes, sizes };
}

const named = (chain: readonly Certificate[]) =>
  chain.slice(0, -1).map(({ subjectCommonName }) => subjectCommonName.replace(/^(SIMULATED|NVIDIA) /, ''));
const certificatesOf = (device: Device) => device.chain.flatMap(({ pem }) => parsePem(pem));

describe.skipIf(!vectorsPresent)('the twin has the form of the genuine', () => {
  test.each<[string, Model, string, readonly number[]]>([
    // The driver's version differs in length; the genuine report is of a driver before fields 21, 35 and 36.
    ['Blackwell 575.32', B200, 'blackwell-575.32', [3, 21, 35, 36]],
    ['LS10', NVSWITCH, 'switch-ls10', []],
  ])('%s', async (_what, model, folder, differs) => {
    const device = makeDevice(makeIssuers(makeRoot(DEVICE_ROOT), model.chip));
    const twin = formOf(await makeReport(Buffer.alloc(32), device.key, model.report()));
    const genuine = formOf(Buffer.from(vector(`nvidia/${folder}/report.hex`).toString('latin1').trim(), 'hex'));
    for (const type of differs) for (const form of [twin, genuine]) form.sizes.delete(type);
    expect(twin).toEqual(genuine);

    const chain = certificatesOf(device);
    const theirs = parsePem(vector(`nvidia/${folder}/chain.pem`).toString());
    expect(named(chain)).toEqual(named(theirs));
    const oids = ([leaf]: readonly Certificate[]) =>
      [...(leaf?.extensions.keys() ?? [])].filter((oid) => oid.startsWith('2.23.133'));
    expect(oids(chain)).toEqual(oids(theirs));
    expect(fwidOf(chain[0] as Certificate)).toMatch(/^[0-9a-f]{96}$/);
  });
});
