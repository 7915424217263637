// A fetch for OpenAI clients that asks for an attestation with every answer and lets no answer end unproven.
import { parseChunk } from '../proto/fold.ts';
import { withLastMember } from '../proto/json.ts';
import { type SseEvent, SseSplitter } from '../proto/sse.ts';
import { verifyAttestation } from './attestation.ts';
import { concat } from './bytes.ts';
import { attestationIn } from './spliced.ts';
import type { Verified, VerifyOptions } from './types.ts';

export interface VerifyingFetchOptions extends Omit<VerifyOptions, 'expected'> {
  /** What carries the requests; the global fetch by default. */
  readonly fetch?: typeof globalThis.fetch;
  /** Called with every proof, before the answer (or the end of its stream) is handed over. */
  readonly onVerified?: (verified: Verified) => void;
  /** Largest stream that is kept to be checked, in bytes. 64 MiB by default. */
  readonly max_stream_bytes?: number;
}

/** An answer ended without a proof. For a proof that is wrong, see VerificationError. */
export class UnprovenAnswerError extends Error {
  override readonly name = 'UnprovenAnswerError';
}

const GENERATES = /\/(chat\/)?completions\/?$/;
const MAX_STREAM_BYTES = 64 * 1024 * 1024;

/**
 * A `fetch` that adds `tee: true` to chat and text completions and checks every answer against the request that was
 * sent, streamed bytes included. A whole answer is handed over when it is proven. Of a stream, deltas are handed over as they
 * come and the end (from the first finish chunk on) when it is proven; otherwise the stream errors. Other requests pass through.
 *
 * ```ts
 * const client = new OpenAI({ baseURL: 'http://127.0.0.1:8080/v1', fetch: verifyingFetch({ onVerified: (v) => keep(v) }) });
 * ```
 * @throws {VerificationError} a proof is wrong. @throws {UnprovenAnswerError} there is none.
 */
export function verifyingFetch(options: VerifyingFetchOptions = {}): typeof globalThis.fetch {
  const { fetch: send = globalThis.fetch, onVerified, max_stream_bytes = MAX_STREAM_BYTES, ...verify } = options;

  return async (input, init) => {
    const request = new Request(input, init);
    if (request.method !== 'POST' || !GENERATES.test(new URL(request.url).pathname)) return send(input, init);
    const body = withTee(await request.clone().text());
    const headers = new Headers(request.headers);
    headers.delete('content-length');
    const response = await send(request.url, { ...init, method: 'POST', headers, body, signal: request.signal });
    if (!response.ok) return response;
    const prove = async (text: string, transcript?: Uint8Array): Promise<void> => {
      const expected = { request: body, ...(transcript === undefined ? {} : { transcript }) };
      const verified = await verifyAttestation(text, { ...verify, expected });
      // A piece of a stream must not pass for a whole answer.
      if (transcript === undefined && verified.exchange.stream !== null)
        throw new UnprovenAnswerError('the proof is about a stream, and the answer is whole');
      onVerified?.(verified);
    };
    if (isEventStream(response)) {
      const stream = response.body?.pipeThrough(new TransformStream(heldUntilProven(prove, max_stream_bytes)));
      return rebuilt(response, stream ?? null);
    }
    const text = await response.text();
    if (!hasAttestation(text)) throw new UnprovenAnswerError('the answer carries no attestation');
    await prove(text);
    return rebuilt(response, text);
  };
}

/** @throws {TypeError} when the body is no JSON object: nothing could be proven about it. */
function withTee(body: string): string {
  const value: unknown = JSON.parse(body);
  if (typeof value !== 'object' || value === null) throw new TypeError('the request body is not a JSON object');
  return 'tee' in value ? body : withLastMember(body, 'tee', 'true');
}

function isEventStream(response: Response): boolean {
  return (response.headers.get('content-type') ?? '').startsWith('text/event-stream');
}

function hasAttestation(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && 'attestation' in value;
  } catch {
    return false;
  }
}

/** The body is decoded by now, so what described its encoding goes. */
function rebuilt(response: Response, body: string | ReadableStream<Uint8Array> | null): Response {
  const headers = new Headers(response.headers);
  headers.delete('content-length');
  headers.delete('content-encoding');
  return new Response(body, { status: response.status, statusText: response.statusText, headers });
}

type Prove = (attestation: string, transcript: Uint8Array) => Promise<void>;

function heldUntilProven(prove: Prove, max_stream_bytes: number) {
  const splitter = new SseSplitter(max_stream_bytes);
  const kept: Uint8Array[] = [];
  const held: Uint8Array[] = [];
  let attestation: string | null = null;
  let failed = false;
  let bytes = 0;

  function take(event: SseEvent, controller: TransformStreamDefaultController<Uint8Array>): void {
    const seen = look(event);
    attestation ??= seen.attestation;
    failed ||= seen.error;
    if (held.length > 0 || seen.finishes || seen.attestation !== null) held.push(event.bytes);
    else controller.enqueue(event.bytes);
  }

  return {
    transform(chunk: Uint8Array, controller: TransformStreamDefaultController<Uint8Array>): void {
      bytes += chunk.length;
      if (bytes > max_stream_bytes)
        throw new UnprovenAnswerError('the stream is larger than what is kept to be checked');
      kept.push(chunk);
      for (const event of splitter.push(chunk)) take(event, controller);
    },
    async flush(controller: TransformStreamDefaultController<Uint8Array>): Promise<void> {
      const rest = splitter.end();
      if (rest !== null) take(rest, controller);
      if (attestation !== null) await prove(attestation, concat(...kept));
      // A stream that ends in an error is the client's to report; it said no "stop".
      else if (!failed || held.length > 0) throw new UnprovenAnswerError('the stream ended without an attestation');
      for (const one of held) controller.enqueue(one);
    },
  };
}

interface Look {
  readonly finishes: boolean;
  readonly error: boolean;
  /** The attestation's text, as it came. */
  readonly attestation: string | null;
}

function look(event: SseEvent): Look {
  if (event.data === null) return { finishes: false, error: false, attestation: null };
  const text = new TextDecoder().decode(event.data);
  if (text === '[DONE]') return { finishes: true, error: false, attestation: null };
  const { choices, error } = parseChunk(text);
  // A client that looks at `choices[0]` reads an object as it reads a list.
  const finishes = Object.values(choices ?? {}).some((choice: { finish_reason?: unknown } | null) =>
    Boolean(choice?.finish_reason),
  );
  return {
    finishes,
    // As clients do: what is empty or false is no error to them.
    error: Boolean(error),
    attestation: attestationIn(text),
  };
}
