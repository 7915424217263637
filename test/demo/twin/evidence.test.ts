// The twin's report and chain: byte for byte in the shape of a genuine H100's, and verifiable by tools that are not ours.
import { execFileSync, spawnSync } from 'node:child_process';
import { verify, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { FWID, measurementAt } from '../../../demo/twin/identity.ts';
import { chainPem, DEVICE_ROOT, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { makeReport } from '../../twin/report.ts';

const folder = mkdtempSync(join(tmpdir(), 'simulated-evidence-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const opensslPresent = spawnSync('openssl', ['version']).status === 0;
if (!opensslPresent) console.warn('SKIPPED: the chain under openssl: the openssl command is not there');

const nonce = Buffer.alloc(32, 0xab);
const device = makeDevice(makeIssuers(makeRoot(DEVICE_ROOT)));
const leaf = new X509Certificate(device.chain[0].der);
const GENUINE = 'nvidia/h100-550.90.07';

interface Shape {
  readonly header: string;
  readonly blocks: readonly string[];
  readonly values: readonly Buffer[];
  readonly opaque: readonly (readonly [type: number, length: number])[];
  readonly fields: ReadonlyMap<number, Buffer>;
  readonly signed: Buffer;
  readonly signature: Buffer;
}

function shapeOf(report: Buffer): Shape {
  const header = Buffer.concat([report.subarray(0, 4), report.subarray(36, 45)]).toString('hex');
  const blocks: string[] = [];
  const values: Buffer[] = [];
  let at = 45;
  for (const end = at + report.readUIntLE(42, 3); at < end; at += 4 + report.readUInt16LE(at + 2)) {
    blocks.push(report.subarray(at, at + 7).toString('hex'));
    values.push(report.subarray(at + 7, at + 7 + report.readUInt16LE(at + 5)));
  }
  const opaque: [number, number][] = [];
  const fields = new Map<number, Buffer>();
  at += 34;
  for (const end = at + report.readUInt16LE(at - 2); at < end; at += 4 + report.readUInt16LE(at + 2)) {
    const [type, length] = [report.readUInt16LE(at), report.readUInt16LE(at + 2)];
    opaque.push([type, length]);
    fields.set(type, report.subarray(at + 4, at + 4 + length));
  }
  return { header, blocks, values, opaque, fields, signed: report.subarray(0, at), signature: report.subarray(at) };
}

function signatureHolds({ signed, signature }: Shape): boolean {
  return verify('sha384', signed, { key: leaf.publicKey, dsaEncoding: 'ieee-p1363' }, signature);
}

/** Tags and object identifiers of a DER value, other contents left out; extension values are opened. */
function skeleton(der: Buffer, inSequenceWithOid = false): string {
  let text = '';
  for (let at = 0, first = true; at < der.length; first = false) {
    const tag = der.readUInt8(at);
    const long = der.readUInt8(at + 1) & 0x80 ? der.readUInt8(at + 1) & 0x7f : 0;
    const start = at + 2 + long;
    const end = start + (long === 0 ? der.readUInt8(at + 1) : der.readUIntBE(at + 2, long));
    if (end > der.length) throw new RangeError('not DER');
    const content = der.subarray(start, end);
    text += tag.toString(16);
    if (tag === 0x06) text += `(${content.toString('hex')})`;
    if (tag === 0x06 && first) inSequenceWithOid = true;
    if (tag & 0x20) text += `{${skeleton(content)}}`;
    else if (tag === 0x04 && inSequenceWithOid) text += openable(content);
    at = end;
  }
  return text;
}

function openable(content: Buffer): string {
  try {
    return `[${skeleton(content)}]`;
  } catch {
    return '';
  }
}

describe('the simulated report', () => {
  test('carries the nonce it was asked for and its own, new each time', async () => {
    const [first, second] = await Promise.all([makeReport(nonce, device.key), makeReport(nonce, device.key)]);
    expect(first.subarray(4, 36)).toEqual(nonce);
    expect(first.subarray(3565, 3597)).not.toEqual(second.subarray(3565, 3597));
  });

  test.skipIf(!vectorsPresent)('has the header, blocks, field order and sizes of a genuine one', async () => {
    const genuine = shapeOf(vector(`${GENUINE}/report.bin`));
    const twin = shapeOf(await makeReport(nonce, device.key));
    expect(twin.header).toBe(genuine.header);
    expect(twin.blocks).toEqual(genuine.blocks);
    expect(twin.opaque).toEqual(genuine.opaque);
    expect(twin.signature.length).toBe(genuine.signature.length);
    expect(twin.values.map(isZero).filter(Boolean)).toHaveLength(genuine.values.map(isZero).filter(Boolean).length);
  });

  test('is signed by the leaf over everything before the signature', async () => {
    const report = await makeReport(nonce, device.key);
    expect(signatureHolds(shapeOf(report))).toBe(true);
    for (const at of [4, 100, 3570, 3700, 4020]) {
      const changed = Buffer.from(report);
      changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
      expect(signatureHolds(shapeOf(changed))).toBe(false);
    }
  });

  test("says in plain sight that it is simulated, and names its leaf's firmware", async () => {
    const { fields } = shapeOf(await makeReport(nonce, device.key));
    expect(fields.get(3)?.toString()).toBe('000.00.00\0');
    expect(fields.get(6)?.toString('hex')).toBe('004d495301000000'); // 53.49.4D.00.01, two little-endian words
    expect(fields.get(17)?.toString()).toBe('SIM0\0');
    expect(fields.get(20)).toEqual(FWID);
    expect(device.chain[0].der.includes(FWID)).toBe(true);
  });

  test('can be made wrong in one way at a time', async () => {
    const broken = shapeOf(await makeReport(nonce, device.key, { breakSignature: true }));
    expect(signatureHolds(broken)).toBe(false);
    const measured = shapeOf(
      await makeReport(nonce, device.key, { measurements: new Map([[9, Buffer.alloc(48, 1)]]) }),
    );
    expect(signatureHolds(measured)).toBe(true);
    expect(measured.values[9]).toEqual(Buffer.alloc(48, 1));
    expect(measured.values[11]).toEqual(measurementAt(11));
    const old = shapeOf(await makeReport(nonce, device.key, { fwid: null, driverVersion: '000.00' }));
    expect(signatureHolds(old)).toBe(true);
    expect(old.fields.has(20)).toBe(false);
    expect(old.fields.get(3)?.toString()).toBe('000.00\0');
    const otherLeaf = makeDevice(makeIssuers(makeRoot(DEVICE_ROOT)), { fwid: Buffer.alloc(48, 7) });
    expect(otherLeaf.chain[0].der.includes(FWID)).toBe(false);
  });
});

describe('the simulated chain', () => {
  test.skipIf(!vectorsPresent)('has the structure of a genuine one, certificate for certificate', () => {
    const genuine =
      vector(`${GENUINE}/chain.pem`)
        .toString()
        .match(/-----BEGIN[\s\S]*?END CERTIFICATE-----/g) ?? [];
    expect(genuine).toHaveLength(device.chain.length);
    genuine.forEach((pem, i) => {
      expect(skeleton(device.chain[i]?.der ?? Buffer.alloc(0))).toBe(skeleton(new X509Certificate(pem).raw));
    });
  });

  test('every certificate names itself simulated and is signed by the next', () => {
    const chain = device.chain.map(({ der }) => new X509Certificate(der));
    chain.forEach((certificate, i) => {
      const issuer = chain[i + 1] ?? certificate;
      expect(certificate.subject).toContain('SIMULATED');
      expect(certificate.subject).not.toContain('NVIDIA');
      expect(certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)).toBe(true);
      expect(certificate.ca).toBe(i > 0);
      expect(certificate.validTo).toBe('Dec 31 23:59:59 9999 GMT');
    });
    expect(device.ueid).toBe(BigInt(`0x${leaf.serialNumber}`).toString());
  });

  test.skipIf(!opensslPresent)('openssl verifies it up to its root and no other', () => {
    const pems = device.chain.map(({ pem }) => pem);
    const at = (name: string, text: string) => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    expect(pems.join('')).toBe(chainPem(device));
    const untrusted = ['-untrusted', at('issuers.pem', pems.slice(1, 4).join('')), at('leaf.pem', pems[0] ?? '')];
    const openssl = (root: string) =>
      execFileSync('openssl', ['verify', '-x509_strict', '-CAfile', root, ...untrusted], { stdio: 'pipe' }).toString();
    expect(openssl(at('root.pem', pems[4] ?? ''))).toContain('leaf.pem: OK');
    expect(() => openssl(at('other.pem', makeRoot(DEVICE_ROOT).certificate.pem))).toThrow();
  });
});

const isZero = (value: Buffer): boolean => value.every((byte) => byte === 0);
