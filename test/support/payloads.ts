// Reads a whole stream whose events have no names.
import { PayloadReader } from '../../proto/stream/sse.ts';

/** @throws {SseError} */
export function readPayloads(stream: Uint8Array, max_event_bytes: number): Uint8Array[] {
  const reader = new PayloadReader(max_event_bytes);
  const payloads = reader.push(stream);
  const last = reader.end();
  return last === null ? payloads : [...payloads, last];
}
