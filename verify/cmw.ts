// Exports evidence as a CMW collection (RFC 9999). The evidence is read but not verified. Only the command line uses it. docs/verify.md.
import type { Evidence } from '../proto/attestation/attestation.ts';
import { attestationOf } from './binding/exchange.ts';
import { readInput, readSessionEvidence } from './binding/input.ts';
import { EncodingError, fromBase64, toBase64Url, utf8 } from './common/bytes.ts';
import { CheckFailure, type Limits } from './common/checks.ts';
import { type CpuForm, readAnswerCpu, readSession } from './cpu/binding.ts';
import { parseCpu } from './cpu/cpu-member.ts';
import type { CpuEvidence } from './cpu/verify-cpu.ts';

/** RFC 9999 §3.1: media type, base64url, and a sum of indicator bits. */
type CmwRecord = readonly [type: string, value: string, indicator: number];
/** RFC 9999 §3.3, in JSON. */
type CmwCollection = { readonly __cmwc_t: string } & { readonly [label: string]: CmwRecord | string };

const ENDORSEMENT = 2;
const EVIDENCE = 4;

/** The types of a response's collection and of a session's. docs/verify.md lists the labels. */
const CMW_TYPES = {
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
 * @throws {CheckFailure} not_json, not_an_attestation, too_large, bundle_unavailable (it is compact), stream_malformed, evidence_missing, evidence_malformed, cpu_missing,
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
  const { attestation, bundle } = readInput(text, limits);
  if (bundle !== null)
    throw new CheckFailure('bundle_unavailable', 'it is compact: countersign expand FILE makes it whole');
  const { nonce, cpu, evidence = [] } = attestation;
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
