// The few server-sent events that the gateway writes itself.
import { EVENT_END, EVENT_START, writeEvents } from '../../proto/sse.ts';
import type { Problem } from '../http/problem.ts';

export const DONE = Buffer.from('data: [DONE]\n\n');
/** A comment: keeps the connection warm, and no client sees it. */
export const ATTESTING = Buffer.from(': attesting\n\n');
/** In place of a backend's own comment. */
export const WAITING = Buffer.from(': waiting\n\n');

/** Takes the place of the finish chunk. */
export function errorEvent(problem: Problem): Buffer {
  return Buffer.from(`data: ${JSON.stringify(problem.body)}\n\n`);
}

const ATTESTATION = Buffer.from(',"attestation":');
const LF = 0x0a;
const BRACE = 0x7d;
/** Copying so much costs less than more writes. */
const ONE_PIECE_BYTES = 64 * 1024;

/** The event, in pieces, with `,"attestation":…` before the last `}` of its payload: taken out again, the bytes are the backend's. */
export function withAttestation(payload: Uint8Array, attestationJson: Uint8Array): Uint8Array[] {
  const brace = payload.lastIndexOf(BRACE);
  const pieces = [payload.subarray(0, brace), ATTESTATION, attestationJson, payload.subarray(brace)];
  if (payload.includes(LF)) return [writeEvents([Buffer.concat(pieces)])];
  const event = [EVENT_START, ...pieces, EVENT_END];
  return attestationJson.length > ONE_PIECE_BYTES ? event : [Buffer.concat(event)];
}
