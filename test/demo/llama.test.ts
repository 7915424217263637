// The engine's endpoints over a stand-in for node-llama-cpp, whose tokens are bytes and whose answer is always the same.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createEngineApp } from '../../demo/engine/app.ts';
import { createEngine, LLAMA_ID, MODEL_ID } from '../../demo/engine/engine.ts';
import { LlamaError, loadLlama } from '../../demo/engine/llama.ts';
import { temporaryFolder } from '../support/harness.ts';

const ANSWER = 'Paris — größte 🙂 Stadt.';
const LIBRARY = `
const answer = new TextEncoder().encode(${JSON.stringify(ANSWER)});
const context = {
  sequencesLeft: 4,
  getSequence() {
    if (context.sequencesLeft-- === 0) throw new Error('no sequence is left');
    return { evaluate: async function* () { yield* answer; }, dispose() { context.sequencesLeft++; } };
  },
};
export const getLlama = async () => ({
  loadModel: async ({ modelPath }) => ({
    fileInfo: { metadata: { tokenizer: { ggml: { tokens: Array(256).fill('') } } } },
    tokenize: (text) => [...new TextEncoder().encode(text)],
    detokenize: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens)),
    createContext: async () => context,
    createEmbeddingContext: async () => ({ getEmbeddingFor: async () => ({ vector: [3, 4] }) }),
  }),
});`;

const folder = temporaryFolder();
let app: ReturnType<typeof createEngineApp>;

beforeAll(async () => {
  const library = join(folder.path, 'library.mjs');
  writeFileSync(library, LIBRARY);
  app = createEngineApp([createEngine({ llama: await loadLlama(library, library) }), createEngine()]);
});
afterAll(() => folder.remove());

const post = (path: string, body: object) =>
  Promise.resolve(app.request(path, { method: 'POST', body: JSON.stringify({ model: LLAMA_ID, ...body }) }));
const chat = async (more: object = {}) =>
  post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], ...more });

it('answers in chats, messages and texts, whole and streamed, without a broken character', async () => {
  expect(await (await chat()).json()).toMatchObject({
    model: LLAMA_ID,
    choices: [{ message: { content: ANSWER }, finish_reason: 'stop' }],
    usage: { completion_tokens: Buffer.byteLength(ANSWER) },
  });
  const streamed = await (await chat({ stream: true })).text();
  const deltas = [...streamed.matchAll(/^data: (\{.*\})$/gm)].map(([, data = '']) => JSON.parse(data).choices[0].delta);
  expect(deltas.map(({ content }) => content ?? '').join('')).toBe(ANSWER);
  expect(streamed).not.toContain('\ufffd');
  const message = { max_tokens: 99, messages: [{ role: 'user', content: 'Hi' }] };
  expect(await (await post('/v1/messages', message)).json()).toMatchObject({ content: [{ text: ANSWER }] });
  const text = await post('/v1/completions', {
    prompt: [
      [79, 102, 32],
      [79, 102],
    ],
    max_tokens: 99,
    n: 2,
    echo: true,
  });
  const { choices } = (await text.json()) as { choices: { text: string }[] };
  expect(choices.map((choice) => choice.text)).toEqual([`Of ${ANSWER}`, `Of ${ANSWER}`, `Of${ANSWER}`, `Of${ANSWER}`]);
});

it('ends at max_tokens and before a stop text, and embeds', async () => {
  const ended = async (more: object) => ((await (await chat(more)).json()) as { choices: object[] }).choices[0];
  expect(await ended({ max_tokens: 3 })).toMatchObject({ message: { content: 'Par' }, finish_reason: 'length' });
  expect(await ended({ stop: [' gr'] })).toMatchObject({ message: { content: 'Paris —' }, finish_reason: 'stop' });
  const vectors = await post('/v1/embeddings', { input: ['a', 'b'] });
  expect(await vectors.json()).toMatchObject({
    data: [0, 1].map((index) => ({ index, embedding: [0.6, 0.8].map(Math.fround) })),
  });
});

it('lends its four sequences anew when their clients have left, and one to each of many at once', async () => {
  for (let i = 0; i < 6; i++) {
    const reader = (await chat({ stream: true, n: 2 })).body?.getReader();
    for (let events = 0; events < 5; events++) await reader?.read();
    await reader?.cancel();
  }
  const all = await Promise.all(Array.from({ length: 10 }, () => chat({ n: 3 })));
  for (const one of all) expect((await one.text()).split('größte')).toHaveLength(4);
});

it('refuses what it cannot do by name, and answers afterwards', async () => {
  const long = [{ role: 'user', content: 'x'.repeat(4096) }];
  const cases: [object, object][] = [
    [{ logprobs: true }, { param: 'logprobs', code: 'unsupported_value' }],
    [{ logit_bias: { 1: 1 } }, { param: 'logit_bias', code: 'unsupported_value' }],
    [{ messages: long }, { param: 'messages', code: 'context_length_exceeded' }],
  ];
  for (const [more, error] of cases) {
    const refused = await chat(more);
    expect([refused.status, await refused.json()]).toEqual([400, { error: expect.objectContaining(error) }]);
  }
  const text = await post('/v1/completions', { prompt: [256] });
  expect([text.status, (await chat()).status]).toEqual([400, 200]);
});

it('stands before the demo model, which answers beside it', async () => {
  const { data } = (await (await app.request('/v1/models')).json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toEqual([LLAMA_ID, MODEL_ID]);
  expect((await chat({ model: MODEL_ID, logprobs: true })).status).toBe(200);
});

it('says in one line why a model cannot be loaded', async () => {
  const error = await loadLlama(join(folder.path, 'none.mjs'), 'none').catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(LlamaError);
  expect((error as Error).message).toMatch(/^cannot load the model: .*none\.mjs.*; npm start without --model .*$/);
});
