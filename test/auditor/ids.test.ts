// What of a proven exchange can be audited, and whether ids are those of the signed text.
import { expect, test } from 'vitest';
import { auditableOf, type Choice, isTextOf } from '../../auditor/audit/ids.ts';

const GREEDY = { model: 'm', messages: [{ role: 'user', content: 'x' }], temperature: 0 };
const SAMPLED = { ...GREEDY, temperature: 0.7, top_p: 1 };
const RESPONSE = {
  prompt_token_ids: [1, 2],
  choices: [
    { index: 0, message: { role: 'assistant', content: 'Hello' }, token_ids: [3, 4, 5] },
    { index: 1, message: { role: 'assistant', content: 'Hi' }, token_ids: [6, 5] },
  ],
};

const of = (request: object, response: object = RESPONSE, endpoint = '/v1/chat/completions') =>
  auditableOf({
    endpoint,
    request: JSON.stringify(request),
    response: JSON.stringify(response),
    stream: null,
    timestamp: 1_700_000_000,
  });

test('every choice of a plain request is audited, with what engines ignore or the rule knows', () => {
  expect(
    of({ ...GREEDY, n: 2, stop: 'x', seed: 1, tee: true, presence_penalty: 0, tools: [], logit_bias: null }),
  ).toMatchObject({
    signedPrompt: [1, 2],
    temperature: 0,
    stops: ['x'],
    choices: [
      { index: 0, ids: [3, 4, 5], texts: ['Hello'] },
      { index: 1, ids: [6, 5], texts: ['Hi'] },
    ],
  });
  expect(of({ ...SAMPLED, top_k: 20, min_p: 0 })).toMatchObject({ temperature: 0.7 });
  const completion = { choices: [{ index: 0, text: 'Hello', token_ids: [3], prompt_token_ids: [1] }] };
  expect(of({ prompt: ['x'], temperature: 0 }, completion, '/v1/completions')).toMatchObject({
    signedPrompt: [1],
    choices: [{ ids: [3], texts: ['Hello'] }],
  });
});

test.each<[object, string]>([
  [{ ...GREEDY, presence_penalty: 0.5 }, 'presence_penalty'],
  [{ ...GREEDY, repetition_penalty: 1.1 }, 'repetition_penalty'],
  [{ ...GREEDY, logit_bias: { 5: 1 } }, 'logit_bias'],
  [{ ...GREEDY, response_format: { type: 'json_object' } }, 'response_format'],
  [{ ...GREEDY, structured_outputs: { json: {} } }, 'structured_outputs'],
  [{ ...GREEDY, tools: [{ type: 'function' }] }, 'tools'],
  [{ ...GREEDY, min_tokens: 5 }, 'min_tokens'],
  [{ ...GREEDY, ignore_eos: true }, 'ignore_eos'],
  [{ ...GREEDY, truncate_prompt_tokens: 5 }, 'truncate_prompt_tokens'],
  [{ ...GREEDY, messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 'images, audio or files'],
  [{ prompt: ['a', 'b'], temperature: 0 }, 'several prompts'],
  [{ ...GREEDY, temperature: undefined }, 'the request leaves its temperature to the engine'],
  [{ ...SAMPLED, top_p: 0.9 }, 'sampled, and top_p is not 1 in the request'],
  [{ ...SAMPLED, top_p: undefined }, 'sampled, and top_p is not 1 in the request'],
  [{ ...SAMPLED, top_k: 5 }, 'top_k is less than 20'],
  [{ ...SAMPLED, min_p: 0.1 }, 'min_p'],
])('%j is left out, and its tokens are counted', (request, reason) => {
  expect(of(request)).toEqual({ reason, tokens: 5 });
  expect(of(GREEDY)).toHaveProperty('choices');
});

test('calls of tools, samples without ids and other endpoints are left out', () => {
  const call = { choices: [{ index: 0, message: { content: null, tool_calls: [{}] }, token_ids: [1] }] };
  expect(of(GREEDY, call)).toEqual({ reason: 'tool calls', tokens: 1 });
  const bare = { choices: [{ index: 0, message: { content: 'Hi' } }], usage: { completion_tokens: 2 } };
  expect(of(SAMPLED, bare)).toEqual({ reason: 'sampled, and without token ids', tokens: 2 });
  expect(of(GREEDY, bare)).toMatchObject({ choices: [{ ids: null, texts: ['Hi'] }] });
  expect(of(GREEDY, {}, '/v1/responses')).toMatchObject({ reason: expect.stringContaining('/v1/responses') });
});

test('ids say the signed text, and at most the end or a stop text beyond it', () => {
  const choice = (...texts: string[]): Choice => ({ index: 0, ids: [1], texts });
  const is = (all: string, head: string, texts: string[], stops: string[] = []) =>
    isTextOf(all, head, choice(...texts), stops);
  expect(is('Hello<|end|>', 'Hello', ['Hello'])).toBe(true);
  expect(is('Hello there', 'Hello', ['Hello there'])).toBe(true);
  expect(is(' Hello', ' Hel', ['Hello'])).toBe(true);
  expect(is('Hello \ufffd', 'Hello', ['Hello '])).toBe(true);
  // A stop text that ends in the middle of the last token.
  expect(is('Hello STOPs', 'Hello ST', ['Hello '], ['STOP'])).toBe(true);
  expect(is('Hello there, and more', 'Hello there, and', ['Hello'])).toBe(false);
  expect(is('Hello there, and more', 'Hello there, and', ['Hello'], ['the'])).toBe(false);
  expect(is('Hallo', 'Hall', ['Hello'])).toBe(false);
  expect(is('', '', ['Hello'])).toBe(false);
  // Markers of reasoning are hidden, more is not.
  expect(is('<think>\nHm.\n</think>\n\nHello<|end|>', '', ['Hm.', 'Hello'])).toBe(true);
  expect(is('<think>\nHm.\n</think>\n\nHallo', '', ['Hm.', 'Hello'])).toBe(false);
  expect(is(`Hm.${'x'.repeat(65)}Hello`, '', ['Hm.', 'Hello'])).toBe(false);
});
