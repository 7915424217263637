// Guests for the Python package and our own verifier: read from genuine evidence, or of processors that a test makes, right except for what it says.
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { makeCollateral, makePck, makeQuote } from '../../demo/twin/tdx.ts';
import type { CpuReference } from '../../verify/cpu.ts';
import { AT } from '../verify/maker.ts';
import { amd, intel, type Processor, snpLeaf } from '../verify/session-maker.ts';

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');
const hashed = (name: string, parts: readonly (string | Uint8Array)[]) =>
  parts.reduce((hash, part) => hash.update(part), createHash(name)).digest();
export const sha256 = (...parts: readonly (string | Uint8Array)[]) => hashed('sha256', parts);
const sha384 = (...parts: readonly (string | Uint8Array)[]) => hashed('sha384', parts);

/** A guest of a list of reference values, right or not. */
export type Guest = Readonly<Record<string, unknown>>;
export const listOf = (cpu: readonly Guest[], ...launch: readonly string[]): CpuReference =>
  JSON.parse(JSON.stringify({ version: 1, cpu, launch }));
export const HOST = { launch_in: 'host_data' };
export const CONFIG = { launch_in: 'mrconfigid' };
export const RTMR3 = { launch_in: 'rtmr3' };
export const MEASURED = { launch_in: 'measurement' };

/** The report or quote of a member. */
function reportOf({ type, report, quote }: Record<string, string>): Buffer {
  const bytes = Buffer.from(quote ?? report ?? '', 'base64');
  return type === 'AZURE_SEV_SNP' ? bytes.subarray(32) : bytes;
}

/** A member's own guest, and the digest that its host wrote. */
export function ownOf(member: Record<string, string>): readonly [guest: Guest, label: string] {
  const { type = '' } = member;
  const bytes = reportOf(member);
  const hex = (from: number, size = 48) => bytes.toString('hex', from, from + size);
  if (type.endsWith('SNP')) {
    const guest = { type, measurement: [hex(0x90)], vmpl: [bytes.readUInt32LE(0x30)], ...MEASURED };
    return [type === 'SEV_SNP' ? { ...guest, id_key_digest: [hex(0xe0)] } : guest, hex(0xc0, 32)];
  }
  const body = bytes.readUInt16LE(0) === 5 ? 54 : 48;
  const label = hex(body + 184, 32);
  const mrtd = [hex(body + 136)];
  if (type === 'AZURE_TDX') return [{ type, measurement: mrtd, ...MEASURED }, label];
  const [rtmr0, rtmr1, rtmr2, rtmr3] = [328, 376, 424, 472].map((at) => [hex(body + at)]);
  return [{ type, mrtd, rtmr0, rtmr1, rtmr2, rtmr3, ...MEASURED }, label];
}

// Of processors that a test makes.

const pck = makePck(intel);
const collateral = makeCollateral(intel, {
  window: { from: new Date(AT.getTime() - 86_400_000), to: new Date(AT.getTime() + 86_400_000) },
});

export const snpOf =
  (hostData: Buffer): Processor =>
  (reportData) =>
    snpMember(makeSnpReport('Genoa', snpLeaf, { reportData, hostData }), [snpLeaf, amd.ask]);

/** An event of dstack's log. */
export function dstackEvent(imr: number, event: string, payload: Uint8Array) {
  const digest = sha384(Buffer.of(1, 0, 0, 8), ':', event, ':', payload);
  const event_payload = Buffer.from(payload).toString('hex');
  return { imr, event_type: 0x08000001, digest: digest.toString('hex'), event, event_payload };
}

/** Its RTMRs are those of the log. */
export const tdxOf =
  (mrConfigId: Buffer, log?: readonly ReturnType<typeof dstackEvent>[]): Processor =>
  (reportData) => {
    if (log === undefined)
      return { type: 'TDX', report: base64(makeQuote(intel, pck, { reportData, mrConfigId })), collateral };
    const rtmrs = Array.from({ length: 4 }, () => Buffer.alloc(48));
    for (const { imr, digest } of log) rtmrs[imr] = sha384(rtmrs[imr] ?? '', Buffer.from(digest, 'hex'));
    const report = base64(makeQuote(intel, pck, { reportData, mrConfigId, rtmrs }));
    return { type: 'TDX', report, collateral, event_log: base64(Buffer.from(JSON.stringify(log))) };
  };

/** Another log beside the same quote. */
export const withLog =
  (processor: Processor, log: string | ((own: string) => string)): Processor =>
  (reportData) => {
    const member = processor(reportData) as { event_log: string };
    const own = Buffer.from(member.event_log, 'base64').toString();
    return { ...member, event_log: base64(Buffer.from(typeof log === 'string' ? log : log(own))) };
  };

export const PCRS = Array.from({ length: 24 }, (_, i) => sha256(`PCR ${i}`).toString('hex'));
const tpmKey = generateKeyPairSync('rsa', { modulusLength: 2048 });
/** Behind Azure's paravisor: the TPM signs the first 32 bytes. */
export const behindVtpm: Processor = (reportData) => {
  const key = { kid: 'HCLAkPub', ...tpmKey.publicKey.export({ format: 'jwk' }) };
  const runtime = Buffer.from(JSON.stringify({ keys: [key] }));
  const hcl = Buffer.alloc(1236);
  hcl.write('HCLA');
  hcl.writeUInt32LE(2, 12);
  makeSnpReport('Genoa', snpLeaf, { reportData: Buffer.concat([sha256(runtime), Buffer.alloc(32)]) }).copy(hcl, 32);
  hcl.writeUInt32LE(2, 1224);
  hcl.writeUInt32LE(1, 1228);
  hcl.writeUInt32LE(runtime.length, 1232);
  const message = Buffer.concat([
    Buffer.from('ff544347801800000020', 'hex'),
    reportData.subarray(0, 32),
    Buffer.alloc(25),
    Buffer.from('00000001000b03ffffff0020', 'hex'),
    sha256(Buffer.from(PCRS.join(''), 'hex')),
  ]);
  const signature = base64(sign('sha256', message, tpmKey.privateKey));
  return {
    ...snpMember(Buffer.concat([hcl, runtime]), [snpLeaf, amd.ask]),
    type: 'AZURE_SEV_SNP',
    tpm: { message: base64(message), signature, pcrs: PCRS },
  };
};
