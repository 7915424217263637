// Reads a quote of TDX (Intel, "TDX DCAP Quoting Library API", appendix A: versions 4 and 5) and what its PCK certificate says.
// Nothing that it returns is trusted before the checks in tdx-checks.ts have passed.

import { concat, EncodingError, fromHex, fromUtf8, toHex } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';
import { type Certificate, parsePem } from '../../x509/certificate.ts';
import { DerError, type DerValue, integer, oid, readOne, sequence, TAG } from '../../x509/der.ts';
import type { PublicKey } from '../../x509/public-key.ts';
import { ByteReader } from './byte-reader.ts';

export interface TdxQuote {
  /** Without what follows its end. */
  readonly bytes: Uint8Array;
  readonly version: 4 | 5;
  readonly body: TdReport;
  /** Header and body, which the attestation key signed. */
  readonly signed: Uint8Array;
  readonly signature: Uint8Array;
  /** x ‖ y, as the quoting enclave hashed it. */
  readonly attestationKeyBytes: Uint8Array;
  readonly attestationKey: PublicKey;
  readonly qe: QeReport;
  /** The report's bytes, which the PCK signed. */
  readonly qeSigned: Uint8Array;
  readonly qeSignature: Uint8Array;
  readonly qeAuthData: Uint8Array;
  /** PCK, its authority and usually a root. */
  readonly chain: readonly Certificate[];
}

/** The TDX module's report about the guest. */
export interface TdReport {
  readonly teeTcbSvn: Uint8Array;
  readonly mrSignerSeam: Uint8Array;
  readonly seamAttributes: Uint8Array;
  readonly tdAttributes: Uint8Array;
  readonly xfam: Uint8Array;
  readonly mrTd: Uint8Array;
  readonly mrConfigId: Uint8Array;
  readonly rtmrs: readonly Uint8Array[];
  readonly reportData: Uint8Array;
  /** Security versions of the module that runs now, and the measurement of a service TD; null in TDX 1.0, which has neither. */
  readonly teeTcbSvn2: Uint8Array | null;
  readonly mrServiceTd: Uint8Array | null;
}

/** The quoting enclave's own report. */
interface QeReport {
  readonly miscSelect: Uint8Array;
  readonly attributes: Uint8Array;
  readonly mrSigner: Uint8Array;
  readonly isvProdId: number;
  readonly isvSvn: number;
  readonly reportData: Uint8Array;
}

const HEADER_BYTES = 48;
const ECDSA_P256 = 2;
const TEE_TDX = 0x81;
const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607';
/** Version 5 says which body follows: TDX 1.0 or 1.5. */
const BODIES: Readonly<Record<number, number>> = { 2: 584, 3: 648 };
const TDX_1_0_BYTES = 584;
const QE_REPORT_BYTES = 384;
const QE_REPORT_DATA = 6;
const PCK_CHAIN = 5;
/** SubjectPublicKeyInfo of P-256 up to x ‖ y. */
const P256_SPKI = '3059301306072a8648ce3d020106082a8648ce3d03010703420004';

const bad = (message: string) => new CheckFailure('cpu_malformed', `the quote: ${message}`);
const unsupported = (message: string) => new CheckFailure('cpu_unsupported', message);

/**
 * The quote ends where its own lengths say. Hosts return it in a larger buffer, whose other bytes are not read.
 * @throws {CheckFailure} cpu_malformed, cpu_unsupported
 */
export function parseTdxQuote(bytes: Uint8Array): TdxQuote {
  const reader = new ByteReader(bytes, bad);
  const version = readHeader(reader.take(HEADER_BYTES));
  let bodyBytes: number | undefined = TDX_1_0_BYTES;
  if (version === 5) {
    const type = reader.number(2);
    bodyBytes = BODIES[type];
    if (bodyBytes === undefined) throw unsupported(`a quote with a body of type ${type}`);
    if (reader.number(4) !== bodyBytes) throw bad('the body has not the size of its type');
  }
  const body = readBody(reader.take(bodyBytes));
  const signed = reader.taken;
  const signatureData = readSignatureData(reader.take(reader.number(4)));
  return { bytes: reader.taken, version, body, signed, ...signatureData };
}

function readHeader(header: Uint8Array): 4 | 5 {
  const reader = new ByteReader(header, bad);
  const version = reader.number(2);
  if (version !== 4 && version !== 5) throw unsupported(`a quote of version ${version}`);
  if (reader.number(2) !== ECDSA_P256) throw unsupported('a quote with another attestation key than of ECDSA P-256');
  if (reader.number(4) !== TEE_TDX) throw unsupported('a quote of another kind than TDX');
  if (reader.number(4) !== 0) throw bad('reserved bytes of the header are not zero');
  if (toHex(reader.take(16)) !== INTEL_QE_VENDOR) throw unsupported("another quoting enclave than Intel's");
  return version;
}

/** The TD report of TDX 1.0, with two more fields in TDX 1.5. */
function readBody(bytes: Uint8Array): TdReport {
  const at = (from: number, length: number) => bytes.subarray(from, from + length);
  const isTdx15 = bytes.length > TDX_1_0_BYTES;
  return {
    teeTcbSvn: at(0, 16),
    mrSignerSeam: at(64, 48),
    seamAttributes: at(112, 8),
    tdAttributes: at(120, 8),
    xfam: at(128, 8),
    mrTd: at(136, 48),
    mrConfigId: at(184, 48),
    rtmrs: [328, 376, 424, 472].map((from) => at(from, 48)),
    reportData: at(520, 64),
    teeTcbSvn2: isTdx15 ? at(584, 16) : null,
    mrServiceTd: isTdx15 ? at(600, 48) : null,
  };
}

function readSignatureData(bytes: Uint8Array): Omit<TdxQuote, 'bytes' | 'version' | 'body' | 'signed'> {
  const reader = new ByteReader(bytes, bad);
  const signature = reader.take(64);
  const attestationKeyBytes = reader.take(64);
  if (reader.number(2) !== QE_REPORT_DATA) throw unsupported("certification data without the quoting enclave's report");
  const inner = new ByteReader(reader.take(reader.number(4)), bad);
  reader.end();
  const qeSigned = inner.take(QE_REPORT_BYTES);
  const qeSignature = inner.take(64);
  const qeAuthData = inner.take(inner.number(2));
  if (inner.number(2) !== PCK_CHAIN) throw unsupported('a quote without its PCK certificate chain');
  const chain = readChain(inner.take(inner.number(4)));
  inner.end();
  return {
    signature,
    attestationKeyBytes,
    attestationKey: { spki: concat([fromHex(P256_SPKI), attestationKeyBytes]), curve: 'P-256' },
    qe: readQeReport(qeSigned),
    qeSigned,
    qeSignature,
    qeAuthData,
    chain,
  };
}

function readQeReport(bytes: Uint8Array): QeReport {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return {
    miscSelect: bytes.subarray(16, 20),
    attributes: bytes.subarray(48, 64),
    mrSigner: bytes.subarray(128, 160),
    isvProdId: view.getUint16(256, true),
    isvSvn: view.getUint16(258, true),
    reportData: bytes.subarray(320, 384),
  };
}

/** A NUL may end the text. */
function readChain(bytes: Uint8Array): Certificate[] {
  try {
    return parsePem(fromUtf8(bytes.at(-1) === 0 ? bytes.subarray(0, -1) : bytes));
  } catch (cause) {
    if (!(cause instanceof DerError || cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('cpu_malformed', `the quote's certificates: ${cause.message}`, { cause });
  }
}

// Intel's extension of a PCK certificate ("PCK Certificate and CRL Profile Specification", §1.3.5).

export interface Pck {
  /** 32 lowercase hex digits; null where the certificate has none. */
  readonly ppid: string | null;
  /** 12 lowercase hex digits that select the platform's TCB info. */
  readonly fmspc: string;
  readonly pceId: string;
  /** The 16 components of its CPUSVN. */
  readonly cpuSvn: readonly number[];
  readonly pceSvn: number;
}

const SGX = '1.2.840.113741.1.13.1';
const COMPONENTS = 16;

/** @throws {DerError} */
export function readPck({ extensions }: Certificate): Pck {
  const extension = extensions.get(SGX);
  if (extension === undefined) throw new DerError('it is no PCK certificate');
  const fields = byName(readOne(extension.value));
  const tcb = byName(fields.get(`${SGX}.2`));
  const number = (index: number): number => {
    const value = Number(integer(tcb.get(`${SGX}.2.${index}`)));
    if (value < 0 || value > 0xffff) throw new DerError('a security version is out of range');
    return value;
  };
  const ppid = fields.get(`${SGX}.1`);
  return {
    ppid: ppid === undefined ? null : octets(ppid, 16),
    fmspc: octets(fields.get(`${SGX}.4`), 6),
    pceId: octets(fields.get(`${SGX}.3`), 2),
    cpuSvn: Array.from({ length: COMPONENTS }, (_, i) => number(i + 1)),
    pceSvn: number(COMPONENTS + 1),
  };
}

function byName(value: DerValue | undefined): Map<string, DerValue> {
  const fields = new Map<string, DerValue>();
  for (const entry of sequence(value)) {
    const [name, content, ...more] = sequence(entry);
    const id = oid(name);
    if (content === undefined || more.length > 0 || fields.has(id)) throw new DerError('a field is malformed');
    fields.set(id, content);
  }
  return fields;
}

function octets(value: DerValue | undefined, length: number): string {
  if (value?.tag !== TAG.octetString || value.content.length !== length) throw new DerError('a field has a wrong size');
  return toHex(value.content);
}
