// What parses an attestation and its evidence, and describes them in OpenAPI. The verifier has a stricter reader of its own.
import * as z from 'zod';
import type { Attestation, Evidence } from './attestation.ts';

/** A base64 text (RFC 4648 §4, padded). The pattern rejects obvious errors; the decoder decides. */
const base64 = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');

export const evidenceSchema: z.ZodType<Evidence> = z.looseObject({
  arch: z.string().min(1).max(32),
  report: base64,
  certificate_chain: base64,
});

export const attestationSchema: z.ZodType<Attestation> = z.looseObject({
  raw: z.string().min(2),
  nonce: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex digits'),
  token: z.string().min(2),
  evidence: z.array(evidenceSchema).min(1).max(64).optional(),
  batch: z.record(z.string(), z.unknown()).optional(),
  cpu: z.record(z.string(), z.unknown()).optional(),
});
