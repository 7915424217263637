// The requests and answers that the vectors are about, whole and streamed.
import { createHash } from 'node:crypto';
import { buildRaw, type Raw, type RawParts } from '../../proto/attestation/raw.ts';
import { AT } from './world.ts';

export const TIMESTAMP = Math.floor(AT.getTime() / 1000) - 60;

const REQUEST =
  '{"model":"demo","messages":[{"role":"user","content":"Say \\u0068ello"}],"temperature":1.0,"seed":12345678901234567890,"tee":true}';
const RESPONSE =
  '{"id":"chatcmpl-1","object":"chat.completion","created":1748779140,"model":"demo","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}';

export const WHOLE: RawParts = { request: REQUEST, response: RESPONSE, timestamp: TIMESTAMP };

/** Another answer, for what is put in the first one's place. */
export const OTHER: RawParts = { ...WHOLE, response: RESPONSE.replace('Hello.', 'Goodbye.') };

const chunk = (delta: string, finish: string | null): string =>
  `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1748779140,"model":"demo","choices":[{"index":0,"delta":${delta},"finish_reason":${JSON.stringify(finish)}}]}`;

/** The payloads that the backend sent. */
export const PAYLOADS: readonly string[] = [
  chunk('{"role":"assistant","content":""}', null),
  chunk('{"content":"Hel"}', null),
  chunk('{"content":"lo."}', null),
  chunk('{}', 'stop'),
];
const FOLDED =
  '{"id":"chatcmpl-2","object":"chat.completion","created":1748779140,"model":"demo","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}';

export const STREAMED: RawParts = {
  request: REQUEST.replace('"tee"', '"stream":true,"tee"'),
  response: FOLDED,
  stream: {
    events: PAYLOADS.length,
    sha256: createHash('sha256')
      .update(PAYLOADS.map((payload) => `${payload}\n`).join(''))
      .digest('hex'),
  },
  timestamp: TIMESTAMP,
};

export const nonceHex = (raw: string): string => createHash('sha256').update(raw).digest('hex');

/** The stream as a client saved it: the attestation stands in the finish chunk. */
export function transcript(payloads: readonly string[], attestation: unknown): string {
  const events = payloads.map((payload, i) =>
    i < payloads.length - 1 ? payload : payload.replace(/\}$/, `,"attestation":${JSON.stringify(attestation)}}`),
  );
  return [...events, '[DONE]'].map((payload) => `data: ${payload}\n\n`).join('');
}

export const rawOf = (parts: RawParts): Raw => buildRaw(parts);
