// The same question to the engine itself, through the gateway, and with tee: one answer, and the last one proven.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { foldPayloads } from '../../proto/stream/fold.ts';
import { type Answer, ask } from '../support/client.ts';
import { MODEL, missing } from './llama-server.ts';
import { provenStream, provenWhole } from './proof.ts';
import { type Stage, startStage } from './stage.ts';
import { TOOL_CALL, VOCABULARY } from './vocabulary.ts';

/** A seed, and no prompt cache: with one, the second time is computed in other steps and rounds otherwise. */
const SAME = { model: MODEL, seed: 7, cache_prompt: false, max_tokens: 24 };
const CHAT = { ...SAME, messages: [{ role: 'user', content: 'What do you see? 日本 🙂' }] };
const TEXT = { ...SAME, prompt: 'the world' };
const SCHEMA = {
  type: 'object',
  properties: { score: { type: 'integer', minimum: 0, maximum: 99 }, word: { enum: ['x', 'y'] } },
  required: ['score', 'word'],
  additionalProperties: false,
};
const TOOL = {
  name: 'get_weather',
  description: 'The weather in a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 5 }, unit: { enum: ['c', 'f'] } },
    required: ['city', 'unit'],
  },
};

/** `shows`: what makes the answer one of its kind. */
const QUESTIONS: Record<string, { path: string; body: object; shows: RegExp }> = {
  'a chat': { path: '/chat/completions', shows: /"content":"[^"]{20,}"/, body: CHAT },
  'a chat with system and assistant turns': {
    path: '/chat/completions',
    shows: /"content":"[^"]{20,}"/,
    body: {
      ...CHAT,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'text', text: 'one' }] },
        { role: 'assistant', content: 'two' },
        { role: 'user', content: 'three' },
      ],
    },
  },
  'a chat of two choices': { path: '/chat/completions', shows: /"index":1\b/, body: { ...CHAT, n: 2 } },
  'a chat with logprobs': {
    path: '/chat/completions',
    shows: /"top_logprobs":\[\{/,
    body: { ...CHAT, logprobs: true, top_logprobs: 3 },
  },
  'a chat ended by a stop word': {
    path: '/chat/completions',
    shows: /"finish_reason":"stop"/,
    body: { ...CHAT, max_tokens: 2_000, stop: ['e', ' house'] },
  },
  'a chat in characters made of byte tokens': {
    path: '/chat/completions',
    shows: /"content":"[語🤖ñ]+/u,
    body: { ...CHAT, grammar: 'root ::= ("語" | "🤖" | "ñ")+' },
  },
  'a chat cut within a character': {
    path: '/chat/completions',
    shows: /"finish_reason":"length"/,
    body: { ...CHAT, max_tokens: 4, grammar: 'root ::= "語🤖"' },
  },
  'a chat held to a JSON schema': {
    path: '/chat/completions',
    shows: /"content":"\{.*\\"score\\"/,
    body: {
      ...CHAT,
      max_tokens: 300,
      response_format: { type: 'json_schema', json_schema: { name: 'verdict', schema: SCHEMA } },
    },
  },
  'a chat that calls tools': {
    path: '/chat/completions',
    shows: /"tool_calls":\[\{/,
    body: {
      ...CHAT,
      max_tokens: 400,
      tools: [{ type: 'function', function: TOOL }],
      tool_choice: 'required',
      parallel_tool_calls: true,
      logit_bias: { [VOCABULARY.findIndex((token) => token.text === TOOL_CALL)]: 8 },
    },
  },
  'a chat that follows a tool': {
    path: '/chat/completions',
    shows: /"content":"[^"]{20,}"/,
    body: {
      ...CHAT,
      tools: [{ type: 'function', function: TOOL }],
      tool_choice: 'none',
      messages: [
        { role: 'user', content: 'Weather?' },
        {
          role: 'assistant',
          content: null,
          tool_calls: [
            { id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bonn","unit":"c"}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'c1', content: '17' },
      ],
    },
  },
  'a completion': { path: '/completions', shows: /"text":"[^"]{20,}"/, body: TEXT },
  'a completion of two choices': { path: '/completions', shows: /"index":1\b/, body: { ...TEXT, n: 2 } },
  'a completion of two prompts': {
    path: '/completions',
    shows: /"index":1\b/,
    body: { ...TEXT, prompt: ['the', 'of the'] },
  },
  'a completion of a token list': {
    path: '/completions',
    shows: /"text":"[^"]{20,}"/,
    body: { ...TEXT, prompt: [1, 400, 401] },
  },
  'a completion with logprobs': { path: '/completions', shows: /"top_logprobs":\[\{/, body: { ...TEXT, logprobs: 2 } },
};

describe.skipIf(missing !== null)(
  `llama-server behind the gateway${missing === null ? '' : ` (no ${missing})`}`,
  () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await startStage();
    });
    afterAll(() => stage?.close());

    it('lists its model', async () => {
      const direct = (await ask(`${stage.engine.url}/models`, { method: 'GET' })).json();
      const through = await ask(`${stage.gateway.url}/v1/models`, { method: 'GET' });
      expect(through.status).toBe(200);
      expect(settled(through.text)).toEqual(settled(JSON.stringify(direct)));
    });

    for (const [name, { path, body, shows }] of Object.entries(QUESTIONS)) {
      it(`answers ${name}, whole, and proves it`, async () => {
        const { direct, through, proven, request } = await threeTimes(path, body);
        expect(direct.status, direct.text).toBe(200);
        expect(direct.text).toMatch(shows);
        expect(settled(through.text)).toEqual(settled(direct.text));
        expect(settled(await provenWhole(stage.gateway.url, request, proven))).toEqual(settled(direct.text));
      });

      it(`answers ${name}, streamed, and proves it`, async () => {
        const { direct, through, proven, request } = await threeTimes(path, {
          ...body,
          stream: true,
          stream_options: { include_usage: true },
        });
        expect(direct.status, direct.text).toBe(200);
        expect(folded(direct)).toMatch(shows);
        expect(through.text).not.toContain('attestation');
        expect(settled(folded(through))).toEqual(settled(folded(direct)));
        expect(settled(await provenStream(stage.gateway.url, request, proven))).toEqual(settled(folded(direct)));
      });
    }

    it('answers in the same words whole and streamed', async () => {
      const whole = await provenWhole(stage.gateway.url, ...(await chatWithTee({})));
      const streamed = await provenStream(stage.gateway.url, ...(await chatWithTee({ stream: true })));
      expect(JSON.parse(streamed).choices[0].message).toEqual(JSON.parse(whole).choices[0].message);
    });

    it('streams usage in a chunk of its own when asked to', async () => {
      const [, answer] = await chatWithTee({ stream: true, stream_options: { include_usage: true } });
      const usage = JSON.parse(answer.payloads().at(-2) as string);
      expect(usage.choices).toEqual([]);
      expect(usage.usage.completion_tokens).toBe(CHAT.max_tokens);
    });

    it('serves one request right after another, though llama-server hangs up after each stream without a word', async () => {
      for (let i = 0; i < 400; i++) {
        const answer = await ask(`${stage.gateway.url}/v1/chat/completions`, {
          body: JSON.stringify({ ...CHAT, max_tokens: 1, stream: true }),
        });
        expect(answer.status, `request ${i}: ${answer.text}`).toBe(200);
      }
    });

    async function threeTimes(path: string, body: object) {
      const request = JSON.stringify({ ...body, tee: true });
      const direct = await ask(stage.engine.url + path, { body: JSON.stringify(body) });
      const through = await ask(`${stage.gateway.url}/v1${path}`, { body: JSON.stringify(body) });
      const proven = await ask(`${stage.gateway.url}/v1${path}`, { body: request });
      return { direct, through, proven, request };
    }

    async function chatWithTee(more: object): Promise<[request: string, answer: Answer]> {
      const body = JSON.stringify({ ...CHAT, ...more, tee: true });
      return [body, await ask(`${stage.gateway.url}/v1/chat/completions`, { body })];
    }
  },
);

function folded(answer: Answer): string {
  expect(answer.complete).toBe(true);
  const payloads = answer.payloads();
  expect(payloads.pop()).toBe('[DONE]');
  return foldPayloads(payloads);
}

/** Without what differs between two answers that are the same: ids, clocks, and how much was cached. */
function settled(text: string): unknown {
  return JSON.parse(text, (key, value) =>
    ['id', 'created', 'timings', 'prompt_tokens_details'].includes(key) ? null : value,
  );
}
