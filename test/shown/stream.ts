// A stream of events, as a backend sends it, and the response that is signed for it.

import { FoldError, foldPayloads } from '../../proto/stream/fold.ts';
import { streamFormOf } from '../../proto/stream/forms.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';

// biome-ignore lint/suspicious/noExplicitAny: these tests read and change JSON of every shape.
export type Json = any;

export const CHAT = '/v1/chat/completions';
export const TEXT = '/v1/completions';
export const RESPONSES = '/v1/responses';
export const MESSAGES = '/v1/messages';
export const ENDPOINTS = [CHAT, TEXT, RESPONSES, MESSAGES] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

export interface Stream {
  readonly endpoint: Endpoint;
  readonly events: readonly Json[];
  /** The number of choices that the request asks for. */
  readonly choices: number;
}

/** A number in another notation than JSON.stringify's. */
export const literal = (text: string): string => `@@${text}@@`;

export const payloadOf = (event: Json): string => JSON.stringify(event).replace(/"@@([^"@]*)@@"/g, '$1');

const isNamed = ({ endpoint }: Stream): boolean => streamFormOf(endpoint) !== 'completion';

/** The stream as server-sent events. */
export function textOf(stream: Stream): string {
  const events = stream.events.map((event) => {
    const name = isNamed(stream) ? `event: ${event?.type}\n` : '';
    return `${name}data: ${payloadOf(event)}\n\n`;
  });
  return events.join('') + (isNamed(stream) ? '' : 'data: [DONE]\n\n');
}

/** The response that the rules make of a stream, or why they refuse it. */
export function signedOf(stream: Stream): { readonly response: Json } | { readonly refused: string } {
  try {
    return { response: JSON.parse(isNamed(stream) ? named(stream) : folded(stream)) };
  } catch (error) {
    if (error instanceof FoldError) return { refused: error.message };
    throw error;
  }
}

function folded({ events, choices }: Stream): string {
  const text = foldPayloads(events.map(payloadOf), choices);
  const ended = JSON.parse(text).choices?.some((choice: Json) => (choice?.finish_reason ?? '') !== '');
  if (ended !== true) throw new FoldError('no chunk has a finish_reason'); // none can carry the attestation
  return text;
}

function named({ endpoint, events }: Stream): string {
  const record = recordEvents(endpoint === RESPONSES ? 'response' : 'message');
  for (const event of events)
    if (record.add(String(event?.type), payloadOf(event)) === 'error')
      throw new FoldError('the stream ends with an error');
  return record.text();
}
