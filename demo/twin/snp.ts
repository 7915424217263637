// Makes SEV-SNP evidence under its own roots, valid by default: a processor, its firmware and AMD's authorities in one. Tests use options
// that the twin does not, to make evidence with one fault.
import { sign } from 'node:crypto';
import type { Product } from '../../verify/cpu.ts';
import { certify, type Holder, makeCrl, newKeys, pem, type Spec } from './authority.ts';
import * as der from './certificate.ts';
import { extension } from './certificate.ts';

export interface Amd {
  readonly product: Product;
  readonly ark: Holder;
  readonly ask: Holder;
  readonly asvk: Holder;
}

export const makeArk = (product: Product): Holder => certify({ cn: `ARK-${product}`, ca: true }, newKeys('rsa'), null);

export function makeAmd(product: Product, ark = makeArk(product)): Amd {
  const ask = certify({ cn: `SEV-${product}`, ca: true, serial: 2 }, newKeys('rsa'), ark);
  const asvk = certify({ cn: `SEV-VLEK-${product}`, ca: true, serial: 3 }, newKeys('rsa'), ark);
  return { product, ark, ask, asvk };
}

type Layout = Readonly<Record<string, number>>;
const OLD: Layout = { bl: 0, tee: 1, snp: 6, ucode: 7 };
const TCB_AT: Readonly<Record<Product, Layout>> = {
  Milan: OLD,
  Genoa: OLD,
  Turin: { fmc: 0, bl: 1, tee: 2, snp: 3, ucode: 7 },
};
const SPL: Layout = { bl: 1, tee: 2, snp: 3, ucode: 8, fmc: 9 };
const CPUID: Readonly<Record<Product, readonly [number, number]>> = {
  Milan: [0x19, 0x01],
  Genoa: [0x19, 0x11],
  Turin: [0x1a, 0x02],
};
type Tcb = Readonly<Record<string, number>>;
export const TCB: Tcb = { fmc: 1, bl: 9, tee: 1, snp: 27, ucode: 84 };
export const CHIP_ID = Buffer.alloc(64, 0xc1);

function tcbBytes(product: Product, tcb: Tcb): Buffer {
  const bytes = Buffer.alloc(8);
  for (const [part, at] of Object.entries(TCB_AT[product])) bytes[at] = tcb[part] ?? 0;
  return bytes;
}

const amd = (id: string, value: Buffer) => extension(`1.3.6.1.4.1.3704.1.${id}`, value);
const ia5 = (text: string) => Buffer.concat([Buffer.of(0x16, text.length), Buffer.from(text)]);

export interface LeafSpec extends Partial<Spec> {
  readonly kind?: 'VCEK' | 'VLEK';
  readonly tcb?: Tcb;
  readonly hwid?: Buffer;
  readonly productName?: string;
  readonly issuer?: Holder;
  /** AMD's extensions to leave out. */
  readonly drop?: readonly string[];
}

export function makeLeaf({ product, ask, asvk }: Amd, spec: LeafSpec = {}): Holder {
  const { kind = 'VCEK', tcb = TCB, productName = product, drop = [] } = spec;
  const { hwid = product === 'Turin' ? CHIP_ID.subarray(0, 8) : CHIP_ID } = spec;
  const parts = Object.keys(TCB_AT[product]).map((part) => [`3.${SPL[part]}`, der.integer(tcb[part] ?? 0)] as const);
  const last = kind === 'VCEK' ? (['4', hwid] as const) : (['5', ia5('CN=cloud')] as const);
  const all = [['1', der.integer(1)] as const, ['2', ia5(productName)] as const, ...parts, last];
  const extensions = all.filter(([id]) => !drop.includes(id)).map(([id, value]) => amd(id, value));
  const issuer = spec.issuer ?? (kind === 'VCEK' ? ask : asvk);
  return certify({ cn: `SEV-${kind}`, serial: 0, extensions, ...spec }, newKeys('P-384'), issuer);
}

export interface ReportSpec {
  readonly version?: number;
  readonly kind?: 'VCEK' | 'VLEK';
  /** The report's four TCBs; {@link TCB} by default. */
  readonly tcb?: Partial<Readonly<Record<'current' | 'reported' | 'committed' | 'launch', Tcb>>>;
  readonly reportData?: Buffer;
  /** 32 bytes. */
  readonly hostData?: Buffer;
  /** Changes bytes before they are signed. */
  readonly edit?: (report: Buffer) => void;
}

/** An attestation report of 1,184 bytes, signed by the leaf. */
export function makeSnpReport(product: Product, leaf: Holder, spec: ReportSpec = {}): Buffer {
  const { version = 5, kind = 'VCEK', tcb = {}, reportData = Buffer.alloc(64, 0xda) } = spec;
  const report = Buffer.alloc(1184);
  report.writeUInt32LE(version, 0);
  report.writeUInt32LE(0x30000, 8);
  report.writeUInt32LE(1, 0x34);
  report[0x40] = 0x25;
  report.writeUInt32LE(kind === 'VLEK' ? 1 << 2 : 0, 0x48);
  reportData.copy(report, 0x50);
  report.fill(0xa1, 0x90, 0xc0).fill(0xb1, 0xc0, 0xe0).fill(0x1d, 0xe0, 0x110);
  if (version > 2) report.set([...CPUID[product], 1], 0x188);
  if (kind === 'VCEK') CHIP_ID.copy(report, 0x1a0, 0, product === 'Turin' ? 8 : 64);
  const at = { current: 0x38, reported: 0x180, committed: 0x1e0, launch: 0x1f0 } as const;
  for (const which of ['current', 'reported', 'committed', 'launch'] as const)
    tcbBytes(product, tcb[which] ?? TCB).copy(report, at[which]);
  if (version === 5) report[0x1f8] = 0x0b;
  spec.hostData?.copy(report, 0xc0);
  spec.edit?.(report);
  return signReport(report, leaf);
}

function signReport(report: Buffer, leaf: Holder): Buffer {
  const signature = sign('sha384', report.subarray(0, 0x2a0), { key: leaf.key, dsaEncoding: 'ieee-p1363' });
  report.set(signature.subarray(0, 48).toReversed(), 0x2a0);
  report.set(signature.subarray(48).toReversed(), 0x2a0 + 72);
  return report;
}

/** The member `cpu` of a report and its certificates. */
export function snpMember(report: Buffer, chain: readonly Holder[], crl?: Buffer) {
  return {
    type: 'SEV_SNP',
    report: report.toString('base64'),
    certificates: Buffer.from(pem(...chain)).toString('base64'),
    ...(crl === undefined ? {} : { collateral: { crl: crl.toString('base64') } }),
  };
}

/** A revocation list of the ARK, empty by default. */
export const amdCrl = (
  { ark }: Pick<Amd, 'ark'>,
  serials: readonly number[] = [],
  window = { thisUpdate: new Date('2026-01-01T00:00:00Z'), nextUpdate: new Date('2027-01-01T00:00:00Z') },
): Buffer => makeCrl(ark, { ...window, serials });
