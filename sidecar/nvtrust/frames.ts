// The lines that a worker writes: one when it is ready, one answer; read strictly, for they come from other people's code.
import * as z from 'zod';
import { evidenceSchema } from '../../proto/attestation.ts';

/** No line is longer: room for 64 GPUs' evidence. */
export const MAX_LINE_BYTES = 8 * 1024 * 1024;

const device = z.strictObject({ arch: z.string().min(1).max(32), model: z.string().min(1).max(128) });

const failedLine = z.strictObject({
  type: z.literal('failed'),
  reason: z.string().min(1).max(64),
  message: z.string().max(1024),
});
export const readyLine = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('ready'), devices: z.array(device).min(1).max(64) }),
  failedLine,
]);
export const answerLine = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('attested'),
    nonce: z.string().regex(/^[0-9a-f]{64}$/),
    token: z.string().min(2).max(MAX_LINE_BYTES),
    evidence: z.array(evidenceSchema).min(1).max(64),
  }),
  failedLine,
]);
export type Answer = Extract<z.infer<typeof answerLine>, { type: 'attested' }>;
