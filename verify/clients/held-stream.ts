// A stream whose end is held until it is proven.
import { isFinalResponse } from '../../proto/stream/events.ts';
import { parseChunk } from '../../proto/stream/fold.ts';
import type { StreamForm } from '../../proto/stream/forms.ts';
import { isDone, type NamedEvent, NamedEventReader, SseError, writeNamedEvent } from '../../proto/stream/sse.ts';
import { attestationIn } from '../binding/input.ts';
import { concat } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { bounded } from '../common/limited.ts';
import { UnprovenAnswerError } from './errors.ts';

/**
 * Forwards the hashed events, written anew, and nothing else. The first that carries a part of a tool call, or could end a client's
 * reading, and all after it, are held.
 */
export function heldUntilProven(
  form: StreamForm,
  prove: (stream: Uint8Array) => Promise<void>,
  max_stream_bytes: number,
) {
  const reader = new NamedEventReader(max_stream_bytes);
  /** Every event as it is forwarded. */
  const kept: Uint8Array[] = [];
  /** Number of the last events that wait for the proof. */
  let held = 0;
  let attested = false;
  let bytes = 0;

  function take(events: readonly NamedEvent[], controller: TransformStreamDefaultController<Uint8Array>): void {
    for (const event of events) {
      const look = lookAt(form, event);
      attested ||= look.attested;
      const written = writeNamedEvent(event);
      kept.push(written);
      if (held > 0 || !look.passes) held++;
      else controller.enqueue(written);
    }
  }

  return {
    transform(chunk: Uint8Array, controller: TransformStreamDefaultController<Uint8Array>): void {
      bytes += chunk.length;
      if (bytes > max_stream_bytes) throw new UnprovenAnswerError('stream_too_large');
      const events: NamedEvent[] = [];
      try {
        readable(() => reader.push(chunk, events));
      } finally {
        take(events, controller);
      }
    },
    async flush(controller: TransformStreamDefaultController<Uint8Array>): Promise<void> {
      const last = readable(() => reader.end());
      if (last !== null) take([last], controller);
      if (!attested) throw new UnprovenAnswerError('attestation_missing');
      await prove(concat(kept));
      for (const event of held > 0 ? kept.slice(-held) : []) controller.enqueue(event);
    },
  };
}

/** @throws {UnprovenAnswerError} */
function readable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof SseError)) throw cause;
    throw new UnprovenAnswerError(cause.reason === 'malformed' ? 'stream_malformed' : 'stream_too_large', { cause });
  }
}

interface Look {
  /** A client goes on reading after the event, and runs nothing for it. */
  readonly passes: boolean;
  readonly attested: boolean;
}

const HELD: Look = { passes: false, attested: false };

/** @throws {UnprovenAnswerError} for an event that is neither JSON nor `[DONE]`, or has or lacks a name against its form. */
function lookAt(form: StreamForm, { name, payload }: NamedEvent): Look {
  if (name === null && isDone(payload)) return HELD;
  if ((name === null) !== (form === 'completion')) throw new UnprovenAnswerError('stream_malformed');
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload);
    bounded(text, { maxCharacters: Number.POSITIVE_INFINITY });
    if (attestationIn(text) !== null) return { passes: false, attested: true };
    const event = parseChunk(text);
    // Some clients go by the name of an event, others by its type.
    if (name !== null && event.type !== name) throw new TypeError('an event has another name than its type');
    return { passes: goesOn(form, event) && !callsTool(form, event), attested: false };
  } catch (cause) {
    throw new UnprovenAnswerError(cause instanceof CheckFailure ? 'stream_too_large' : 'stream_malformed', { cause });
  }
}

/** Whether a client goes on reading after this event. */
function goesOn(form: StreamForm, event: Readonly<Record<string, unknown>>): boolean {
  const { choices, error = null, type, delta } = event;
  if (error !== null || type === 'error') return false;
  if (form === 'response') return !isFinalResponse(type) && type !== 'response.failed';
  if (form === 'message') return type !== 'message_stop' && (type !== 'message_delta' || !stops(delta));
  return Array.isArray(choices) ? !choices.some(finishes) : Object.keys(event).length === 0;
}

const stops = (delta: unknown): boolean => ((delta as { stop_reason?: unknown } | null)?.stop_reason ?? null) !== null;

const finishes = (choice: { finish_reason?: unknown } | null): boolean =>
  (choice?.finish_reason ?? null) !== null && choice?.finish_reason !== '';

/** The parts of a response that no application runs: of /v1/responses its items, of /v1/messages its blocks and their deltas. */
const WORDS = /^(message|reasoning|text|compaction|(redacted_)?thinking|signature|citations)(_delta)?$/;

/** Whether the event carries a part of a tool call: applications may run one as soon as it is complete. */
function callsTool(form: StreamForm, event: Readonly<Record<string, unknown>>): boolean {
  if (form === 'completion') return Array.isArray(event.choices) && event.choices.some(isCall);
  const { type, item, response, content_block, delta, message } = event as Parts;
  const [part, whole] = form === 'response' ? [item, response?.output] : [content_block, message?.content];
  const parts = [part, ...[whole].flat()];
  if (type === 'content_block_delta') parts.push(delta);
  return /_call|mcp/.test(type ?? '') || parts.some((one) => one != null && !WORDS.test(String(one.type)));
}

type Part = { readonly type?: unknown } | null | undefined;
interface Parts {
  readonly type?: string;
  readonly item?: Part;
  readonly response?: { readonly output?: Part | Part[] } | null;
  readonly content_block?: Part;
  readonly delta?: Part;
  readonly message?: { readonly content?: Part | Part[] } | null;
}

/** Some engines write an empty list of calls beside every text. */
const isCall = (choice: { delta?: { tool_calls?: unknown; function_call?: unknown } | null } | null): boolean =>
  (choice?.delta?.function_call ?? null) !== null || [choice?.delta?.tool_calls ?? []].flat().length > 0;
