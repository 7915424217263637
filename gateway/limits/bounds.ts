// Memory bounds that no setting names, and how settings are divided among processes.

/**
 * The most copies of a text in memory while it is attested: as it came, in raw, and quoted in the attestation's JSON, where each quotation
 * mark takes two bytes.
 */
export const TEE_COPIES = 4;

/** The heap of the offload thread. The most JSON names and values that are accepted take less; the JSON parser itself checks no limit. */
export const OFFLOAD_HEAP_MB = 192;
export const OFFLOAD_YOUNG_HEAP_MB = 16;
/** The heap of the thread that checks what a sidecar sends: 8 MiB at most, little of which outlives its check. */
export const CHECKING_HEAP_MB = 256;
export const CHECKING_YOUNG_HEAP_MB = 4;
/** The heap of each of several workers. A process that serves alone has what gateway/node-flags.ts sets. */
export const WORKER_HEAP_MB = 192;
/** The unserved input of one process: what clients have sent and the gateway does not serve yet. */
export const MAX_UNSERVED_BYTES = 48 * 1024 * 1024;

/** The share of one process in a limit for all of them; never less than `least`. */
export const shareOf = (total: number, workers: number, least = 1): number =>
  Math.min(total, Math.max(least, Math.ceil(total / workers)));

/** The sizes that one request may have. */
interface RequestSizes {
  readonly max_body_bytes: number;
  readonly max_answer_bytes: number;
}

/** The most bytes that one request may hold: a request with tee. */
export const largestRequest = ({ max_body_bytes, max_answer_bytes }: RequestSizes) =>
  TEE_COPIES * (max_body_bytes + max_answer_bytes);
