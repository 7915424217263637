// Exports evidence in other forms: a CMW collection (RFC 9999), and the claims of the CVM profile (tag:confidential.ai,2026:cvm#1, draft of
// 2026-10-01). The evidence is read but not verified. A separate entry point, as ear.ts is. docs/verify.md.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { sessionMessage } from '../../proto/attestation/statement.ts';
import { attestationOf } from '../binding/exchange.ts';
import { readInput, readSessionEvidence } from '../binding/input.ts';
import { digest, EncodingError, fromBase64, fromHex, toBase64Url, utf8 } from '../common/bytes.ts';
import { CheckFailure, type Limits } from '../common/checks.ts';
import { type CpuForm, readAnswerCpu, readSession } from '../cpu/binding.ts';
import { parseCpu } from '../cpu/cpu-member.ts';
import type { TdxCollateral } from '../cpu/cpu-options.ts';
import type { CpuEvidence } from '../cpu/verify-cpu.ts';

/** The error of a refused export, with the codes of the checks. */
export { CheckFailure } from '../common/checks.ts';

/** RFC 9999 §3.1: media type, base64url, and a sum of indicator bits. */
type CmwRecord = readonly [type: string, value: string, indicator: number];
/** RFC 9999 §3.3, in JSON. */
export type CmwCollection = { readonly __cmwc_t: string } & { readonly [label: string]: CmwRecord | string };

const ENDORSEMENT = 2;
const EVIDENCE = 4;

/** The types of a response's collection and of a session's. docs/verify.md lists the labels. */
export const CMW_TYPES = {
  answer: 'urn:uuid:56f534b3-cf3e-4a1d-8902-1eeb8f75859e',
  session: 'urn:uuid:e136eff3-6308-4265-b7f2-bca288e421ec',
} as const;

const JSON_TYPE = 'application/json';
/** RFC 8555 §9.1. */
const PEM_CHAIN = 'application/pem-certificate-chain';
const BYTES = 'application/octet-stream';
const SNP_REPORT = 'application/vnd.confidential-ai.sev-snp-report';
const TDX_QUOTE = 'application/vnd.confidential-ai.tdx-quote';
/** NVIDIA's own name, in nvattest 2.0, for the SPDM request and the signed response behind it. */
const SPDM_TRANSCRIPT = 'application/vnd.nvidia.spdm-measurement-transcript';

const record = (type: string, value: Uint8Array, indicator: number): CmwRecord => [type, toBase64Url(value), indicator];
const jsonRecord = (value: unknown, indicator: number) => record(JSON_TYPE, utf8(JSON.stringify(value)), indicator);

/**
 * Exports the evidence of an attestation or of a session, with its endorsements. Prompts, completions and the token are left out; the nonce
 * represents the response.
 * @param input as `verifyAttestation` takes it, or a session's JSON.
 * @throws {CheckFailure} not_json, not_an_attestation, too_large, stream_malformed, evidence_missing, evidence_malformed, cpu_missing,
 * cpu_malformed, cpu_unsupported
 */
export async function exportCmw(input: unknown, limits?: Limits): Promise<CmwCollection> {
  const { kind, nonce, cpu, gpu } = await read(input, limits);
  if (gpu.length === 0 && cpu === null)
    throw new CheckFailure('evidence_missing', 'there is a token alone, and no evidence');
  const entries = [
    ...(cpu === null ? [] : cpuRecords(cpu, nonce)),
    ...gpu.flatMap(({ report, certificate_chain: chain }, i): [string, CmwRecord][] => [
      [`gpu${i}`, record(SPDM_TRANSCRIPT, decoded(report), EVIDENCE)],
      [`gpu${i}.certificates`, record(PEM_CHAIN, decoded(chain), ENDORSEMENT)],
    ]),
  ];
  return { __cmwc_t: CMW_TYPES[kind], ...Object.fromEntries(entries) };
}

function cpuRecords({ member, form }: Cpu, nonce: string | null): [string, CmwRecord][] {
  const { type, launch, gpu_sha256, signature, statement, certificates, collateral, tpm } = member;
  const { report, quote, eventLog } = form.evidence.member;
  const optional = (label: string, value: CmwRecord | null): [string, CmwRecord][] =>
    value === null ? [] : [[label, value]];
  return [
    ['statement', record(JSON_TYPE, utf8(String(statement)), EVIDENCE)],
    ...optional('answer', nonce === null ? null : jsonRecord({ nonce, gpu_sha256, signature }, EVIDENCE)),
    ...optional('launch', typeof launch === 'string' ? record(JSON_TYPE, utf8(launch), EVIDENCE) : null),
    ['cpu0', record(REPORT_TYPES[String(type)] ?? BYTES, report, EVIDENCE)],
    ...optional('cpu0.quote', quote === null ? null : record(TDX_QUOTE, quote, EVIDENCE)),
    ...optional('cpu0.tpm', tpm === undefined ? null : jsonRecord(tpm, EVIDENCE)),
    ...optional(
      'cpu0.event_log',
      eventLog === null ? null : record(isDstack(eventLog) ? JSON_TYPE : BYTES, eventLog, EVIDENCE),
    ),
    ...optional(
      'cpu0.certificates',
      certificates === undefined ? null : record(PEM_CHAIN, decoded(String(certificates)), ENDORSEMENT),
    ),
    ...optional('cpu0.collateral', collateral === undefined ? null : jsonRecord(collateral, ENDORSEMENT)),
  ];
}

/** Azure's HCL report has no type of its own. */
const REPORT_TYPES: Readonly<Record<string, string>> = { SEV_SNP: SNP_REPORT, TDX: TDX_QUOTE };
const isDstack = (log: Uint8Array) => log[0] === 0x5b;

// Reads the input.

interface Cpu {
  /** The member `cpu` as received. */
  readonly member: Readonly<Record<string, unknown>>;
  readonly form: CpuForm & { readonly evidence: CpuEvidence };
}

interface Exported {
  readonly kind: 'answer' | 'session';
  /** The attestation's nonce, in hex; null for a session by itself. */
  readonly nonce: string | null;
  readonly cpu: Cpu | null;
  readonly gpu: readonly Evidence[];
}

async function read(input: unknown, limits?: Limits): Promise<Exported> {
  const session = sessionIn(input);
  if (session !== null) {
    const gpu = readSessionEvidence(session.gpu);
    const { value } = await readSession(session, gpu);
    return { kind: 'session', nonce: null, cpu: whole(session, value), gpu };
  }
  const text = input instanceof Uint8Array ? attestationOf(input, limits) : input;
  const { nonce, cpu, evidence = [] } = readInput(text, limits).attestation;
  if (cpu === undefined) return { kind: 'answer', nonce, cpu: null, gpu: evidence };
  return { kind: 'answer', nonce, cpu: whole(cpu, (await readAnswerCpu(cpu, null)).value), gpu: evidence };
}

/** readAnswerCpu has refused the short form already. */
function whole(member: Readonly<Record<string, unknown>>, { session, evidence }: CpuForm): Cpu {
  if (evidence === null) throw new CheckFailure('cpu_missing', "the session's evidence is not in it");
  return { member, form: { session, evidence } };
}

/** A longer text is no session. */
const MAX_SESSION_CHARACTERS = 8 * 1024 * 1024;

/** null: the input is read as an attestation. */
function sessionIn(input: unknown): Readonly<Record<string, unknown>> | null {
  const isText = typeof input === 'string';
  if (isText && (input.length > MAX_SESSION_CHARACTERS || !input.includes('"statement"'))) return null;
  let value: unknown = input;
  try {
    if (isText) value = JSON.parse(input);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return null;
  if (!Object.hasOwn(value, 'statement') || !Object.hasOwn(value, 'gpu')) return null;
  return (isText ? parseCpu(input) : value) as Readonly<Record<string, unknown>>;
}

function decoded(base64: string): Uint8Array {
  try {
    return fromBase64(base64);
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('evidence_malformed', 'evidence is not base64', { cause });
  }
}

// The CVM profile, version 1. Section numbers are of its text.

const CVM_PROFILE = 'tag:confidential.ai,2026:cvm#1';
const CVM_ENDORSEMENTS = 'tag:confidential.ai,2026:cvm-endorsements#1';
const PCS_SIGNED = 'application/vnd.confidential-ai.pcs-signed+json';
const CERTIFICATE = 'application/pkix-cert';
const CRL = 'application/pkix-crl';
/** §4.7: the limit for every decoded byte string. All of them stay under the limit of 10 MiB for the whole. */
const MAX_FIELD_BYTES = 1024 * 1024;

type Claims = Readonly<Record<string, unknown>>;

/** §4.1. */
export interface CvmClaims {
  readonly eat_profile: typeof CVM_PROFILE;
  /** The 32 bytes that the processor was given to sign, base64url. */
  readonly eat_nonce: string;
  readonly cvm_version: 1;
  readonly submods: { readonly cpu: Claims; readonly vtpm?: Claims };
}

/**
 * Exports the processor's half of an attestation or of a session, for verifiers of the CVM profile. The nonce is the digest that binds
 * statement and GPU evidence (docs/attestation.md §6). GPUs are left out, because the profile has another rule for their nonce.
 * @param input as {@link exportCmw} takes it.
 * @throws {CheckFailure} as there; cpu_missing also where there is no processor's evidence, too_large beyond the profile's limits.
 */
export async function exportCvm1(input: unknown, limits?: Limits): Promise<CvmClaims> {
  const { cpu } = await read(input, limits);
  if (cpu === null) throw new CheckFailure('cpu_missing', "there is no processor's evidence");
  const { session, evidence } = cpu.form;
  if (session.gpu === null) throw new CheckFailure('cpu_missing', "the session's evidence is not in it");
  const nonce = await digest('SHA-256', sessionMessage(session.digest, session.gpu));
  return {
    eat_profile: CVM_PROFILE,
    eat_nonce: toBase64Url(nonce),
    cvm_version: 1,
    submods: { cpu: cpuSubmod(evidence), ...vtpmSubmod(evidence) },
  };
}

/** §4.7. @throws {CheckFailure} too_large */
function field(bytes: Uint8Array): string {
  if (bytes.length > MAX_FIELD_BYTES)
    throw new CheckFailure('too_large', `a part has more than ${MAX_FIELD_BYTES} bytes, which is the profile's limit`);
  return toBase64Url(bytes);
}

const cvmRecord = (type: string, bytes: Uint8Array, indicator: number): CmwRecord => [type, field(bytes), indicator];

/** §4.3. */
function cpuSubmod({ member, snp, tdx, vtpm }: CpuEvidence): Claims {
  const isAmd = snp !== null;
  const { collateral, certificates, crl, eventLog } = member;
  const [leaf] = certificates;
  const endorsements = {
    ...(leaf === undefined ? {} : { 'snp.vek': cvmRecord(CERTIFICATE, leaf.der, ENDORSEMENT) }),
    ...(crl === null ? {} : { 'snp.crl': cvmRecord(CRL, crl, ENDORSEMENT) }),
    ...(collateral === null ? {} : tdxEndorsements(collateral)),
  };
  return {
    cvm_platform: {
      vendor: isAmd ? 'amd' : 'intel',
      tee: isAmd ? 'sev-snp' : 'tdx',
      // Evidence from Google's cloud looks like that of bare metal, and the profile treats both alike.
      hosting: vtpm === null ? 'bare' : 'azure',
    },
    cvm_report: isAmd
      ? cvmRecord(SNP_REPORT, vtpm?.hcl.hardware ?? member.report, EVIDENCE)
      : cvmRecord(TDX_QUOTE, member.quote ?? member.report, EVIDENCE),
    cvm_binding: { pattern: 'challenge', mode: vtpm === null ? 'report-data' : 'vtpm-extradata' },
    ...(Object.keys(endorsements).length === 0
      ? {}
      : { cvm_endorsements: { __cmwc_t: CVM_ENDORSEMENTS, ...endorsements } }),
    ...(tdx === null ? {} : { cvm_registers: tdx.body.rtmrs.map((value, i) => register('tdx-rtmr', i, value)) }),
    ...(eventLog === null
      ? {}
      : { cvm_log: { format: isDstack(eventLog) ? 'dstack-json' : 'tdx-ccel', data: field(eventLog) } }),
  };
}

const SOURCES = {
  'tdx-rtmr': { alg: 'sha384', backing: 'hardware' },
  'vtpm-pcr': { alg: 'sha256', backing: 'privileged-service' },
} as const;

/** §6.1. */
const register = (source: keyof typeof SOURCES, index: number, value: Uint8Array) => ({
  index,
  alg: SOURCES[source].alg,
  value: toBase64Url(value),
  source,
  backing: SOURCES[source].backing,
});

/** §10.1: Intel's documents as its service returns them, assembled from the signed parts. */
function tdxEndorsements(collateral: TdxCollateral): Readonly<Record<string, CmwRecord>> {
  const signed = (member: string, text: string, signature: string, chain: string) => {
    const body = field(utf8(`{"${member}":${text},"signature":"${signature}"}`));
    return cvmRecord(PCS_SIGNED, utf8(JSON.stringify({ body, issuer_chain: field(utf8(chain)) })), ENDORSEMENT);
  };
  const list = (hex: string) => cvmRecord(CRL, derOf(hex), ENDORSEMENT);
  const { tcb_info, tcb_info_signature, tcb_info_issuer_chain } = collateral;
  const { qe_identity, qe_identity_signature, qe_identity_issuer_chain } = collateral;
  return {
    'tdx.tcb_info': signed('tcbInfo', tcb_info, tcb_info_signature, tcb_info_issuer_chain),
    'tdx.qe_identity': signed('enclaveIdentity', qe_identity, qe_identity_signature, qe_identity_issuer_chain),
    'tdx.pck_crl': list(collateral.pck_crl),
    'tdx.root_crl': list(collateral.root_ca_crl),
  };
}

/** @throws {CheckFailure} collateral_invalid */
function derOf(hex: string): Uint8Array {
  try {
    return fromHex(hex);
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('collateral_invalid', 'a revocation list is not hexadecimal', { cause });
  }
}

/** §4.4. */
function vtpmSubmod({ member, vtpm }: CpuEvidence): { readonly vtpm?: Claims } {
  if (vtpm === null) return {};
  const { message, signature, pcrs } = vtpm.quote;
  return {
    vtpm: {
      cvm_tpm_quote: {
        message: field(message),
        signature: field(signature),
        pcrs: pcrs.map(toBase64Url),
        bank: SOURCES['vtpm-pcr'].alg,
      },
      cvm_tpm_ak: { method: 'hcl-report', data: field(member.report) },
      cvm_registers: pcrs.map((value, i) => register('vtpm-pcr', i, value)),
    },
  };
}
