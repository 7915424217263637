// llama-server's /v1/responses and /v1/messages through the gateway: the words of the engine itself, and with tee proven, whole and streamed.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { splitRaw } from '../../proto/attestation/raw.ts';
import { readEvents } from '../../proto/stream/sse.ts';
import { type Answer, ask } from '../support/client.ts';
import { MODEL, missing } from './llama-server.ts';
import { type Stage, startStage } from './stage.ts';
import { TOOL_CALL, VOCABULARY } from './vocabulary.ts';

/** No chance (of /v1/messages llama-server reads no seed), and no prompt cache: with one, the second time is computed in other steps. */
const SAME = { model: MODEL, temperature: 0, cache_prompt: false };
const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 5 }, unit: { enum: ['c', 'f'] } },
  required: ['city', 'unit'],
};
const BIAS = { [VOCABULARY.findIndex((token) => token.text === TOOL_CALL)]: 8 };
const QUESTION = 'What do you see? 日本 🙂';
const FUNCTION = { type: 'function', name: 'get_weather', description: 'The weather', parameters: SCHEMA };
const TOOL = { name: 'get_weather', description: 'The weather', input_schema: SCHEMA };

type Json = Record<string, unknown>;

const QUESTIONS: readonly (readonly [name: string, path: string, body: object])[] = [
  ['a response', '/responses', { ...SAME, input: QUESTION, max_output_tokens: 24 }],
  [
    'a response that calls a function',
    '/responses',
    { ...SAME, input: QUESTION, max_output_tokens: 400, tools: [FUNCTION], tool_choice: 'required', logit_bias: BIAS },
  ],
  ['a message', '/messages', { ...SAME, max_tokens: 24, messages: [{ role: 'user', content: QUESTION }] }],
  [
    'a message that uses a tool',
    '/messages',
    {
      ...SAME,
      max_tokens: 400,
      messages: [{ role: 'user', content: QUESTION }],
      tools: [TOOL],
      tool_choice: { type: 'any' },
      logit_bias: BIAS,
    },
  ],
];

/** What was said: texts, arguments and inputs, without the ids and times that differ from one answer to the next. */
function words(answer: Json): unknown {
  const items = (answer.output ?? answer.content) as Json[];
  return items.map(({ type, content, text, name, arguments: given, input }) => ({
    type,
    text: text ?? (content as Json[] | undefined)?.map((part) => part.text),
    name,
    given: given ?? input,
  }));
}

const payloads = (answer: Answer): Json[] =>
  readEvents(Buffer.from(answer.text), 1 << 24)
    .filter(({ name }) => name !== null)
    .map(({ payload }) => JSON.parse(Buffer.from(payload).toString()));

describe.skipIf(missing !== null)(
  `llama-server's other endpoints behind the gateway${missing === null ? '' : ` (no ${missing})`}`,
  () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await startStage();
    });
    afterAll(() => stage?.close());

    const post = (base: string, path: string, body: string) => ask(`${base}${path}`, { body });

    async function expectProven(path: string, request: string, text: string, raw: string): Promise<Json> {
      const { endpoint, request: signed, response } = splitRaw(raw);
      expect([endpoint, signed]).toEqual([`/v1${path}`, request]);
      const verdict = await ask(`${stage.gateway.url}/~sev_gpu@1.0/verify?endpoint=/v1${path}`, { body: text });
      expect(verdict.text).toBe('true');
      return JSON.parse(response);
    }

    for (const [name, path, body] of QUESTIONS) {
      it(`answers ${name}, whole, and proves it`, async () => {
        const direct = await post(stage.engine.url, path, JSON.stringify(body));
        expect(direct.status, direct.text).toBe(200);
        expect(JSON.stringify(words(direct.json())).length).toBeGreaterThan(60);
        const through = await post(`${stage.gateway.url}/v1`, path, JSON.stringify(body));
        expect(words(through.json())).toEqual(words(direct.json()));
        const request = JSON.stringify({ ...body, tee: true });
        const proven = await post(`${stage.gateway.url}/v1`, path, request);
        const signed = await expectProven(path, request, proven.text, proven.json().attestation.raw);
        expect(words(signed)).toEqual(words(direct.json()));
      });

      it(`answers ${name}, streamed, and proves it`, async () => {
        const direct = await post(stage.engine.url, path, JSON.stringify(body));
        const streamed = { ...body, stream: true };
        const through = await post(`${stage.gateway.url}/v1`, path, JSON.stringify(streamed));
        expect(through.text).not.toContain('attestation');
        const request = JSON.stringify({ ...streamed, tee: true });
        const proven = await post(`${stage.gateway.url}/v1`, path, request);
        const events = payloads(proven);
        expect(events.map(({ type }) => type)).toEqual(payloads(through).map(({ type }) => type));
        const carrier = events.find((event) => JSON.stringify(event).includes('"attestation":')) ?? {};
        const { attestation } = (path === '/responses' ? carrier.response : carrier) as {
          attestation: { raw: string };
        };
        const signed = await expectProven(path, request, proven.text, attestation.raw);
        expect(words(signed)).toEqual(words(direct.json()));
      });
    }
  },
);
