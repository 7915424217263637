// Reads a streamed answer: its words as they come, its bytes as they were, and the chunk that carries the attestation.
import { PayloadReader, readEvents, SseError } from '../../proto/stream/sse.ts';
import { concat } from '../../verify/common/bytes.ts';
import { parseBounded } from '../../verify/common/limited.ts';
import { attestationIn } from '../../verify/index.ts';
import { GatewayError } from './gateway.ts';

/** Larger answers are cut off: they could not be checked. */
const MAX_STREAM_BYTES = 64 * 1024 * 1024;

export interface Answer {
  /** Every byte that was received; null where the answer was no stream. */
  readonly transcript: Uint8Array<ArrayBuffer> | null;
  /** The JSON text of the chunk, or the whole answer, that carries the attestation; null where none came. */
  readonly carrier: string | null;
  /** The error that stood in place of the finish chunk. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** Is given each piece of an answer as it comes, untrusted. */
export interface Listener {
  content(text: string): void;
  reasoning(text: string): void;
  refusal(text: string): void;
  /** A piece of the tool call with this number: its name comes first, then its arguments. */
  toolCall(index: number, text: string): void;
  /** The words have ended, and the GPU has not signed them yet. */
  signing(): void;
}

/** A comment of the gateway, which it sends every few seconds while it waits for the signature. */
const SIGNING = /^: attesting$/m;

/** @throws {GatewayError} when the connection breaks. @throws {DOMException} when it was aborted. */
export async function readAnswer(response: Response, listener: Listener): Promise<Answer> {
  if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream'))
    return readWhole(response, listener);
  const payloads = new PayloadReader(MAX_STREAM_BYTES);
  const kept: Uint8Array[] = [];
  let carrier: string | null = null;
  let error: Answer['error'] = null;
  let bytes = 0;

  function take(payload: Uint8Array): void {
    const text = new TextDecoder().decode(payload);
    const chunk = parse(text);
    if (chunk === null) return;
    if (chunk.attestation !== undefined) carrier ??= text;
    if (chunk.error !== undefined && chunk.error !== null)
      error = { code: String(chunk.error.code ?? 'error'), message: String(chunk.error.message ?? '') };
    tell(listener, chunk.choices?.[0]?.delta);
  }

  const reader = response.body?.getReader();
  try {
    for (let part = await reader?.read(); part !== undefined && !part.done; part = await reader?.read()) {
      bytes += part.value.length;
      if (bytes > MAX_STREAM_BYTES) throw new SseError('too_large', 'the answer is too large');
      kept.push(part.value);
      if (SIGNING.test(new TextDecoder().decode(part.value))) listener.signing();
      for (const payload of payloads.push(part.value)) take(payload);
    }
    const last = payloads.end();
    if (last !== null) take(last);
  } catch (cause) {
    throw broken(cause);
  }
  return { transcript: concat(kept), carrier, error };
}

/** What a reader throws is a TypeError where the connection broke, a DOMException where the visitor stopped it. */
function broken(cause: unknown): unknown {
  if (cause instanceof SseError)
    return cause.reason === 'too_large'
      ? new GatewayError(0, 'answer_too_large', 'The answer is larger than what this page keeps to check.')
      : new GatewayError(0, 'stream_malformed', 'The answer is no stream that could be proven: it has more than data.');
  if (!(cause instanceof TypeError)) return cause;
  return new GatewayError(0, 'connection_lost', 'The connection broke before the answer was complete.');
}

/** Some backends answer whole although a stream was asked for. */
async function readWhole(response: Response, listener: Listener): Promise<Answer> {
  const text = await response.text().catch((cause) => Promise.reject(broken(cause)));
  const whole = parse(text);
  tell(listener, whole?.choices?.[0]?.message);
  return { transcript: null, carrier: whole?.attestation === undefined ? null : text, error: null };
}

/** The event of a stream that was saved which carries the attestation; null where none does, or the stream cannot be read. */
export function carrierOf(transcript: Uint8Array): string | null {
  try {
    for (const { payload } of readEvents(transcript, MAX_STREAM_BYTES)) {
      const text = new TextDecoder().decode(payload);
      if (attestationIn(text) !== null) return text;
    }
  } catch (cause) {
    if (!(cause instanceof SseError)) throw cause;
  }
  return null;
}

interface Said {
  readonly content?: unknown;
  readonly reasoning_content?: unknown;
  readonly reasoning?: unknown;
  readonly refusal?: unknown;
  readonly tool_calls?: unknown;
}

function tell(listener: Listener, said: Said | undefined): void {
  if (said === undefined) return;
  const { reasoning_content, reasoning = reasoning_content, content, refusal, tool_calls } = said;
  if (isText(reasoning)) listener.reasoning(reasoning);
  if (isText(content)) listener.content(content);
  if (Array.isArray(content)) for (const part of content) tellPart(listener, part);
  if (isText(refusal)) listener.refusal(refusal);
  if (!Array.isArray(tool_calls)) return;
  for (const [i, call] of tool_calls.entries()) {
    const { index = i, function: called = {} } = (call ?? {}) as {
      index?: unknown;
      function?: Record<string, unknown>;
    };
    const text = [called.name, called.arguments].filter(isText).join(' ');
    if (text !== '') listener.toolCall(Number(index), text);
  }
}

/** A part of a content that is a list: text, or reasoning whose texts are in a list of their own (Magistral, Databricks). */
function tellPart(listener: Listener, part: unknown): void {
  const { type, text, thinking, summary } = (part ?? {}) as Readonly<Record<string, unknown>>;
  if (type === 'text' && isText(text)) listener.content(text);
  if (isText(thinking)) listener.reasoning(thinking);
  for (const list of [thinking, summary])
    for (const inner of Array.isArray(list) ? list : [])
      if (isText((inner as { text?: unknown } | null)?.text)) listener.reasoning((inner as { text: string }).text);
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

interface Chunk {
  readonly choices?: readonly ({ readonly delta?: Said; readonly message?: Said } | null)[];
  readonly error?: { readonly code?: unknown; readonly message?: unknown } | null;
  readonly attestation?: unknown;
}

function parse(text: string): Chunk | null {
  try {
    const value = parseBounded(text);
    return typeof value === 'object' && value !== null ? value : null;
  } catch {
    return null; // [DONE]
  }
}
