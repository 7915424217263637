// What is verified: the genuine H100 evidence, and an attestation of our own vectors with its token and its endorsements.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inputOf, type Vector, verifyOptions } from '../../scripts/vectors/vector.ts';
import { type EvidenceCase, evidenceCases } from '../../test/nvidia/cases.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  createCollateral,
  type VerificationReport,
} from '../../verify/index.ts';

export const SUBJECTS = ['genuine', 'attestation'] as const;
export type SubjectName = (typeof SUBJECTS)[number];

/** One full verification. Every call reads its input anew; caches of the module, and the collateral, are kept. */
export type Subject = () => Promise<VerificationReport>;

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));

export function subject(name: SubjectName): Subject {
  return name === 'genuine' ? genuine(genuineCase()) : attestation();
}

/** Signature, chain, firmware id, seven certificates by OCSP, both RIMs. */
function genuine({ arch, chain, report, nonce, rims, ocsp, clocks, without }: EvidenceCase): Subject {
  const certificate = Buffer.from(chain).toString('base64');
  const input = JSON.stringify([{ arch, certificate, evidence: report.toString('base64'), nonce }]);
  const options = { at: clocks.report, clocks, without, collateral: createCollateral({ rims, ocsp }) };
  return () => appraiseEvidence(input, options);
}

/** The same and raw, token, and token against report. Of the twin: no token over genuine evidence has its raw. */
function attestation(): Subject {
  const vector = JSON.parse(
    readFileSync(join(VECTORS, 'cases/token_report_match.pass.driver-vbios-ueid.json'), 'utf8'),
  ) as Vector;
  const options = verifyOptions(VECTORS, vector.options);
  const input = JSON.stringify(inputOf(VECTORS, vector));
  return () => appraiseAttestation(input, options);
}

/** nvidia/h100-550.90.07 with all that belongs to it. */
export function genuineCase(): EvidenceCase {
  const [first] = evidenceCases();
  if (first === undefined) throw new TypeError('there is no genuine evidence');
  return first;
}
