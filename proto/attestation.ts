// The attestation: what a client keeps and anyone can check.
import * as z from 'zod';

/** A base64 text (RFC 4648 §4, padded). The decoder decides; this keeps the obvious out. */
const base64 = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');

/** One device's evidence: an SPDM measurement report and the certificate chain of the key that signed it. */
export const evidenceSchema = z.looseObject({
  /** As NVIDIA's own tools name it in evidence files: `HOPPER`, `BLACKWELL`; `LS10` for a switch. */
  arch: z.string().min(1).max(32),
  /** base64 of the SPDM GET_MEASUREMENTS request followed by the signed MEASUREMENTS response. */
  report: base64,
  /** base64 of the PEM chain, leaf first. */
  certificate_chain: base64,
});
export type Evidence = z.infer<typeof evidenceSchema>;

/** `attestation` as it stands in a response: three members of the specification, and evidence beside them. */
export const attestationSchema = z.looseObject({
  raw: z.string().min(2),
  nonce: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex digits'),
  token: z.string().min(2),
  evidence: z.array(evidenceSchema).min(1).max(64).optional(),
});
export type Attestation = z.infer<typeof attestationSchema>;
