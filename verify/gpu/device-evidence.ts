// Parses one device's evidence: a report and the certificates beside it.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import { EncodingError, fromBase64 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { LruMap, once } from '../common/lru.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { DerError } from '../x509/der.ts';
import { parseReport, type Report } from './spdm/report.ts';

/** One device's evidence, from our own form or from NVIDIA's. */
export interface DeviceInput {
  readonly arch: string;
  /** base64 */
  readonly report: string;
  /** base64 of PEM */
  readonly chain: string;
  /** The nonce that is stated beside it, lowercase; null where none is. */
  readonly nonce: string | null;
}

/** Our own form, which states no nonce. A bundle's evidence is the same object for each attestation that names the bundle. */
export const inputOf = once(
  ({ arch, report, certificate_chain: chain }: Evidence): DeviceInput => ({ arch, report, chain, nonce: null }),
);

/** Parsed evidence. Nothing of it is verified yet. */
export interface ParsedEvidence {
  readonly report: Report;
  readonly chain: readonly [Certificate, ...Certificate[]];
}

/** @throws {CheckFailure} evidence_malformed, report_malformed */
export const parseEvidence = once((input: DeviceInput): ParsedEvidence => {
  const report = readReport(input.report);
  const [leaf, ...above] = parseChain(input.chain);
  if (leaf === undefined) throw new CheckFailure('evidence_malformed', 'the certificate chain is empty');
  return { report, chain: [leaf, ...above] };
});

/** @param report base64. @throws {CheckFailure} evidence_malformed, report_malformed */
const readReport = (report: string): Report => parseReport(base64(report, 'report'));

/** @param chain base64 of PEM. @throws {CheckFailure} evidence_malformed */
export const parseChain = (chain: string): readonly Certificate[] =>
  readPem(new TextDecoder().decode(base64(chain, 'certificate chain')), 'the certificate chain');

function base64(text: string, what: string): Uint8Array {
  try {
    return fromBase64(text);
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('evidence_malformed', `the ${what} is not base64`, { cause });
  }
}

/** A device's chain is the same in every one of its reports. */
const parsed = new LruMap<string, readonly Certificate[]>(64);

/** @param what begins the message where the text is no PEM. @throws {CheckFailure} evidence_malformed */
export function readPem(text: string, what: string): readonly Certificate[] {
  const known = parsed.get(text);
  if (known !== undefined) return known;
  try {
    const certificates = parsePem(text);
    parsed.set(text, certificates);
    return certificates;
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('evidence_malformed', `${what}: ${cause.message}`, { cause });
  }
}
