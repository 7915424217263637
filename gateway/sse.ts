// The few server-sent events that the gateway writes itself.
import { lastBrace, type SseEvent } from '../proto/sse.ts';
import type { Problem } from './problem.ts';

export const DONE = Buffer.from('data: [DONE]\n\n');
/** A comment: keeps the connection warm, and no client sees it. */
export const ATTESTING = Buffer.from(': attesting\n\n');

/** Takes the place of the finish chunk. */
export function errorEvent(problem: Problem): Buffer {
  return Buffer.from(`data: ${JSON.stringify(problem.body)}\n\n`);
}

const ATTESTATION = Buffer.from(',"attestation":');
const DONE_DATA = Buffer.from('[DONE]');

export function isDone(data: Uint8Array): boolean {
  return data.length === 6 && DONE_DATA.equals(data);
}

/** Copying so much costs less than more writes. */
const ONE_PIECE_BYTES = 64 * 1024;

/** The event, in pieces, with `,"attestation":…` put before the last `}` of its data: taken out again, the bytes are the backend's. */
export function withAttestation(event: SseEvent, attestationJson: Uint8Array): Uint8Array[] {
  const brace = lastBrace(event);
  const pieces = [event.bytes.subarray(0, brace), ATTESTATION, attestationJson, event.bytes.subarray(brace)];
  return attestationJson.length > ONE_PIECE_BYTES ? pieces : [Buffer.concat(pieces)];
}

/** A last event may have come without its empty line: whatever follows it would become a part of it. */
export function terminated(event: SseEvent): Uint8Array {
  const last = event.bytes.at(-1);
  const lineEnded = last === 0x0a || last === 0x0d;
  return event.complete ? event.bytes : Buffer.concat([event.bytes, Buffer.from(lineEnded ? '\n' : '\n\n')]);
}
