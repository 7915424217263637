// What streams of named events have in common, /v1/responses and /v1/messages: how an event is read, and what it means to code that forwards
// it.
import { broken, FoldError, isError, parseChunk } from './fold.ts';

/** The meaning of an event for code that forwards the stream. */
export type EventKind =
  /** It may be sent at once. */
  | 'delta'
  /** It completes the response or announces its end, and carries the attestation. */
  | 'final'
  /** It comes after the final event. */
  | 'end'
  /** The backend's own failure, which ends the stream. */
  | 'error';

/** Reads the events of a stream in order. */
export interface EventRecord {
  /** @param text the payload. @throws {FoldError} for an event that is not of the form, or is out of order. */
  add(name: string | null, text: string): EventKind;
  /** The response's own id, once an event named it. */
  readonly id: string | null;
  /** The JSON text of the response. @throws {FoldError} unless the stream is complete. */
  text(): string;
}

/** Whether an event of this type completes a response. */
export const isFinalResponse = (type: unknown): boolean =>
  type === 'response.completed' || type === 'response.incomplete';

/** Members of `delta` in a message_delta, and of the event itself, that are set on the message. */
export const SET_BY_DELTA: readonly string[] = ['stop_reason', 'stop_sequence', 'stop_details', 'container'];
export const SET_BY_EVENT: readonly string[] = ['context_management'];

export type Event = Record<string, unknown> & { readonly type: string };

/** @throws {FoldError} */
export function readEvent(name: string | null, text: string): Event {
  const event = parseChunk(text);
  if (event.type !== 'error' && isError(event)) throw broken('an event is an error');
  if (name === null) throw broken('an event has no name');
  if (event.type !== name) throw broken('an event has another name than its type');
  if (Object.hasOwn(event, 'attestation')) throw broken('an event has an attestation of its own');
  return event as Event;
}

/** @throws {FoldError} for anything but a text. */
export function textOf(value: unknown): string {
  if (typeof value !== 'string') throw new FoldError('a delta has no text');
  return value;
}
