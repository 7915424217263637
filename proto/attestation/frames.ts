// The frames between gateway and sidecar over a WebSocket on a Unix socket, validated on both sides. A frame is JSON text, or binary when
// it contains raw or an attestation: a JSON head, a line feed, and the payload.
import * as z from 'zod';
import { MAX_DEVICES } from './attestation.ts';
import { batchSchema, digestSchema, evidenceSchema } from './attestation-schema.ts';
import { MAX_LEAVES } from './batch.ts';
import { MAX_RAW_LENGTH } from './raw.ts';
import { MAX_HPKE_LENGTH, MAX_STATEMENT_LENGTH } from './statement.ts';

export const PROTOCOL = 'countersign/6';
/** The path for health checks. They connect as a gateway does, but every few seconds, and are not logged. */
export const HEALTH_PATH = '/health';
/** Limit for a frame. raw contains a request and a response as one JSON string, which escaping can double in size. */
export const MAX_FRAME_BYTES = 192 * 1024 * 1024;

const LF = 10;
/** Limit for the head of a binary frame. */
const MAX_HEAD_BYTES = 1_024;

/** Limits of the messages in `trouble` and in a failure, in characters. A sender cuts longer ones. */
export const MAX_UNAVAILABLE_MESSAGE = 512;
export const MAX_FAILED_MESSAGE = 1_024;

const id = z.string().min(1).max(128);

/** The seeds of the keys that gateways share: a text that only gateways read. */
const seeds = z
  .base64()
  .min(1)
  .max(8 * 1024);

/** The reason why nothing can be attested until an operator acts: confidential computing off or lost, driver gone. null: the sidecar can attest. */
const unavailableSchema = z
  .strictObject({ code: z.string().max(64), message: z.string().max(MAX_UNAVAILABLE_MESSAGE) })
  .nullable();

/** Sidecar → gateway: the first frame, and sent again when the attester or the devices have changed. */
const helloSchema = z.strictObject({
  type: z.literal('hello'),
  protocol: z.literal(PROTOCOL),
  attester: z.string().min(1).max(64),
  /** Why this attester, where the sidecar had a choice. */
  attester_reason: z.string().max(MAX_UNAVAILABLE_MESSAGE).optional(),
  devices: z.array(z.strictObject({ arch: z.string().max(32), model: z.string().max(128) })).max(MAX_DEVICES),
  /** null for real hardware. For the simulated GPU, the test root (PEM) under which its reports verify. */
  simulated: z.strictObject({ root: z.string().max(16_384) }).nullable(),
  /** Public keys (JWK set) of tokens that the sidecar signs itself; absent when NVIDIA's verifier signs them. */
  token_keys: z.strictObject({ keys: z.array(z.record(z.string(), z.unknown())).max(16) }).optional(),
  /** The processor whose evidence responses carry; null without one. */
  cpu: z.strictObject({ type: z.string().min(1).max(32) }).nullable(),
  /** How many nonces are signed at once; absent: one. */
  signers: z.number().int().min(2).max(MAX_DEVICES).optional(),
  trouble: unavailableSchema,
});

/** The responses that may share a nonce with this one: all, or those to requests with the same digest. Absent: none. */
const batchGroupSchema = z.union([z.literal('all'), digestSchema]).optional();

/** Gateway → sidecar: a request to attest raw. The sidecar hashes raw itself and never signs a nonce that it receives. */
const attestSchema = z.strictObject({
  type: z.literal('attest'),
  id,
  batch: batchGroupSchema,
  raw: z.string().min(2).max(MAX_RAW_LENGTH),
});
/** The head of the same frame in binary; raw's UTF-8 bytes follow it. The response is binary too. */
export const attestHeadSchema = attestSchema.omit({ raw: true });
/** Gateway → sidecar: cancels a request whose client has disconnected. */
const cancelSchema = z.strictObject({ type: z.literal('cancel'), id });
/** Gateway → sidecar: a request for a session that holds this challenge. */
const sessionRequestSchema = z.strictObject({ type: z.literal('session'), id, challenge: digestSchema });
/**
 * Gateway → sidecar: the key configurations for sealed prompts that the gateway can open, each an `application/ohttp-keys` document in
 * base64. Sent after the hello and at each change. New sessions name the first; a current session that names none of them is replaced.
 */
const keysSchema = z.strictObject({
  type: z.literal('keys'),
  hpke: z.array(z.base64().min(1).max(MAX_HPKE_LENGTH)).min(1).max(4),
  /** A proposal to the gateways that share their keys, which is used once the sidecar sends it back. null: the gateway shares none. */
  seeds: seeds.nullable(),
  /** The version of the shared keys that the proposal follows. Another one than the current is dropped. null: the gateway knows none. */
  after: z.int().nullable(),
});
/**
 * Sidecar → gateway: the current version of the shared keys. Sent to each gateway that has proposed some: at each change, and when its
 * proposal was dropped. The sidecar forgets them when the last of these gateways disconnects.
 */
const sharedKeysSchema = z.strictObject({ type: z.literal('keys'), n: z.int(), seeds });
/** Gateway → sidecar: a request for the status. */
const statusRequestSchema = z.strictObject({ type: z.literal('status') });

/** The duration of each phase in milliseconds. An attester that cannot separate collection and appraisal reports both as collection. */
const phasesSchema = z.strictObject({
  queue_ms: z.number().nonnegative(),
  collection_ms: z.number().nonnegative(),
  appraisal_ms: z.number().nonnegative(),
  /** The sidecar's own check of the attester's result. */
  check_ms: z.number().nonnegative(),
});
export type Phases = z.infer<typeof phasesSchema>;

/**
 * Sidecar → gateway: a session. With an id, it is the response to a request. Without one, it is the session in which responses are signed
 * from now on, sent after the hello and at each renewal.
 */
const sessionSchema = z.strictObject({
  type: z.literal('session'),
  id: id.nullable(),
  statement: z.string().max(MAX_STATEMENT_LENGTH),
  /** JSON of the member `cpu`, without its signature. */
  cpu: z.string().max(2 * 1024 * 1024),
  /** JSON of the evidence over the statement. */
  gpu: z.string().max(4 * 1024 * 1024),
});
export type SessionFrame = z.infer<typeof sessionSchema>;

/** The signature over a response, and the SHA-256 of the session's statement. */
const signedSchema = z.strictObject({ session: digestSchema, signature: z.string().min(86).max(90) });
export type Signed = z.infer<typeof signedSchema>;

/** Sidecar → gateway: an attestation. */
const attestedSchema = z.strictObject({
  type: z.literal('attested'),
  id,
  nonce: digestSchema,
  token: z.string().min(2),
  evidence: z.array(evidenceSchema).min(1).max(MAX_DEVICES),
  /** Present where the nonce commits to a batch. */
  batch: batchSchema.optional(),
  /** Absent where no processor signs. */
  cpu: signedSchema.optional(),
  phases: phasesSchema.optional(),
});

/** The head of the same frame in binary; the JSON text of {@link attestedMembersSchema} follows it. */
export const attestedHeadSchema = attestedSchema.omit({ token: true, evidence: true, batch: true });

/**
 * Sidecar → gateway, binary only: the attestations of one batch that this gateway waits for. After the head come the JSON text of
 * {@link leavesSchema}, a line feed, and that of {@link attestedMembersSchema}, which all of them share.
 */
export const attestedBatchHeadSchema = z.strictObject({
  type: z.literal('attested_batch'),
  nonce: digestSchema,
  tree_size: z.int().min(1).max(MAX_LEAVES),
  phases: phasesSchema.omit({ queue_ms: true }),
});
export const leavesSchema = z
  .array(
    batchSchema
      .omit({ tree_size: true })
      .extend({ id, cpu: signedSchema.optional(), queue_ms: z.number().nonnegative() }),
  )
  .min(1)
  .max(MAX_LEAVES);
export type BatchLeaf = z.infer<typeof leavesSchema>[number];
export type AttestedBatchHead = z.infer<typeof attestedBatchHeadSchema>;
/**
 * The token and the evidence of an attestation. They become part of the response as text, so only their shape is validated; the base64 is
 * left to the verifier.
 */
export const attestedMembersSchema = z.strictObject({
  token: z.string().min(2),
  evidence: z
    .array(z.looseObject({ arch: z.string().min(1), report: z.string().min(4), certificate_chain: z.string().min(4) }))
    .min(1)
    .max(MAX_DEVICES),
});

const decoder = new TextDecoder();

/** Splits a binary frame, or its payload, at its first line feed. @throws {RangeError} when there is none in the first `max_head_bytes`. */
export function splitBinaryFrame(
  frame: Uint8Array,
  max_head_bytes = MAX_HEAD_BYTES,
): { head: string; payload: Uint8Array } {
  const at = frame.subarray(0, max_head_bytes).indexOf(LF);
  if (at < 0) throw new RangeError('a binary frame has no head');
  return { head: decoder.decode(frame.subarray(0, at)), payload: frame.subarray(at + 1) };
}

/** Reasons why a sidecar did not attest. `retry_after_ms` is present when a retry can help. */
export const FAILURE_CODES = [
  'invalid_frame',
  'invalid_raw',
  'duplicate_id',
  'queue_full',
  'deadline_exceeded',
  'collection_failed',
  'appraisal_failed',
  'cc_lost',
  'shutting_down',
  'no_session',
  'session_changed',
] as const;
const failedSchema = z.strictObject({
  type: z.literal('failed'),
  /** null when the frame was too malformed to name one. */
  id: id.nullable(),
  code: z.enum(FAILURE_CODES),
  message: z.string().max(MAX_FAILED_MESSAGE),
  retry_after_ms: z.number().int().nonnegative().optional(),
});
/** Sidecar → gateway: the response to a status request, also sent when the sidecar becomes able or unable to attest. */
const statusSchema = z.strictObject({
  type: z.literal('status'),
  attester: z.string(),
  queued: z.number().int().nonnegative(),
  collecting: z.number().int().nonnegative(),
  attested_total: z.number().int().nonnegative(),
  failed_total: z.number().int().nonnegative(),
  trouble: unavailableSchema,
});

export const toSidecarSchema = z.discriminatedUnion('type', [
  attestSchema,
  cancelSchema,
  sessionRequestSchema,
  keysSchema,
  statusRequestSchema,
]);
export const fromSidecarSchema = z.discriminatedUnion('type', [
  helloSchema,
  attestedSchema,
  sessionSchema,
  sharedKeysSchema,
  failedSchema,
  statusSchema,
]);

export type KeysFrame = z.infer<typeof keysSchema>;
export type SharedKeys = z.infer<typeof sharedKeysSchema>;
export type Hello = z.infer<typeof helloSchema>;
export type Attested = z.infer<typeof attestedSchema>;
export type Failed = z.infer<typeof failedSchema>;
/** The responses that may share a nonce: all, or those with the same digest. */
export type BatchGroup = NonNullable<z.infer<typeof batchGroupSchema>>;
export type ToSidecar = z.infer<typeof toSidecarSchema>;
export type FromSidecar = z.infer<typeof fromSidecarSchema>;
