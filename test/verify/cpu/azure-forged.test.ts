// Azure's evidence over a processor of our own: right except for one thing, it fails by that thing's check alone.
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { pem } from '../../../demo/twin/authority.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport, snpMember } from '../../../demo/twin/snp.ts';
import type { CpuVerifyOptions } from '../../../verify/cpu/cpu-options.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { failures } from './verdict.ts';

const AT = new Date('2026-06-01T00:00:00Z');
const amd = makeAmd('Genoa');
const leaf = makeLeaf(amd);
const ak = generateKeyPairSync('rsa', { modulusLength: 2048 });
const sha256 = (...parts: readonly Uint8Array[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const jwk = { kid: 'HCLAkPub', key_ops: ['sign'], ...ak.publicKey.export({ format: 'jwk' }) };
const PCRS = Array.from({ length: 24 }, (_, i) => Buffer.alloc(32, i));
const NONCE = Buffer.alloc(32, 0xd0);

interface Parts {
  readonly keys?: readonly object[];
  readonly text?: string;
  /** What the processor signs in place of the hash of the text. */
  readonly reportData?: Buffer;
  readonly hclType?: number;
  readonly hclHash?: number;
  readonly extraData?: Buffer;
  readonly selection?: string;
  readonly magic?: string;
  readonly after?: Buffer;
  readonly pcrs?: readonly Buffer[];
  readonly sign?: (message: Buffer) => Buffer;
  readonly tamperHcl?: (hcl: Buffer) => Buffer | undefined;
  readonly options?: CpuVerifyOptions;
}

async function refuse(parts: Parts) {
  const text = Buffer.from(parts.text ?? JSON.stringify({ keys: parts.keys ?? [jwk], 'user-data': '' }));
  const reportData = parts.reportData ?? Buffer.concat([sha256(text), Buffer.alloc(32)]);
  const report = makeSnpReport('Genoa', leaf, { reportData });
  const header = Buffer.concat([Buffer.from('HCLA'), u32(2), u32(0), u32(2), Buffer.alloc(16)]);
  const runtime = [u32(20 + text.length), u32(1), u32(parts.hclType ?? 2), u32(parts.hclHash ?? 1), u32(text.length)];
  const made = Buffer.concat([header, report, ...runtime, text, Buffer.alloc(100)]);
  const hcl = parts.tamperHcl?.(made) ?? made;
  const extraData = parts.extraData ?? NONCE;
  const message = Buffer.concat([
    Buffer.from(parts.magic ?? 'ff5443478018', 'hex'),
    Buffer.from('0001ab', 'hex'),
    Buffer.of(0, extraData.length),
    extraData,
    Buffer.alloc(25),
    Buffer.from(parts.selection ?? '00000001000b03ffffff', 'hex'),
    Buffer.of(0, 32),
    sha256(...PCRS),
    parts.after ?? Buffer.alloc(0),
  ]);
  const member = {
    ...snpMember(hcl, [leaf, amd.ask], amdCrl(amd)),
    type: 'AZURE_SEV_SNP',
    tpm: {
      message: message.toString('base64'),
      signature: (parts.sign ?? ((bytes) => sign('sha256', bytes, ak.privateKey)))(message).toString('base64'),
      pcrs: (parts.pcrs ?? PCRS).map((pcr) => pcr.toString('hex')),
    },
  };
  const options = { at: AT, roots: { amd: pem(amd.ark) }, expected: { reportData: NONCE.toString('hex') } };
  return failures(await appraiseCpu(JSON.stringify(member), { ...options, ...parts.options }));
}

describe("Azure's paravisor", () => {
  const of = (check: string, code: string) => [[check, code]];
  const invalid = of('cpu_vtpm', 'cpu_vtpm_invalid');

  test('right evidence passes, whatever stands behind the runtime data', async () => {
    expect(await refuse({})).toEqual([]);
    expect(await refuse({ tamperHcl: (hcl) => Buffer.concat([hcl, Buffer.alloc(9, 7)]) })).toEqual([]);
  });
  test('cpu_form', async () => {
    const bad = of('cpu_form', 'cpu_malformed');
    expect(await refuse({ magic: 'ff5443478017' })).toEqual(bad);
    expect(await refuse({ selection: '00000001000403ffffff' })).toEqual(bad);
    expect(await refuse({ selection: '00000001000b03fffffe' })).toEqual(bad);
    expect(await refuse({ after: Buffer.of(0) })).toEqual(bad);
    expect(await refuse({ pcrs: PCRS.slice(1) })).toEqual(bad);
    expect(await refuse({ hclType: 4 })).toEqual(bad);
    expect(await refuse({ hclType: 3 })).toEqual(of('cpu_form', 'cpu_unsupported'));
    expect(await refuse({ hclHash: 2 })).toEqual(of('cpu_form', 'cpu_unsupported'));
    expect(await refuse({ tamperHcl: (hcl) => hcl.subarray(0, 1200) })).toEqual(bad);
    expect(await refuse({ tamperHcl: (hcl) => hcl.subarray(0, 1300) })).toEqual(bad);
    expect(await refuse({ tamperHcl: (hcl) => void hcl.fill(0, 0, 1) as undefined })).toEqual(bad);
  });
  test('the processor signed other runtime data, or something behind its hash', async () => {
    expect(await refuse({ reportData: Buffer.alloc(64, 1) })).toEqual(invalid);
    const text = Buffer.from(JSON.stringify({ keys: [jwk], 'user-data': '' }));
    expect(await refuse({ reportData: Buffer.concat([sha256(text), Buffer.alloc(32, 1)]) })).toEqual(invalid);
    const tamperHcl = (hcl: Buffer) => hcl.fill('x', 1236 + text.length - 2, 1236 + text.length - 1);
    expect(await refuse({ tamperHcl })).toEqual(invalid);
  });
  test('no key, two keys, another key, a weak key', async () => {
    const { n: _, ...without } = jwk;
    const weak = generateKeyPairSync('rsa', { modulusLength: 1024 });
    const small = { ...weak.publicKey.export({ format: 'jwk' }), kid: 'HCLAkPub' };
    const keys = [
      [],
      [jwk, jwk],
      [{ ...jwk, kid: 'HCLEkPub' }],
      [without],
      [{ ...jwk, e: 'AQ' }],
      [{ ...jwk, n: '@' }],
    ];
    for (const one of keys) expect(await refuse({ keys: one })).toEqual(invalid);
    const signed = (bytes: Buffer) => sign('sha256', bytes, weak.privateKey);
    expect(await refuse({ keys: [small], sign: signed })).toEqual(invalid);
    for (const text of ['', 'null', '[]', '{"keys":7}', '{"keys":[null]}'])
      expect(await refuse({ text })).toEqual(invalid);
  });
  test('another signer, other PCRs', async () => {
    const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
    expect(await refuse({ sign: (bytes) => sign('sha256', bytes, other.privateKey) })).toEqual(invalid);
    expect(await refuse({ sign: (bytes) => sign('sha384', bytes, ak.privateKey) })).toEqual(invalid);
    expect(await refuse({ pcrs: PCRS.toReversed() })).toEqual(invalid);
  });
  test('cpu_measurement is of the paravisor, and of what it started', async () => {
    const measurement = ['a1'.repeat(48)];
    const refuseAs = (pcrs: Record<string, readonly string[]>, own = measurement) => {
      const guest = { type: 'AZURE_SEV_SNP', measurement: own, pcrs, launch_in: 'measurement' } as const;
      return refuse({ options: { reference: { version: 1, cpu: [guest], launch: ['00'.repeat(32)] } } });
    };
    const pcr = (index: number) => (PCRS[index] as Buffer).toString('hex');
    const mismatch = of('cpu_measurement', 'measurement_mismatch');
    // It is the guest; which launch file it was started with, a session's statement says, and there is none here.
    expect(await refuseAs({ 4: ['ff'.repeat(32), pcr(4)], 11: [pcr(11)] })).toEqual(
      of('cpu_software', 'software_mismatch'),
    );
    expect(await refuseAs({ 4: [pcr(4)], 11: [pcr(12)] })).toEqual(mismatch);
    expect(await refuseAs({ 4: [pcr(4)] }, ['a2'.repeat(48)])).toEqual(mismatch);
  });
  test('cpu_binding is what the vTPM was given, exactly', async () => {
    const mismatch = of('cpu_binding', 'cpu_binding_mismatch');
    expect(await refuse({ extraData: Buffer.alloc(32) })).toEqual(mismatch);
    expect(await refuse({ extraData: Buffer.concat([NONCE, Buffer.alloc(1)]) })).toEqual(mismatch);
    expect(await refuse({ extraData: NONCE.subarray(1) })).toEqual(mismatch);
  });
});
