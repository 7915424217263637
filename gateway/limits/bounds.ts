// How much memory each part of a process may take that no setting names, and how settings are divided among processes.

/**
 * What is attested lies here up to so many times while it is: as it came, in raw, and quoted in the attestation's JSON, where each
 * quotation mark takes two bytes.
 */
export const TEE_COPIES = 4;

/** Of the thread that reads what is large. The most JSON names and values that are read take less: their parser asks for no limit. */
export const OFFLOAD_HEAP_MB = 192;
export const OFFLOAD_YOUNG_HEAP_MB = 16;
/** Of the thread that checks what a sidecar sends, 8 MiB at most, of which little outlives its check. */
export const CHECKING_HEAP_MB = 256;
export const CHECKING_YOUNG_HEAP_MB = 4;
/** Of each of several workers. One alone has what gateway/node-flags.ts says. */
export const WORKER_HEAP_MB = 192;
/** What clients have sent and nobody serves yet, of one process. */
export const MAX_UNSERVED_BYTES = 48 * 1024 * 1024;

/** What one of several processes has of something that is set for all of them; never less than `least`. */
export const shareOf = (total: number, workers: number, least = 1): number =>
  Math.min(total, Math.max(least, Math.ceil(total / workers)));

/** What one request may have by itself. */
interface RequestSizes {
  readonly max_body_bytes: number;
  readonly max_answer_bytes: number;
}

/** The most that one request may hold: one with tee. */
export const largestRequest = ({ max_body_bytes, max_answer_bytes }: RequestSizes) =>
  TEE_COPIES * (max_body_bytes + max_answer_bytes);
