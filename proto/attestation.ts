// The attestation: what a client stores and anyone can verify.
import * as z from 'zod';

/** A base64 text (RFC 4648 §4, padded). The pattern rejects obvious errors; the decoder decides. */
const base64 = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');

/** One device's evidence: an SPDM measurement report and the certificate chain of the key that signed it. */
export const evidenceSchema = z.looseObject({
  /** The architecture as NVIDIA's own tools name it in evidence files: `HOPPER`, `BLACKWELL`; `LS10` for a switch. */
  arch: z.string().min(1).max(32),
  /** base64 of the SPDM GET_MEASUREMENTS request followed by the signed MEASUREMENTS response. */
  report: base64,
  /** base64 of the PEM chain, leaf first. */
  certificate_chain: base64,
});
export type Evidence = z.infer<typeof evidenceSchema>;

/** The member `attestation` of a response: the three members of the specification, and the evidence. */
export const attestationSchema = z.looseObject({
  raw: z.string().min(2),
  nonce: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex digits'),
  token: z.string().min(2),
  evidence: z.array(evidenceSchema).min(1).max(64).optional(),
  /** Where the nonce commits to many answers: how this one is found among them (`Batch` in batch.ts). verify/batch.ts reads it. */
  batch: z.record(z.string(), z.unknown()).optional(),
  /** Evidence of the processor whose session the answer was signed in. verify/cpu reads it. */
  cpu: z.record(z.string(), z.unknown()).optional(),
});
export type Attestation = z.infer<typeof attestationSchema>;
