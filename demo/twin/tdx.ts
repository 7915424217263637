// Makes TDX quotes and Intel's collateral under its own root, valid by default. Tests use options that the twin does not, to make
// evidence with one fault.
import { createHash, type KeyObject, sign } from 'node:crypto';
import type { TdxCollateral } from '../../verify/cpu.ts';
import { certify, type Holder, makeCrl, newKeys, pem, type Spec } from './authority.ts';
import * as der from './certificate.ts';
import { extension } from './certificate.ts';

export const FROM = new Date('2026-05-20T00:00:00Z');
export const TO = new Date('2026-06-20T00:00:00Z');
export const FMSPC = '90c06f000000';

export interface Intel {
  readonly root: Holder;
  readonly authority: Holder;
  readonly signer: Holder;
}

export const makeIntelRoot = (): Holder =>
  certify({ cn: 'Intel SGX Root CA', ca: true, serial: 9 }, newKeys('P-256'), null);

export function makeIntel(signer: Partial<Spec> = {}, root = makeIntelRoot()): Intel {
  const authority = certify({ cn: 'Intel SGX PCK Platform CA', ca: true, serial: 10 }, newKeys('P-256'), root);
  const own = certify({ cn: 'Intel SGX TCB Signing', serial: 11, ...signer }, newKeys('P-256'), root);
  return { root, authority, signer: own };
}

export interface PckSpec extends Partial<Spec> {
  readonly cpuSvn?: readonly number[];
  readonly pceSvn?: number;
  readonly fmspc?: string;
  readonly pceId?: string;
  readonly issuer?: Holder;
  /** Without Intel's extension. */
  readonly bare?: boolean;
}

const SGX = '1.2.840.113741.1.13.1';
const field = (id: string, value: Buffer) => der.sequence(der.oid(`${SGX}.${id}`), value);

/** 16 components. */
export const svns = (...first: readonly number[]): number[] => Array.from({ length: 16 }, (_, i) => first[i] ?? 0);

export function makePck({ authority }: Intel, spec: PckSpec = {}): Holder {
  const { cpuSvn = svns(3, 3, 2, 2, 4, 1, 0, 5), pceSvn = 13, fmspc = FMSPC, pceId = '0000', bare = false } = spec;
  const tcb = [...cpuSvn, pceSvn].map((svn, i) => field(`2.${i + 1}`, der.integer(svn)));
  const fields = [
    field('1', der.octetString(Buffer.alloc(16, 0x99))),
    field('2', der.sequence(...tcb, field('2.18', der.octetString(Buffer.from(cpuSvn))))),
    field('3', der.octetString(Buffer.from(pceId, 'hex'))),
    field('4', der.octetString(Buffer.from(fmspc, 'hex'))),
    field('5', der.enumerated(1)),
  ];
  const extensions = bare ? [] : [extension(SGX, der.sequence(...fields))];
  const own = { cn: 'Intel SGX PCK Certificate', serial: 12, extensions, ...spec };
  return certify(own, newKeys('P-256'), spec.issuer ?? authority);
}

export interface QuoteSpec {
  /** 3: TDX 1.5, which only version 5 has. */
  readonly body?: 2 | 3;
  readonly version?: 4 | 5;
  readonly teeTcbSvn?: readonly number[];
  readonly teeTcbSvn2?: readonly number[];
  readonly qeSvn?: number;
  readonly authData?: Buffer;
  readonly reportData?: Buffer;
  readonly rtmrs?: readonly Uint8Array[];
  /** 48 bytes. */
  readonly mrConfigId?: Buffer;
  readonly tail?: Buffer;
  /** Each changes bytes before they are signed. */
  readonly editHeader?: (header: Buffer) => void;
  readonly editBody?: (body: Buffer) => void;
  readonly editQe?: (report: Buffer) => void;
  /** The key that signs the quote, in place of the one that the enclave's report certifies. */
  readonly signWith?: KeyObject;
  readonly signQeWith?: KeyObject;
  readonly chain?: readonly Holder[];
  readonly certificationType?: number;
}

const p256 = (bytes: Buffer, key: KeyObject) => sign('sha256', bytes, { key, dsaEncoding: 'ieee-p1363' });
const u16 = (value: number) => Buffer.of(value & 0xff, value >> 8);
const sized = (bytes: Buffer) => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([length, bytes]);
};

/** MRSIGNER of the enclave; a made-up one. */
const QE_SIGNER = Buffer.alloc(32, 0xdc);

export function makeQuote({ authority, root }: Intel, pck: Holder, spec: QuoteSpec = {}): Buffer {
  const { version = 5, body: bodyType = version === 5 ? 3 : 2, qeSvn = 4, authData = Buffer.alloc(32, 0xaa) } = spec;
  const header = Buffer.alloc(48);
  header.writeUInt16LE(version, 0);
  header.writeUInt16LE(2, 2);
  header.writeUInt32LE(0x81, 4);
  Buffer.from('939a7233f79c4ca9940a0db3957f0607', 'hex').copy(header, 12);
  spec.editHeader?.(header);
  const body = makeBody(bodyType, spec);
  const head = version === 5 ? Buffer.concat([u16(bodyType), sized(body)]) : body;
  const signed = Buffer.concat([header, head]);

  const attestation = newKeys('P-256');
  const point = attestation.publicKey.export({ type: 'spki', format: 'der' }).subarray(-64);
  const qe = Buffer.alloc(384);
  qe.fill(0x11, 48, 49);
  QE_SIGNER.copy(qe, 128);
  qe.writeUInt16LE(2, 256);
  qe.writeUInt16LE(qeSvn, 258);
  createHash('sha256').update(point).update(authData).digest().copy(qe, 320);
  spec.editQe?.(qe);
  const chain = Buffer.from(`${pem(...(spec.chain ?? [pck, authority, root]))}\0`);
  const data = Buffer.concat([
    ...[qe, p256(qe, spec.signQeWith ?? pck.key), u16(authData.length), authData],
    ...[u16(spec.certificationType ?? 5), sized(chain)],
  ]);
  const signature = p256(signed, spec.signWith ?? attestation.key);
  const end = Buffer.concat([signature, point, u16(6), sized(data)]);
  return Buffer.concat([signed, sized(end), spec.tail ?? Buffer.alloc(70)]);
}

const REPORT_DATA = Buffer.concat([Buffer.alloc(32, 0xd0), Buffer.alloc(32)]);

function makeBody(type: 2 | 3, spec: QuoteSpec): Buffer {
  const body = Buffer.alloc(type === 3 ? 648 : 584);
  body.set(spec.teeTcbSvn ?? [6, 1, 3], 0);
  // SEPT_VE_DISABLE
  body[123] = 0x10;
  body.fill(0xe7, 136, 184);
  body.fill(0xc1, 184, 216);
  spec.mrConfigId?.copy(body, 184);
  body.set(Buffer.concat(spec.rtmrs ?? [1, 2, 3, 4].map((n) => Buffer.alloc(48, n))), 328);
  body.set(spec.reportData ?? REPORT_DATA, 520);
  if (type === 3) body.set(spec.teeTcbSvn2 ?? spec.teeTcbSvn ?? [6, 1, 3], 584);
  spec.editBody?.(body);
  return body;
}

// Intel's signed texts, as objects that a test changes before they are written and signed.

type Json = Record<string, unknown>;
export interface CollateralSpec {
  /** Members in place of the valid ones; undefined leaves one out. */
  readonly tcbInfo?: Json;
  readonly qeIdentity?: Json;
  readonly signer?: Holder;
  /** Serial numbers that are revoked. */
  readonly pckRevoked?: readonly number[];
  readonly rootRevoked?: readonly number[];
  readonly pckCrl?: Buffer;
  readonly rootCrl?: Buffer;
  readonly chain?: string;
  /** The validity of the texts and lists. */
  readonly window?: { readonly from: Date; readonly to: Date };
}

const components = (list: readonly number[]) => list.map((svn) => ({ svn }));
export const level = (sgx: readonly number[], tdx: readonly number[], pcesvn: number, tcbStatus: string) => ({
  tcb: { sgxtcbcomponents: components(sgx), pcesvn, tdxtcbcomponents: components(tdx) },
  tcbDate: '2024-11-13T00:00:00Z',
  tcbStatus,
  ...(tcbStatus === 'UpToDate' ? {} : { advisoryIDs: ['INTEL-SA-00001'] }),
});
export const svnLevel = (isvsvn: number, tcbStatus: string) => ({ tcb: { isvsvn }, tcbStatus });
export const module = (id: string, ...tcbLevels: readonly Json[]) => ({
  id,
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
  tcbLevels,
});

const iso = (date: Date) => date.toISOString().replace(/\.[0-9]{3}/, '');
const PLATFORM = svns(3, 3, 2, 2, 4, 1, 0, 5);

export function makeCollateral(intel: Intel, spec: CollateralSpec = {}): TdxCollateral {
  const { root, authority, signer: own } = intel;
  const {
    signer = own,
    pckRevoked: serials = [],
    rootRevoked = [],
    window: { from, to } = { from: FROM, to: TO },
  } = spec;
  const window = { issueDate: iso(from), nextUpdate: iso(to) };
  const tcbInfo: Json = {
    ...{ id: 'TDX', version: 3, ...window, fmspc: FMSPC.toUpperCase(), pceId: '0000', tcbType: 0 },
    tcbEvaluationDataNumber: 18,
    tdxModule: { mrsigner: '00'.repeat(48), attributes: '00'.repeat(8), attributesMask: 'FF'.repeat(8) },
    tdxModuleIdentities: [
      module('TDX_03', svnLevel(3, 'UpToDate')),
      module('TDX_01', svnLevel(6, 'UpToDate'), svnLevel(4, 'OutOfDate'), svnLevel(2, 'Revoked')),
    ],
    tcbLevels: [
      level(PLATFORM, svns(5, 0, 3), 13, 'UpToDate'),
      level(svns(2, 2, 2, 2, 3, 1, 0, 5), svns(5, 0, 2), 13, 'OutOfDate'),
      level(svns(2, 2, 2, 2, 3, 1, 0, 5), svns(5, 0, 2), 5, 'OutOfDate'),
    ],
  };
  const qeIdentity: Json = {
    ...{ id: 'TD_QE', version: 2, ...window, tcbEvaluationDataNumber: 18, miscselect: '00000000' },
    miscselectMask: 'FFFFFFFF',
    attributes: `11${'00'.repeat(15)}`,
    attributesMask: `FBFFFFFFFFFFFFFF${'00'.repeat(8)}`,
    mrsigner: QE_SIGNER.toString('hex').toUpperCase(),
    isvprodid: 2,
    tcbLevels: [svnLevel(4, 'UpToDate'), svnLevel(2, 'OutOfDate'), svnLevel(1, 'Revoked')],
  };
  // White space that no JSON.stringify writes: only the exact text has this signature.
  const [tcb_info, qe_identity] = [
    { ...tcbInfo, ...spec.tcbInfo },
    { ...qeIdentity, ...spec.qeIdentity },
  ].map((json) => JSON.stringify(json).replace(':', ': '));
  const chain = spec.chain ?? pem(signer, root);
  const crl = { thisUpdate: from, nextUpdate: to };
  return {
    tcb_info: tcb_info as string,
    tcb_info_signature: p256(Buffer.from(tcb_info as string), signer.key).toString('hex'),
    tcb_info_issuer_chain: chain,
    qe_identity: qe_identity as string,
    qe_identity_signature: p256(Buffer.from(qe_identity as string), signer.key).toString('hex'),
    qe_identity_issuer_chain: chain,
    pck_crl: (spec.pckCrl ?? makeCrl(authority, { ...crl, serials })).toString('hex'),
    pck_crl_issuer_chain: pem(authority, root),
    root_ca_crl: (spec.rootCrl ?? makeCrl(root, { ...crl, serials: rootRevoked })).toString('hex'),
  };
}
