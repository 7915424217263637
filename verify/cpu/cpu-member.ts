// Reads the member `cpu`, a processor's evidence, strictly and with a limit on every size. Only the form is checked.
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import { EncodingError, fromBase64, fromHex, fromUtf8, isDigest } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { DerError } from '../x509/der.ts';
import type { CpuType, TdxCollateral } from './cpu-options.ts';
import type { TpmQuote } from './evidence/azure-vtpm.ts';

export interface CpuMember {
  readonly type: CpuType;
  /** SNP: the report. TDX: the quote. Azure: the HCL report that contains the processor's report. */
  readonly report: Uint8Array;
  /** Leaf, then ASK or ASVK; of SEV-SNP alone. */
  readonly certificates: readonly Certificate[];
  /** DER; of SEV-SNP alone. */
  readonly crl: Uint8Array | null;
  readonly collateral: TdxCollateral | null;
  /** Azure TDX: the quote, which is separate from the HCL report. */
  readonly quote: Uint8Array | null;
  readonly tpm: TpmQuote | null;
  /** TDX: CCEL, or JSON of dstack's form. */
  readonly eventLog: Uint8Array | null;
}

const MAX_CHARACTERS = 8 * 1024 * 1024;
/** The longest text of each member, in characters. */
const MAX = {
  report: 64 * 1024,
  certificates: 64 * 1024,
  quote: 64 * 1024,
  tpm: 16 * 1024,
  event_log: 2 * 1024 * 1024,
  text: 512 * 1024,
  crl: 2 * 1024 * 1024,
} as const;
const TPM_PCRS = 24;

/** The members of each type beside `type` and `report`: required ones, and optional ones. */
const MEMBERS: Readonly<Record<CpuType, { readonly must: readonly string[]; readonly may: readonly string[] }>> = {
  SEV_SNP: { must: ['certificates'], may: ['collateral'] },
  TDX: { must: [], may: ['collateral', 'event_log'] },
  AZURE_SEV_SNP: { must: ['certificates', 'tpm'], may: ['collateral'] },
  AZURE_TDX: { must: ['quote', 'tpm'], may: ['collateral', 'event_log'] },
};
/** Members of the session, which binding.ts reads. */
const OF_THE_SESSION = ['statement', 'gpu_sha256', 'gpu', 'launch', 'signature'];
/** dcap-qvl writes it from 0.3.11 on, as text or null. */
const PCK_CHAIN = 'pck_certificate_chain';
const COLLATERAL: readonly Exclude<keyof TdxCollateral, typeof PCK_CHAIN>[] = [
  'tcb_info',
  'tcb_info_signature',
  'tcb_info_issuer_chain',
  'qe_identity',
  'qe_identity_signature',
  'qe_identity_issuer_chain',
  'pck_crl',
  'pck_crl_issuer_chain',
  'root_ca_crl',
];

const bad = (message: string, cause?: unknown) => new CheckFailure('cpu_malformed', message, { cause });

/** @param input the member `cpu`, as JSON text or parsed. @throws {CheckFailure} cpu_malformed, cpu_unsupported */
export function readCpuMember(input: unknown): CpuMember {
  const value = record(typeof input === 'string' ? parseCpu(input) : input, 'the evidence');
  const { type } = value;
  if (typeof type !== 'string') throw bad('the evidence does not say of what type it is');
  if (!Object.hasOwn(MEMBERS, type))
    throw new CheckFailure('cpu_unsupported', 'evidence of a type that is not known: nothing is checked by halves');
  const { must, may } = MEMBERS[type as CpuType];
  only(value, ['type', 'report', ...must, ...may, ...OF_THE_SESSION], ['report', ...must]);
  const isAmd = type.endsWith('SEV_SNP');
  const { collateral } = value;
  return {
    type: type as CpuType,
    report: base64(value.report, 'report', MAX.report),
    certificates: isAmd ? pem(value.certificates) : [],
    crl: isAmd && collateral !== undefined ? readCrl(collateral) : null,
    collateral: isAmd || collateral === undefined ? null : readTdxCollateral(collateral),
    quote: value.quote === undefined ? null : base64(value.quote, 'quote', MAX.quote),
    tpm: value.tpm === undefined ? null : readTpm(value.tpm),
    eventLog: value.event_log === undefined ? null : base64(value.event_log, 'event_log', MAX.event_log),
  };
}

/** @throws {CheckFailure} cpu_malformed */
export function parseCpu(text: string): unknown {
  if (text.length > MAX_CHARACTERS) throw bad(`more than ${MAX_CHARACTERS} characters`);
  try {
    return parseStrict(text);
  } catch (cause) {
    throw bad(cause instanceof JsonTextError ? cause.message : 'the evidence is not JSON', cause);
  }
}

function record(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (!isObject(value)) throw bad(`${what} is not an object`);
  return { ...value };
}

function only(value: Readonly<Record<string, unknown>>, may: readonly string[], must: readonly string[]): void {
  if (Object.keys(value).some((name) => !may.includes(name)))
    throw bad(`a member other than ${may.slice(0, 9).join(', ')}`);
  const missing = must.find((name) => value[name] === undefined);
  if (missing !== undefined) throw bad(`the member ${missing} is absent`);
}

function string(value: unknown, name: string, max: number): string {
  if (typeof value !== 'string') throw bad(`${name} is not a string`);
  if (value.length > max) throw bad(`${name} has more than ${max} characters`);
  return value;
}

function base64(value: unknown, name: string, max: number): Uint8Array {
  try {
    return fromBase64(string(value, name, max));
  } catch (cause) {
    throw cause instanceof EncodingError ? bad(`${name} is not base64`, cause) : cause;
  }
}

function pem(value: unknown): Certificate[] {
  try {
    return parsePem(fromUtf8(base64(value, 'certificates', MAX.certificates)));
  } catch (cause) {
    if (!(cause instanceof DerError || cause instanceof EncodingError)) throw cause;
    throw bad(`certificates: ${cause.message}`, cause);
  }
}

function readCrl(value: unknown): Uint8Array {
  const collateral = record(value, 'collateral');
  only(collateral, ['crl'], ['crl']);
  return base64(collateral.crl, 'crl', MAX.crl);
}

/** @throws {CheckFailure} cpu_malformed */
export function readTdxCollateral(value: unknown): TdxCollateral {
  const collateral = record(value, 'collateral');
  only(collateral, [...COLLATERAL, PCK_CHAIN], COLLATERAL);
  const chain = collateral[PCK_CHAIN];
  if (chain != null) string(chain, PCK_CHAIN, MAX.text);
  for (const name of COLLATERAL) string(collateral[name], name, name.endsWith('crl') ? MAX.crl : MAX.text);
  return collateral as unknown as TdxCollateral;
}

function readTpm(value: unknown): TpmQuote {
  const tpm = record(value, 'tpm');
  only(tpm, ['message', 'signature', 'pcrs'], ['message', 'signature', 'pcrs']);
  const { pcrs } = tpm;
  if (!Array.isArray(pcrs) || pcrs.length !== TPM_PCRS) throw bad(`pcrs is not a list of ${TPM_PCRS}`);
  return {
    message: base64(tpm.message, 'message', MAX.tpm),
    signature: base64(tpm.signature, 'signature', MAX.tpm),
    pcrs: Array.from(pcrs, (pcr: unknown) => {
      if (!isDigest(pcr)) throw bad('a PCR is not 64 lowercase hex digits');
      return fromHex(pcr);
    }),
  };
}
