// How the endpoints stream, and the record of a stream in each form. docs/attestation.md §3 states the rules in prose.
import { CHAT_ENDPOINT } from '../attestation/raw.ts';
import type { EventRecord } from './events.ts';
import { MessageEvents } from './messages.ts';
import { ResponseEvents } from './responses.ts';

/** How an endpoint streams. `completion`: payloads without names (fold.ts). */
export type StreamForm = 'completion' | 'response' | 'message';

const FORMS: Readonly<Record<string, StreamForm>> = {
  [CHAT_ENDPOINT]: 'completion',
  '/v1/completions': 'completion',
  '/v1/responses': 'response',
  '/v1/messages': 'message',
};

/** null: no rule covers streams of this endpoint, so they cannot be proven. */
export function streamFormOf(endpoint: string): StreamForm | null {
  return Object.hasOwn(FORMS, endpoint) ? (FORMS[endpoint] ?? null) : null;
}

export function recordEvents(form: Exclude<StreamForm, 'completion'>): EventRecord {
  return form === 'response' ? new ResponseEvents() : new MessageEvents();
}

/**
 * The number of choices that a completion's request asks for: `n` for each prompt.
 * @param request the request's body, as JSON text or parsed.
 */
export function choicesAsked(endpoint: string, request: unknown): number {
  const { n, prompt } = (typeof request === 'string' ? JSON.parse(request) : request) as Record<string, unknown>;
  const many = endpoint === '/v1/completions' && Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return (Number.isSafeInteger(n) && (n as number) > 0 ? (n as number) : 1) * (many ? Math.max(1, prompt.length) : 1);
}
