// The schemas that parse an attestation and its evidence and describe them in OpenAPI. The verifier has a stricter reader of its own.
import * as z from 'zod';
import { type Attestation, type Evidence, MAX_DEVICES } from './attestation.ts';
import { MAX_LEAVES, MAX_PATH } from './batch.ts';

/** A base64 text (RFC 4648 §4, padded). The pattern rejects obvious errors; the decoder decides. */
export const base64Schema = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');

/** A SHA-256 in hex. */
export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex digits');

export const evidenceSchema: z.ZodType<Evidence> = z
  .looseObject({
    arch: z
      .string()
      .min(1)
      .max(32)
      .describe('The device’s architecture: `HOPPER` or `BLACKWELL` of a GPU, `LS10` of an NVSwitch'),
    report: base64Schema.describe(
      'Base64 of the SPDM GET_MEASUREMENTS request and the signed MEASUREMENTS response after it',
    ),
    certificate_chain: base64Schema.describe('Base64 of the device’s certificate chain in PEM, leaf first'),
  })
  .describe('One device’s signed measurement report and the certificates of the key that signed it');

export const batchSchema = z.strictObject({
  salt: digestSchema.describe('32 random bytes of this answer only, 64 lowercase hex digits'),
  leaf_index: z
    .int()
    .min(0)
    .max(MAX_LEAVES - 1)
    .describe('The answer’s place among the leaves, from 0'),
  tree_size: z.int().min(1).max(MAX_LEAVES).describe('How many answers the nonce commits to'),
  path: z
    .array(digestSchema)
    .max(MAX_PATH)
    .describe(
      'Hashes, 64 lowercase hex digits each, from the leaf’s sibling up to the root: the inclusion proof of RFC 9162 §2.1.3.1',
    ),
});

/** Members of the processor’s evidence; `type` decides which of them are present. */
const processorMembers = {
  type: z
    .string()
    .optional()
    .describe('The kind of processor evidence: `SEV_SNP`, `TDX`, `AZURE_SEV_SNP` or `AZURE_TDX`'),
  report: base64Schema
    .optional()
    .describe('Base64. `SEV_SNP`: the attestation report. `TDX`: the quote. On Azure: the HCL report'),
  certificates: base64Schema.optional().describe('AMD: base64 of PEM, the leaf (VCEK or VLEK) and its authority'),
  quote: base64Schema.optional().describe('Azure with TDX: base64 of the quote'),
  tpm: z.looseObject({}).optional().describe('Azure: what the virtual TPM signed (`message`, `signature`, `pcrs`)'),
  collateral: z
    .looseObject({})
    .optional()
    .describe('The maker’s revocation lists and TCB information, as they were when the session was made'),
  event_log: base64Schema.optional().describe('TDX: base64 of the log that the quote’s registers were extended by'),
  statement: z.string().optional().describe('The session’s statement, the JSON text that devices and processor signed'),
  gpu_sha256: digestSchema.optional().describe('SHA-256 over the devices’ evidence over the statement'),
  launch: z.string().optional().describe('The launch file’s text, where there is one: its SHA-256 is in the statement'),
};

const cpuSchema = z.looseObject({
  ...processorMembers,
  signature: base64Schema
    .optional()
    .describe('Base64 of the session key’s ECDSA P-256 signature over this answer, 64 bytes'),
  statement_sha256: digestSchema
    .optional()
    .describe(
      'With `x-tee-session`, in place of all members but `signature`: the name of the session that the client holds',
    ),
});

export const attestationSchema: z.ZodType<Attestation> = z.looseObject({
  raw: z
    .string()
    .min(2)
    .describe(
      'The exact JSON text of request, response and time that is attested; of a stream also the hash of its events',
    ),
  nonce: digestSchema.describe(
    'What the device signed, 64 lowercase hex digits: SHA-256 of `raw`, or with `batch` a hash that it leads to',
  ),
  token: z
    .string()
    .min(2)
    .describe(
      'What the verifier beside the GPU returned, unchanged: an EAT in JSON. A proof by itself only where NVIDIA’s service signed it',
    ),
  evidence: z
    .array(evidenceSchema)
    .min(1)
    .max(MAX_DEVICES)
    .optional()
    .describe('What each device signed. Everything that `token` says can be checked with it'),
  batch: batchSchema
    .optional()
    .describe('The answer’s place among those that share the nonce; absent where the nonce is only this answer’s'),
  cpu: cpuSchema
    .optional()
    .describe('The processor’s session that the answer was signed in; absent where no processor signs'),
});

/** A session by itself, as GET /v1/attestation/session returns it. */
export const sessionSchema = z.looseObject({
  ...processorMembers,
  type: z.string().describe('The kind of processor evidence: `SEV_SNP`, `TDX`, `AZURE_SEV_SNP` or `AZURE_TDX`'),
  statement: z
    .string()
    .describe(
      'The JSON text that devices and processor signed: the session’s key, its devices, its times in Unix seconds',
    ),
  report: base64Schema.describe(
    'Base64. `SEV_SNP`: the attestation report. `TDX`: the quote. On Azure: the HCL report',
  ),
  gpu: z.array(evidenceSchema).describe('Each device’s evidence over the statement'),
});
