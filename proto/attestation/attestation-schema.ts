// The schemas of an attestation's parts, for code that parses them. The verifier has a stricter reader of its own.
import * as z from 'zod';
import type { Evidence } from './attestation.ts';
import { MAX_LEAVES, MAX_PATH } from './batch.ts';

/** A base64 text (RFC 4648 §4, padded). The pattern rejects obvious errors; the decoder decides. */
export const base64Schema = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');

/** A SHA-256 in hex. */
export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex digits');

export const evidenceSchema: z.ZodType<Evidence> = z.looseObject({
  arch: z.string().min(1).max(32),
  report: base64Schema,
  certificate_chain: base64Schema,
});

export const batchSchema = z.strictObject({
  salt: digestSchema,
  leaf_index: z
    .int()
    .min(0)
    .max(MAX_LEAVES - 1),
  tree_size: z.int().min(1).max(MAX_LEAVES),
  path: z.array(digestSchema).max(MAX_PATH),
});
