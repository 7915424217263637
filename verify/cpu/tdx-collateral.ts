// Verifies Intel's collateral: TCB info and the quoting enclave's identity, as the exact texts that were signed,
// and revocation lists (Intel's Provisioning Certification Service, version 4).
import { isObject } from '../../proto/json.ts';
import { EncodingError, equal, fromHex, utf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { ChainError, verifyChain } from '../x509/chain.ts';
import { type Crl, parseCrl } from '../x509/crl.ts';
import { DerError } from '../x509/der.ts';
import { ecdsaVerifyRaw } from '../x509/public-key.ts';
import { type CpuContext, TCB_STATUSES, type TcbStatus, type TdxCollateral } from './cpu-options.ts';

/** Collateral whose signatures verify. Part of it may be outdated, which the checks judge. */
export interface VerifiedCollateral {
  readonly tcbInfo: TcbInfo;
  readonly qeIdentity: QeIdentity;
  /** Signers of the two texts. */
  readonly signers: readonly Certificate[];
  /** Both lists are not yet verified: they must be signed by the quote's own authorities. */
  readonly pckCrl: Crl;
  readonly rootCrl: Crl;
  /** The part that is not valid at the clock, in words; null where all parts are. */
  readonly outdated: string | null;
}

export interface TcbInfo {
  /** Hex, lowercase. */
  readonly fmspc: string;
  readonly pceId: string;
  readonly evaluation: number;
  /** The highest first, as Intel sorts them. */
  readonly levels: readonly TcbLevel[];
  /** The signer of modules of TDX 1.0. */
  readonly module: ModuleSigner;
  readonly moduleIdentities: readonly (ModuleSigner & { readonly id: string; readonly levels: readonly SvnLevel[] })[];
}

export interface ModuleSigner {
  readonly mrSigner: Uint8Array;
  readonly attributes: Uint8Array;
  readonly attributesMask: Uint8Array;
}

interface Level {
  readonly status: TcbStatus;
  readonly advisories: readonly string[];
}
export interface TcbLevel extends Level {
  readonly sgx: readonly number[];
  readonly tdx: readonly number[];
  readonly pceSvn: number;
}
export interface SvnLevel extends Level {
  readonly isvSvn: number;
}

export interface QeIdentity {
  readonly evaluation: number;
  readonly miscSelect: Uint8Array;
  readonly miscSelectMask: Uint8Array;
  readonly attributes: Uint8Array;
  readonly attributesMask: Uint8Array;
  readonly mrSigner: Uint8Array;
  readonly isvProdId: number;
  readonly levels: readonly SvnLevel[];
}

const SIGNER = 'Intel SGX TCB Signing';
const MAX_LEVELS = 256;
const invalid = (message: string, cause?: unknown) => new CheckFailure('collateral_invalid', message, { cause });

/**
 * Takes the caller's own collateral where it is valid at the clock, else that of the evidence.
 * @param root the root of the quote's own chain, under which the collateral must verify too.
 * @throws {CheckFailure} collateral_unavailable, collateral_invalid
 */
export async function findCollateral(
  carried: TdxCollateral | null,
  root: Certificate,
  { at, collateral }: CpuContext,
): Promise<VerifiedCollateral> {
  let first: VerifiedCollateral | undefined;
  for (const one of [collateral.tdx, carried]) {
    if (one == null) continue;
    const verified = await verifyCollateral(one, root, at);
    if (verified.outdated === null) return verified;
    first ??= verified;
  }
  if (first === undefined) throw new CheckFailure('collateral_unavailable', "Intel's TCB info is not at hand");
  return first;
}

/** @throws {CheckFailure} collateral_invalid */
async function verifyCollateral(collateral: TdxCollateral, root: Certificate, at: Date): Promise<VerifiedCollateral> {
  const tcb = await verifyText('tcb_info', collateral, root, at);
  const qe = await verifyText('qe_identity', collateral, root, at);
  const rootCrl = readCrl('root_ca_crl', collateral);
  const pckCrl = readCrl('pck_crl', collateral);
  const windows = [
    ['TCB info', date(tcb.value.issueDate), date(tcb.value.nextUpdate)],
    ["quoting enclave's identity", date(qe.value.issueDate), date(qe.value.nextUpdate)],
    ["root's revocation list", rootCrl.thisUpdate, rootCrl.nextUpdate],
    ["PCK authority's revocation list", pckCrl.thisUpdate, pckCrl.nextUpdate],
  ] as const;
  const [what, from, to] = windows.find(([, first, last]) => !(at >= first && at <= last)) ?? [];
  const window = what === undefined ? null : `the ${what} holds from ${from?.toISOString()} to ${to?.toISOString()}`;
  return {
    tcbInfo: readTcbInfo(tcb.value),
    qeIdentity: readQeIdentity(qe.value),
    signers: [tcb.signer, qe.signer],
    pckCrl,
    rootCrl,
    outdated: tcb.outdated ?? qe.outdated ?? window,
  };
}

/** The earliest end of the four parts. Nothing is verified. @throws {CheckFailure} collateral_invalid: a part cannot be read. */
export function collateralEnd(collateral: TdxCollateral): Date {
  const texts = [collateral.tcb_info, collateral.qe_identity].map((text) => date(object(jsonOf(text)).nextUpdate));
  const lists = (['root_ca_crl', 'pck_crl'] as const).map((name) => readCrl(name, collateral).nextUpdate);
  return new Date(Math.min(...[...texts, ...lists].map((end) => end.getTime())));
}

/** Parses a text only after its signature has verified. */
async function verifyText(
  name: 'tcb_info' | 'qe_identity',
  collateral: TdxCollateral,
  root: Certificate,
  at: Date,
): Promise<{ value: Json; signer: Certificate; outdated: string | null }> {
  const chain = decoded(name, () => parsePem(collateral[`${name}_issuer_chain`]));
  const [signer, ...above] = chain;
  let outdated: string | null = null;
  try {
    await verifyChain(chain, [root], at);
  } catch (cause) {
    if (!(cause instanceof ChainError)) throw cause;
    if (cause.reason !== 'expired') throw invalid(`${name}: ${cause.message}`, cause);
    outdated = `${name}: ${cause.message}`;
  }
  const isDirect = above.length === 0 || (above.length === 1 && equal(above[0]?.spki ?? new Uint8Array(), root.spki));
  if (signer === undefined || !isDirect || signer.isCa || !signer.subjectCommonName.includes(SIGNER))
    throw invalid(`${name}: its signer is not the one that Intel's root names for it`);
  const signature = decoded(name, () => fromHex(collateral[`${name}_signature`]));
  const text = collateral[name];
  if (!(await ecdsaVerifyRaw(signer, 'SHA-256', signature, utf8(text))))
    throw invalid(`${name}: its signature does not verify over its exact text`);
  return { value: object(jsonOf(text)), signer, outdated };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw invalid('a signed text is not JSON', cause);
  }
}

function readCrl(name: 'root_ca_crl' | 'pck_crl', collateral: TdxCollateral): Crl {
  return decoded(name, () => parseCrl(fromHex(collateral[name])));
}

function decoded<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof DerError || cause instanceof EncodingError)) throw cause;
    throw invalid(`${name}: ${cause.message}`, cause);
  }
}

// Reads the signed JSON. Unknown members are ignored, because Intel may add some; those that are used must have their type.

type Json = Readonly<Record<string, unknown>>;

function object(value: unknown): Json {
  if (!isObject(value)) throw invalid('a signed text lacks an object');
  return value;
}

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value) || value.length > MAX_LEVELS)
    throw invalid('a signed text has a list that is none, or long');
  return value;
}

function text(value: unknown): string {
  if (typeof value !== 'string' || value.length > 256) throw invalid('a signed text lacks a string');
  return value;
}

function whole(value: unknown): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) throw invalid('a signed text lacks a number');
  return value;
}

function bytes(value: unknown, length: number): Uint8Array {
  const read = decoded('a signed text', () => fromHex(text(value)));
  if (read.length !== length) throw invalid('a signed text has a value of another size');
  return read;
}

function date(value: unknown): Date {
  const written = text(value);
  const read = new Date(written);
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(written) || Number.isNaN(read.getTime()))
    throw invalid('a signed text has a time that is none');
  return read;
}

function is(json: Json, id: string, version: number): void {
  if (json.id !== id || json.version !== version) throw invalid(`a signed text is not ${id} of version ${version}`);
}

function readTcbInfo(json: Json): TcbInfo {
  is(json, 'TDX', 3);
  const identities = json.tdxModuleIdentities === undefined ? [] : list(json.tdxModuleIdentities).map(object);
  return {
    fmspc: text(json.fmspc).toLowerCase(),
    pceId: text(json.pceId).toLowerCase(),
    evaluation: whole(json.tcbEvaluationDataNumber),
    levels: list(json.tcbLevels).map((level) => {
      const tcb = object(object(level).tcb);
      return {
        ...statusOf(object(level)),
        sgx: components(tcb.sgxtcbcomponents),
        tdx: components(tcb.tdxtcbcomponents),
        pceSvn: whole(tcb.pcesvn),
      };
    }),
    module: signerOf(object(json.tdxModule)),
    moduleIdentities: identities.map((one) => ({
      ...signerOf(one),
      id: text(one.id).toUpperCase(),
      levels: svnLevels(one.tcbLevels),
    })),
  };
}

function readQeIdentity(json: Json): QeIdentity {
  is(json, 'TD_QE', 2);
  return {
    evaluation: whole(json.tcbEvaluationDataNumber),
    // Written most significant digit first; the report has the least significant byte first.
    miscSelect: bytes(json.miscselect, 4).reverse(),
    miscSelectMask: bytes(json.miscselectMask, 4).reverse(),
    attributes: bytes(json.attributes, 16),
    attributesMask: bytes(json.attributesMask, 16),
    mrSigner: bytes(json.mrsigner, 32),
    isvProdId: whole(json.isvprodid),
    levels: svnLevels(json.tcbLevels),
  };
}

const signerOf = (json: Json): ModuleSigner => ({
  mrSigner: bytes(json.mrsigner, 48),
  attributes: bytes(json.attributes, 8),
  attributesMask: bytes(json.attributesMask, 8),
});

const svnLevels = (value: unknown): SvnLevel[] =>
  list(value).map((level) => ({ ...statusOf(object(level)), isvSvn: whole(object(object(level).tcb).isvsvn) }));

function statusOf(level: Json): Level {
  const status = TCB_STATUSES.find((known) => known === level.tcbStatus);
  if (status === undefined) throw invalid('a signed text has a status that is not known');
  return { status, advisories: level.advisoryIDs === undefined ? [] : list(level.advisoryIDs).map(text) };
}

function components(value: unknown): number[] {
  const svns = list(value).map((component) => whole(object(component).svn));
  if (svns.length !== 16) throw invalid('a level has not 16 components');
  return svns;
}
