// How the endpoints stream.
import { CHAT_ENDPOINT } from '../attestation/raw.ts';

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

/**
 * The number of choices that a completion's request asks for: `n` for each prompt.
 * @param request the request's body, as JSON text or parsed.
 */
export function choicesAsked(endpoint: string, request: unknown): number {
  const { n, prompt } = (typeof request === 'string' ? JSON.parse(request) : request) as Record<string, unknown>;
  const many = endpoint === '/v1/completions' && Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return (Number.isSafeInteger(n) && (n as number) > 0 ? (n as number) : 1) * (many ? Math.max(1, prompt.length) : 1);
}
