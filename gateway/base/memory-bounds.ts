// Memory bounds that no setting names.
import { MANY_BYTES } from './bytes.ts';

const MiB = 1024 * 1024;

/**
 * The most copies of a text in memory while it is attested: as received, in raw, and quoted in the attestation's JSON, where each quotation
 * mark takes two bytes.
 */
export const TEE_COPIES = 4;

/** The heap of the offload thread. The most JSON names and values that are accepted take less; the JSON parser itself checks no limit. */
export const OFFLOAD_HEAP_MB = 192;
export const OFFLOAD_YOUNG_HEAP_MB = 16;
/** The heap of the thread that checks the sidecar's frames: 8 MiB at most each, most of which is garbage after the check. */
export const CHECKING_HEAP_MB = 256;
export const CHECKING_YOUNG_HEAP_MB = 4;
/** The limit of unserved input: bytes that clients have sent and the gateway does not serve yet. */
export const MAX_UNSERVED_BYTES = 36 * MiB;
/** The limit of sealed requests whose head is not read and opened yet. */
export const MAX_UNOPENED_BYTES = 24 * MiB;
/** What one of them may hold: a chunk that is not whole, and the fields of a head of 32 KiB, each a string of its own. */
const UNOPENED_BYTES = 96 * 1024;
export const MAX_UNOPENED = MAX_UNOPENED_BYTES / UNOPENED_BYTES;
/** Of one address. All clients behind a proxy have its address unless CLIENT_ADDRESS_HEADER is set. */
export const MAX_UNOPENED_OF_ADDRESS = MAX_UNOPENED / 4;

/** The sizes that one request may have. */
interface RequestSizes {
  readonly max_body_bytes: number;
  readonly max_answer_bytes: number;
}

/** The most bytes that one request may hold: a request with tee. */
export const largestRequest = ({ max_body_bytes, max_answer_bytes }: RequestSizes) =>
  TEE_COPIES * (max_body_bytes + max_answer_bytes);

/** Verifications overlap because some wait for NVIDIA's services. This is the limit for all addresses. */
export const QUICK_VERIFICATIONS = 8;
const QUICK_HEAP_MB = 96;
/** Slow verifications run one at a time. Meanwhile this many bodies of the largest size may be read or queued. */
const SLOW_BODIES = 4;

export interface VerifierSizes {
  readonly max_verify_bytes: number;
  readonly max_verify_concurrent: number;
}

/** The verifier's upper bounds: memory for bodies, and for the heaps of its two threads. A thread's own code and stacks take near 16 MiB. */
export function verifierBounds({ max_verify_bytes, max_verify_concurrent }: VerifierSizes) {
  return {
    quick_bytes: (max_verify_concurrent + QUICK_VERIFICATIONS) * MANY_BYTES,
    slow_bytes: SLOW_BODIES * max_verify_bytes,
    quick_heap_mb: QUICK_HEAP_MB,
    // Enough for the worst case of MAX_JSON_VALUES and copies of the text.
    slow_heap_mb: 192 + Math.ceil((6 * max_verify_bytes) / MiB),
  };
}
