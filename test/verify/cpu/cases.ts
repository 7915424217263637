// The genuine evidence of processors, each case as the member `cpu` that would carry it.
import type { CpuPolicy, CpuVerifyOptions } from '../../../verify/cpu/cpu-options.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';

interface Mutation {
  readonly file: string;
  readonly xor?: { readonly offset: number; readonly value: number };
  readonly truncate?: number;
  readonly member?: string;
  readonly replace?: readonly [string, string];
  readonly note?: string;
}

export interface Case {
  readonly id: string;
  readonly kind: 'snp' | 'tdx' | 'eventlog' | 'software' | 'az-snp' | 'az-tdx';
  readonly files: Readonly<Record<string, string>>;
  readonly at: string;
  readonly without?: readonly string[];
  readonly mutate?: readonly Mutation[];
  readonly nonce?: string;
  readonly policy?: CpuPolicy;
  readonly expect: {
    readonly valid: boolean;
    readonly failed_check?: string;
    readonly code?: string;
    readonly checks?: Readonly<Record<string, string>>;
    readonly also_wrong?: readonly string[];
    readonly tcb_status?: string;
  };
}

const file = (path: string): Buffer => vector(`cpu/${path}`);

export const cases: readonly Case[] = vectorsPresent ? JSON.parse(file('expected.json').toString()) : [];
export const ofKind = (...kinds: readonly Case['kind'][]) => cases.filter(({ kind }) => kinds.includes(kind));

export function caseOf(id: string): Case {
  const found = cases.find((one) => one.id === id);
  if (found === undefined) throw new TypeError(`no case ${id}`);
  return found;
}

/** One file of a case, changed as the case says. */
export function bytesOf(one: Case, name: string): Buffer {
  let bytes = Buffer.from(file(one.files[name] as string));
  for (const { file: of, xor, truncate } of one.mutate ?? []) {
    if (of !== name) continue;
    if (xor !== undefined) bytes[xor.offset] = (bytes[xor.offset] ?? 0) ^ xor.value;
    if (truncate !== undefined) bytes = bytes.subarray(0, truncate);
  }
  return bytes;
}

const END = '-----END CERTIFICATE-----';

export const pemOf = (der: Uint8Array): string =>
  `-----BEGIN CERTIFICATE-----\n${Buffer.from(der).toString('base64')}\n${END}\n`;

/** The first certificate of a PEM or DER file, as PEM. */
function firstPem(bytes: Buffer): string {
  if (bytes[0] === 0x30) return pemOf(bytes);
  const text = bytes.toString();
  return text.slice(0, text.indexOf(END) + END.length);
}

export interface Member {
  type: string;
  report: string;
  certificates?: string;
  collateral?: Record<string, string>;
  quote?: string;
  tpm?: { message: string; signature: string; pcrs: string[] };
  event_log?: string;
}

const base64 = (bytes: Buffer | string) => Buffer.from(bytes).toString('base64');

export function memberOf(one: Case): Member {
  if (one.kind === 'snp')
    return { type: 'SEV_SNP', report: base64(bytesOf(one, 'report')), certificates: chainOf(one) };
  if (one.kind === 'tdx') return { type: 'TDX', report: base64(bytesOf(one, 'quote')), ...collateralOf(one) };
  const tpm = tpmOf(one);
  const report = base64(bytesOf(one, 'hcl'));
  if (one.kind === 'az-snp') return { type: 'AZURE_SEV_SNP', report, certificates: chainOf(one), tpm };
  return { type: 'AZURE_TDX', report, quote: base64(bytesOf(one, 'quote')), tpm, ...collateralOf(one) };
}

function chainOf(one: Case): string {
  if (one.files.auxblob !== undefined) return chainOfTable(bytesOf(one, 'auxblob'));
  // Azure's cases name no authority: it is told by the product.
  const authority = one.files.ca ?? `roots/ask_ark_${one.id.includes('genoa') ? 'genoa' : 'milan'}.pem`;
  return base64(`${firstPem(bytesOf(one, 'leaf'))}\n${firstPem(file(authority))}\n`);
}

/** GHCB's certificate table (AMD 56421 §4.1.8.1): GUID, offset, length; a GUID of zeros ends it. */
function chainOfTable(table: Buffer): string {
  const names: Readonly<Record<string, string>> = { '63da758d': 'leaf', '4ab7b379': 'authority' };
  const found: Record<string, string> = {};
  for (let at = 0; table.readBigUInt64BE(at) !== 0n; at += 24) {
    const name = names[table.toString('hex', at, at + 4)];
    const from = table.readUInt32LE(at + 16);
    if (name !== undefined) found[name] = table.toString('utf8', from, from + table.readUInt32LE(at + 20));
  }
  return base64(`${found.leaf}\n${found.authority}\n`);
}

export function collateralOf(one: Case): { collateral?: Record<string, string> } {
  if (one.files.collateral === undefined) return {};
  const collateral = JSON.parse(file(one.files.collateral).toString()) as Record<string, string>;
  for (const { member, replace } of one.mutate ?? [])
    if (member !== undefined && replace !== undefined)
      collateral[member] = collateral[member]?.replace(...(replace as [string, string])) ?? '';
  return { collateral };
}

function tpmOf(one: Case): NonNullable<Member['tpm']> {
  const { message, signature, pcrs_sha256 } = JSON.parse(bytesOf(one, 'tpm_quote').toString());
  return {
    message: base64(Buffer.from(message, 'hex')),
    signature: base64(Buffer.from(signature, 'hex')),
    pcrs: pcrs_sha256,
  };
}

/** Genuine evidence whose firmware is older than the least TCB that holds where the caller names none. */
export const OUTDATED = [
  {
    id: 'genoa-v3-caci',
    before: 'valid',
    now: 'cpu_tcb tcb_not_accepted',
    reason: 'SNP firmware 23, of Genoa at least 27',
  },
  {
    id: 'genoa-v3-auxblob',
    before: 'valid',
    now: 'cpu_tcb tcb_not_accepted',
    reason: 'SNP firmware 23, of Genoa at least 27',
  },
  {
    id: 'snp-genoa',
    before: 'valid',
    now: 'cpu_tcb tcb_not_accepted',
    reason: 'SNP firmware 23, of Genoa at least 27',
  },
] as const;

/** What a case accepts. Outdated evidence is verified without a least TCB, so that its other bytes decide. */
export const policyOf = (one: Case): CpuPolicy =>
  OUTDATED.some(({ id }) => id === one.id) ? { ...one.policy, minTcb: { Genoa: {} } } : (one.policy ?? {});

/** How a case is verified. */
export function optionsOf(one: Case): CpuVerifyOptions {
  // `without` says of all Azure cases that revocation is left out; where a case has collateral it is expected to pass.
  const revocation = one.without?.includes('revocation') === true && one.files.collateral === undefined;
  const binding = one.without?.includes('binding') === true && one.nonce === undefined;
  return {
    at: new Date(one.at),
    policy: policyOf(one),
    without: { revocation },
    ...(binding || one.nonce === undefined ? {} : { expected: { reportData: one.nonce } }),
  };
}

/** Where the SHA-384 digest of a CCEL's last event begins. */
export function lastDigest(log: Buffer): number {
  const sizes: Readonly<Record<number, number>> = { 4: 20, 11: 32, 12: 48 };
  let found = -1;
  for (let at = 32 + log.readUInt32LE(28); at + 4 <= log.length && log.readUInt32LE(at) !== 0xffffffff; ) {
    let next = at + 12;
    for (let left = log.readUInt32LE(at + 8); left > 0; left--) {
      const algorithm = log.readUInt16LE(next);
      if (algorithm === 12) found = next + 2;
      next += 2 + (sizes[algorithm] ?? Number.NaN);
    }
    at = next + 4 + log.readUInt32LE(next);
  }
  return found;
}
