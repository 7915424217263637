// Every endpoint of the demo engine, asked by the real clients, directly and with every answer proven.

import { createOpenAI } from '@ai-sdk/openai';
import Anthropic from '@anthropic-ai/sdk';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embed, generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MODEL_ID } from '../../demo/engine/engine.ts';
import { type RunningEngine, startEngine } from '../../demo/engine/server.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';

const model = MODEL_ID;
const PROMPT = 'Good day';
const messages = [{ role: 'user' as const, content: PROMPT }];
const SAME = { model, temperature: 0 };
const CHAT = { ...SAME, messages, max_tokens: 12 };
const RESPONSE = { ...SAME, max_output_tokens: 12 };
const AI = { prompt: PROMPT, temperature: 0, maxOutputTokens: 12, maxRetries: 0 };

/** A client's base URL, without `/v1`, and its fetch. */
interface At {
  readonly url: string;
  readonly fetch: typeof globalThis.fetch;
}

const openai = ({ url, fetch }: At) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0, fetch });
const anthropic = ({ url, fetch }: At) => new Anthropic({ baseURL: url, apiKey: 'any', maxRetries: 0, fetch });
const ai = ({ url, fetch }: At) => createOpenAI({ baseURL: `${url}/v1`, apiKey: 'any', fetch });
const chain = ({ url, fetch }: At) => ({
  ...{ model, apiKey: 'any', maxRetries: 0, configuration: { baseURL: `${url}/v1`, fetch } },
});
const langchain = (at: At) => new ChatOpenAI({ ...chain(at), temperature: 0, maxTokens: 12 });

async function join<T>(pieces: AsyncIterable<T>, text: (piece: T) => string | null | undefined): Promise<string> {
  let all = '';
  for await (const piece of pieces) all += text(piece) ?? '';
  return all;
}

/** Each asks in its own way, and gives the text that it was answered. */
const CLIENTS: readonly (readonly [string, string, (at: At) => Promise<string | null | undefined>])[] = [
  [
    'openai, a chat',
    '/v1/chat/completions',
    async (at) => (await openai(at).chat.completions.create(CHAT)).choices[0]?.message.content,
  ],
  [
    'openai, a streamed chat',
    '/v1/chat/completions',
    async (at) =>
      join(await openai(at).chat.completions.create({ ...CHAT, stream: true }), (one) => one.choices[0]?.delta.content),
  ],
  [
    'openai, a response',
    '/v1/responses',
    async (at) => (await openai(at).responses.create({ ...RESPONSE, input: PROMPT })).output_text,
  ],
  [
    'openai, a streamed response',
    '/v1/responses',
    async (at) =>
      (
        await openai(at)
          .responses.stream({ ...RESPONSE, input: PROMPT })
          .finalResponse()
      ).output_text,
  ],
  ['@anthropic-ai/sdk, a message', '/v1/messages', async (at) => textOf(await anthropic(at).messages.create(CHAT))],
  [
    '@anthropic-ai/sdk, a streamed message',
    '/v1/messages',
    async (at) => textOf(await anthropic(at).messages.stream(CHAT).finalMessage()),
  ],
  [
    'ai, a response',
    '/v1/responses',
    async (at) => (await generateText({ ...AI, model: ai(at).responses(model) })).text,
  ],
  [
    'ai, a streamed chat',
    '/v1/chat/completions',
    async (at) => join(streamText({ ...AI, model: ai(at).chat(model) }).textStream, (text) => text),
  ],
  ['@langchain/openai, a chat', '/v1/chat/completions', async (at) => (await langchain(at).invoke(PROMPT)).text],
  [
    '@langchain/openai, a streamed chat',
    '/v1/chat/completions',
    async (at) => join(await langchain(at).stream(PROMPT), ({ text }) => text),
  ],
];

const textOf = ({ content }: Anthropic.Message): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

describe('the demo engine, asked by', () => {
  const folder = temporaryFolder();
  const proven: string[] = [];
  let engine: RunningEngine;
  let sidecar: RunningSidecar;
  let gateway: RunningGateway;
  let direct: At;
  let verified: At;
  beforeAll(async () => {
    engine = await startEngine();
    sidecar = await startSidecar(folder);
    gateway = await startGateway({ BACKEND_URL: `${engine.url}/v1`, SIDECAR_SOCKET: sidecar.socket });
    direct = { url: engine.url, fetch };
    const simulatedRoot = sidecar.attester.simulated?.root;
    const onVerified = ({ exchange }: { exchange: { endpoint: string } }) => void proven.push(exchange.endpoint);
    verified = { url: gateway.url, fetch: verifyingFetch({ simulatedRoot, onVerified }) };
  });
  afterAll(async () => {
    await gateway.close();
    await sidecar.close();
    await engine.close();
    folder.remove();
  });

  it.each(CLIENTS)('%s: says the same to all, and it is proven', async (_name, endpoint, ask) => {
    const said = (await openai(direct).chat.completions.create(CHAT)).choices[0]?.message.content ?? '';
    expect(said.length).toBeGreaterThan(10);
    expect(await ask(direct)).toBe(said);
    proven.length = 0;
    expect([await ask(verified), proven]).toEqual([said, [endpoint]]);
  });

  it('openai: a text that goes on is the same whole and streamed, and proven', async () => {
    const { completions } = openai(verified);
    const asked = { ...SAME, prompt: PROMPT };
    proven.length = 0;
    const whole = (await completions.create(asked)).choices[0]?.text;
    const streamed = await join(await completions.create({ ...asked, stream: true }), (one) => one.choices[0]?.text);
    expect([streamed, proven]).toEqual([whole, ['/v1/completions', '/v1/completions']]);
  });

  it('@anthropic-ai/sdk: events in order, and why the message ends', async () => {
    const { messages: at } = anthropic(verified);
    const types: string[] = [];
    const events = [];
    for await (const event of await at.create({ ...CHAT, stream: true })) {
      events.push(event);
      if (event.type !== types.at(-1)) types.push(event.type);
    }
    expect(types).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    const whole = await at.create(CHAT);
    expect(whole).toMatchObject({ type: 'message', role: 'assistant', model, stop_reason: 'max_tokens' });
    expect(events.at(-2)).toMatchObject({ delta: { stop_reason: 'max_tokens' }, usage: { output_tokens: 12 } });
    expect(whole.usage.output_tokens).toBe(12);
    const stop = textOf(whole).slice(6, 10);
    const stopped = await at.create({ ...CHAT, stop_sequences: ['never said', stop] });
    expect([stopped.stop_reason, stopped.stop_sequence]).toEqual(['stop_sequence', stop]);
    expect(textOf(stopped)).toBe(textOf(whole).split(stop)[0]);
    expect((await at.create({ ...CHAT, max_tokens: 500 })).stop_reason).toBe('end_turn');
    const told = await at.create({ ...CHAT, system: [{ type: 'text', text: 'Be brief.' }] });
    expect(told.usage.input_tokens).toBeGreaterThan(whole.usage.input_tokens);
  });

  it('openai, ai and @langchain/openai: vectors, one or several, in digits and base64, as short as wished', async () => {
    const { embeddings } = openai(verified);
    proven.length = 0;
    const input = ['The quiet river carries a letter.', 'The quiet river follows a letter.', 'Nobody ever sings.'];
    const digits = await embeddings.create({ model, input, encoding_format: 'float' });
    const base64 = await embeddings.create({ model, input });
    const vectors = digits.data.map(({ embedding }) => embedding);
    expect(base64.data.map(({ embedding }) => embedding)).toEqual(vectors);
    const dot = (a = 0, b = 0) => vectors[a]?.reduce((sum, value, i) => sum + value * (vectors[b]?.[i] ?? 0), 0) ?? 0;
    expect(dot()).toBeCloseTo(1);
    expect(dot(0, 1)).toBeGreaterThan(dot(0, 2) + 0.1);
    expect(digits.usage.prompt_tokens).toBeGreaterThan(10);
    const short = await embeddings.create({ model, input: input[0] ?? '', dimensions: 8 });
    expect(short.data[0]?.embedding.map(Math.sign)).toEqual(vectors[0]?.slice(0, 8).map(Math.sign));
    const value = input[2] ?? '';
    expect((await embed({ model: ai(verified).embeddingModel(model), value })).embedding).toEqual(vectors[2]);
    expect(await new OpenAIEmbeddings(chain(verified)).embedDocuments(input)).toEqual(vectors);
    expect(proven).toEqual(Array(5).fill('/v1/embeddings'));
    await expect(embeddings.create({ model, input: 'x', dimensions: 9999 })).rejects.toMatchObject({
      status: 400,
      param: 'dimensions',
    });
    await expect(embeddings.create({ model, input: '' })).rejects.toMatchObject({ status: 400, param: 'input' });
    expect((await embeddings.create({ model, input: [1, 2] })).data).toHaveLength(1);
  });

  it('all: an unknown model is not found, in the words of each endpoint; the one there is answers', async () => {
    const { chat, completions, responses, embeddings, models } = openai({ url: gateway.url, fetch });
    const other = { model: 'other' };
    const asked = [
      () => chat.completions.create({ ...CHAT, ...other }),
      () => chat.completions.create({ ...CHAT, ...other, stream: true }),
      () => completions.create({ prompt: 'x', ...other }),
      () => responses.create({ input: 'x', ...other }),
      () => embeddings.create({ input: 'x', ...other }),
      () => models.retrieve('other'),
    ];
    const unknown = { status: 404, code: 'model_not_found', param: 'model' };
    for (const ask of asked) await expect(ask()).rejects.toMatchObject(unknown);
    const { messages: at } = anthropic({ url: gateway.url, fetch });
    const error = await at.create({ ...CHAT, ...other }).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(Anthropic.NotFoundError);
    const message = 'The model `other` does not exist.';
    expect(error).toMatchObject({
      error: { type: 'error', error: { type: 'not_found_error', message, code: 'model_not_found' } },
    });
    const { data } = await models.list();
    expect(data.map(({ id }) => id)).toEqual([model]);
    expect(await models.retrieve(model)).toEqual(data[0]);
    expect((await at.create(CHAT)).stop_reason).toBe('max_tokens');
  });

  it('openai: heeds instructions, and says what is wrong with a response', async () => {
    const { responses } = openai(direct);
    const { usage } = await responses.create({ ...RESPONSE, input: 'Hi' });
    const instructed = await responses.create({ ...RESPONSE, input: 'Hi', instructions: 'Be brief.' });
    expect(instructed.usage?.input_tokens).toBeGreaterThan(usage?.input_tokens ?? 0);
    await expect(responses.create({ ...RESPONSE, input: [] })).rejects.toMatchObject({ status: 400, param: 'input' });
    const whole = await responses.create({ ...RESPONSE, input: PROMPT });
    expect(whole).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    const types: string[] = [];
    for await (const event of responses.stream({ ...RESPONSE, input: PROMPT })) types.push(event.type);
    expect([types[0], types.at(-1)]).toEqual(['response.created', 'response.incomplete']);
  });
});
