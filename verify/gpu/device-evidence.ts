// Parses one device's evidence: a report and the certificates beside it.
import { EncodingError, fromBase64 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { LruMap } from '../common/lru.ts';
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

/** Parsed evidence. Nothing of it is verified yet. */
export interface ParsedEvidence {
  readonly report: Report;
  readonly chain: readonly [Certificate, ...Certificate[]];
}

/** @throws {CheckFailure} evidence_malformed, report_malformed */
export function parseEvidence(input: DeviceInput): ParsedEvidence {
  const report = parseReport(base64(input.report, 'report'));
  const [leaf, ...above] = parseChain(input.chain);
  if (leaf === undefined) throw new CheckFailure('evidence_malformed', 'the certificate chain is empty');
  return { report, chain: [leaf, ...above] };
}

/** @param chain base64 of PEM. @throws {CheckFailure} evidence_malformed */
export const parseChain = (chain: string): readonly Certificate[] => pem(base64(chain, 'certificate chain'));

function base64(text: string, what: string): Uint8Array {
  try {
    return fromBase64(text);
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
    throw new CheckFailure('evidence_malformed', `the ${what} is not base64`, { cause });
  }
}

/** A device's chain is the same in every one of its reports. */
const chains = new LruMap<string, readonly Certificate[]>(64);

function pem(bytes: Uint8Array): readonly Certificate[] {
  const text = new TextDecoder().decode(bytes);
  const known = chains.get(text);
  if (known !== undefined) return known;
  try {
    const certificates = parsePem(text);
    chains.set(text, certificates);
    return certificates;
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('evidence_malformed', `the certificate chain: ${cause.message}`, { cause });
  }
}
